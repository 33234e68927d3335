//! Hundreds of conversations at once, and nothing left when the server is dropped.

use std::time::Duration;

use lis_testkit::{Conversation, Keep, MockServer, say};
use serde_json::{Value, json};
use tokio::{net::TcpStream, task::JoinSet};

use crate::client::{ANTHROPIC, Client, End, OPENAI, request};

const AT_ONCE: usize = 300;
const TURNS: usize = 6;
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn three_hundred_conversations_end_as_each_should() {
    let script = Conversation { turns: TURNS, command: "date".into(), ..Conversation::default() };
    let server =
        MockServer::answering_and(Keep::Counts, move |asked| script.answer(asked)).unwrap();
    let mut all = JoinSet::new();
    for number in 0..AT_ONCE {
        let address = server.address();
        all.spawn(async move {
            let path = if number % 2 == 0 { OPENAI } else { ANTHROPIC };
            converse(Client::open(address).await, path).await
        });
    }
    while let Some(commands) = all.join_next().await {
        assert_eq!(commands.unwrap(), TURNS - 1);
    }
    assert_eq!(server.count(), AT_ONCE * TURNS);
    assert!(server.is_idle_soon().await);
    assert!(server.requests().is_empty(), "only counted");
}

/// Continues until the model submits; returns how many commands came before.
async fn converse(mut client: Client, path: &str) -> usize {
    let mut body = request(true);
    for commands in 0.. {
        client.post(path, &body).await;
        let response = client.response(PATIENCE).await;
        assert_eq!((response.status, response.end), (200, End::Clean));
        let openai = response.joined("/choices/0/delta/tool_calls/0/function/name");
        match (openai + &response.joined("/content_block/name")).as_str() {
            "submit" => return commands,
            "execute_bash" => {}
            other => panic!("called {other:?}"),
        }
        let more = [json!({"role": "assistant"}), json!({"role": "user"})];
        body["messages"].as_array_mut().unwrap().extend(more);
    }
    unreachable!()
}

#[tokio::test]
async fn requests_at_the_same_time_are_counted() {
    let server = MockServer::answering(|_| say("x").after(Duration::from_secs(600))).unwrap();
    let mut clients = vec![];
    for _ in 0..20 {
        let mut client = Client::open(server.address()).await;
        client.post(OPENAI, &Value::from(1)).await;
        clients.push(client);
    }
    server.requests_reach(20).await.unwrap();
    assert_eq!((server.open(), server.peak()), (20, 20));
    clients.truncate(0);
    assert!(server.is_idle_soon().await);
    assert_eq!(server.peak(), 20);
}

#[tokio::test]
async fn a_dropped_server_is_gone_with_its_connections() {
    let server = MockServer::answering(|_| say("x").after(Duration::from_secs(600))).unwrap();
    let address = server.address();
    let mut client = Client::open(address).await;
    client.post(OPENAI, &request(true)).await;
    server.requests_reach(1).await.unwrap();
    drop(server);
    assert_ne!(client.response(PATIENCE).await.end, End::Silent);
    assert!(TcpStream::connect(address).await.is_err());
}
