//! Chats as streams: the model's text arrives while it is generated, and what is cut off never looks complete.

use std::time::{Duration, Instant};

use model::{
    Delta, Endpoint, Listener, Model, OpenAi, Request, Response as ModelResponse, SharedModel,
};
use reqwest::{Method, Response};
use serde_json::{Value, json};
use testkit::{Answer, Fault, MockServer, bash, say, submit};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
};

use crate::{
    answers_chats::options,
    support::{TestServer, becomes, until, with_server},
};

/// The model of a mock server.
fn remote(upstream: &MockServer) -> SharedModel {
    SharedModel::new(OpenAi::new(Endpoint::new("mock", upstream.base_url())).unwrap())
}

async fn ask(server: &TestServer, text: &str) -> Response {
    let body = json!({ "messages": [{ "role": "user", "content": text }], "stream": true });
    let request = server.request(Method::POST, "/v1/chat/completions").json(&body);
    let answer = request.send().await.unwrap();
    assert_eq!(answer.status(), 200);
    answer
}

/// The pieces of one kind in the whole events of a text.
fn deltas(text: &str, kind: &str) -> String {
    let events = text.split("\n\n").filter_map(|event| event.strip_prefix("data: "));
    let events = events.filter_map(|event| serde_json::from_str::<Value>(event).ok());
    let piece = |event: Value| event["choices"][0]["delta"][kind].as_str().map(str::to_owned);
    events.filter_map(piece).collect()
}

#[test]
fn text_arrives_while_the_model_writes_it() {
    let data = tempfile::tempdir().unwrap();
    let upstream = MockServer::answering(|asked| match asked.turns() {
        0 => bash("echo 7 > /testbed/output/answer.txt")
            .text("First I think about it for a long time.")
            .every(Duration::from_millis(400)),
        _ => submit().into(),
    })
    .unwrap();
    with_server(options(remote(&upstream), &data), async |server| {
        let mut answer = ask(server, "talk").await;
        let mut text = String::new();
        while !deltas(&text, "reasoning_content").contains("First") {
            text += &String::from_utf8_lossy(&answer.chunk().await.unwrap().unwrap());
        }
        assert_eq!(upstream.open(), 1, "the model has not finished: {text}");
        assert!(!text.contains("long time"), "{text}");
        text += &answer.text().await.unwrap();
        let shown = deltas(&text, "reasoning_content");
        let expected = "First I think about it for a long time.\n$ echo 7 > \
                        /testbed/output/answer.txt\n\n";
        assert!(shown.starts_with(expected), "{shown}");
        assert_eq!(shown.matches("First").count(), 1, "{shown}");
        assert!(shown.contains("[exit code 0]") && shown.contains("[submit]"), "{shown}");
        assert_eq!(deltas(&text, "content"), "7");
        assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    });
}

#[test]
fn a_model_that_dies_midway_is_no_answer() {
    let data = tempfile::tempdir().unwrap();
    let upstream = MockServer::answering(|asked| {
        let long = say("I have found the answer, it is forty").every(Duration::from_millis(20));
        match asked.mentions("late") && asked.turns() == 0 {
            true => Answer::says(bash("true")),
            false => long.fault(Fault::CutAfter(4)),
        }
    })
    .unwrap();
    with_server(options(remote(&upstream), &data), async |server| {
        for task in ["die at once", "die late"] {
            let text = ask(server, task).await.text().await.unwrap();
            assert!(deltas(&text, "reasoning_content").contains("I have"), "{text}");
            assert_eq!(deltas(&text, "content"), "", "{text}");
            assert!(text.contains("model_unavailable"), "{text}");
            assert!(!text.contains("[DONE]") && !text.contains("finish_reason\":\"stop"), "{text}");
            let body = json!({ "messages": [{ "role": "user", "content": task }] });
            let whole = server.request(Method::POST, "/v1/chat/completions").json(&body);
            assert_eq!(whole.send().await.unwrap().status(), 502, "{task}");
        }
        becomes(server, 0).await;
    });
}

/// A model whose response never ends.
struct Wordy;

impl Model for Wordy {
    fn name(&self) -> &str {
        "wordy"
    }

    async fn complete(
        &self,
        _: &Request<'_>,
        listener: &dyn Listener,
    ) -> Result<ModelResponse, model::Error> {
        listener.on_delta(Delta::Text(&"x".repeat(16 << 20)));
        std::future::pending().await
    }
}

const STALL: Duration = Duration::from_millis(400);

/// A client with a small buffer that sends a request and reads nothing.
async fn unread(server: &TestServer, head: &str, body: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(server.address).await.unwrap();
    let request = format!(
        "{head} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// Waits until the server sends so many responses, besides the one that says so.
async fn sends(server: &TestServer, count: u64) {
    until("responses end", async || {
        let text = server.request(Method::GET, "/metrics").send().await.unwrap().text().await;
        let text = text.unwrap();
        let name = "llm_in_sandbox_open_responses ";
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().parse::<u64>().unwrap() == count
    })
    .await;
}

/// Reads what is in the buffers, which does not look complete.
async fn is_cut_off(mut stream: TcpStream) {
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    assert!(rest.starts_with(b"HTTP/1.1 200") && !rest.ends_with(b"0\r\n\r\n"));
}

#[test]
fn clients_that_read_nothing_are_given_up_and_disturb_nobody() {
    let data = tempfile::tempdir().unwrap();
    let mut options = options(SharedModel::new(Wordy), &data);
    options.connections.stall_timeout = STALL;
    with_server(options, async |server| {
        // More than the buffers between both hold: the first event has the task.
        let task = json!({ "task": "y".repeat(6 << 20) });
        let started = server.request(Method::POST, "/v1/episodes").json(&task).send().await;
        let info: Value = started.unwrap().json().await.unwrap();
        let events = format!("/v1/episodes/{}/events", info["id"].as_str().unwrap());
        becomes(server, 1).await;
        let slow = unread(server, &format!("GET {events}"), "").await;
        let mut other = server.request(Method::GET, &events).send().await.unwrap();
        let (begun, mut read) = (Instant::now(), 0);
        while read < 6 << 20 {
            read += other.chunk().await.unwrap().unwrap().len();
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        drop(other);
        sends(server, 0).await;
        is_cut_off(slow).await;
        // The episode goes on without its reader; that of a chat does not.
        let question =
            json!({ "messages": [{ "role": "user", "content": "question" }], "stream": true });
        let head = "POST /v1/chat/completions";
        let slow = unread(server, head, &question.to_string()).await;
        becomes(server, 2).await;
        becomes(server, 1).await;
        sends(server, 0).await;
        is_cut_off(slow).await;
        let states = async || {
            let list = server.request(Method::GET, "/v1/episodes").send().await.unwrap();
            let list: Value = list.json().await.unwrap();
            let list = list["episodes"].as_array().unwrap().clone();
            list.iter().map(|one| one["state"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        until("the end", async || states().await == ["cancelled", "running"]).await;
    });
}
