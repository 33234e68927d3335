//! Clients that open connections and do nothing with them do not keep others out.

use std::time::Duration;

use lis_model_server::{ServeOptions, Served};
use serde_json::json;
use testkit::{ScriptedModel, say};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, timeout},
};

use crate::support::{Endless, LONGEST, Server, chat, question, read, read_until, wait_for};

/// More than the server accepts.
const MANY: usize = 600;

/// Both ends of connections are in this process: three times `MANY`, of which the server keeps 512, and some files.
const DESCRIPTORS: u64 = 2600;

/// Raises the limit on descriptors; whether that is enough.
fn allow_descriptors() -> bool {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|most| most < DESCRIPTORS) {
        return false;
    }
    if limit.current.is_some_and(|current| current < DESCRIPTORS) {
        limit.current = Some(DESCRIPTORS);
        setrlimit(Resource::Nofile, limit).unwrap();
    }
    true
}

async fn flood(server: &Server, sent: &[u8]) -> Vec<TcpStream> {
    let mut streams = Vec::new();
    for _ in 0..MANY {
        let mut stream = server.connect().await;
        // One that was evicted already cannot be written to.
        let _ = stream.write_all(sent).await;
        streams.push(stream);
    }
    streams
}

#[tokio::test]
async fn silent_and_dawdling_clients_make_room() {
    if !allow_descriptors() {
        println!("skip: this user may not open {DESCRIPTORS} files at once");
        return;
    }
    assert!(ServeOptions::default().max_connections < MANY);
    let server = Server::of(ScriptedModel::answering(|_| say("yes"))).await;
    let whole = chat(&question(json!({})).to_string(), "");
    let mut held = Vec::new();
    // Silent, in the middle of a head, and in the middle of a body.
    for sent in [0, 20, whole.len() - 5] {
        held.push(flood(&server, &whole.as_bytes()[..sent]).await);
        let begun = Instant::now();
        assert_eq!(server.ask(&question(json!({}))).await.status, 200);
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(1), "after {sent} bytes: {took:?}");
    }
    // The first came first, and went first.
    let ended = timeout(LONGEST, held[0][0].read(&mut [0; 1])).await.unwrap();
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
}

#[tokio::test]
async fn running_responses_keep_their_connections() {
    let model = Endless::default();
    let options = ServeOptions { max_connections: 2, max_running: 2, ..ServeOptions::default() };
    let server = Server::with(vec![Served::new(model.clone(), 9)], options).await;
    let body = question(json!({ "stream": true })).to_string();
    let mut running = Vec::new();
    for number in 1..=2 {
        // An idle one before each, which has to go.
        let _idle = server.connect().await;
        let mut stream = server.connect().await;
        stream.write_all(chat(&body, "").as_bytes()).await.unwrap();
        read_until(&mut stream, "\"word\"").await;
        assert_eq!(model.running(), number);
        running.push(stream);
    }
    let got = server.get("/health").await;
    assert_eq!(got.status, 503);
    assert_eq!(got.header("retry-after"), Some("1"));
    assert_eq!(got.error()["code"], "server_busy");
    assert_eq!(model.running(), 2);
    running.pop();
    wait_for("one has ended", || model.running() == 1).await;
    wait_for_health(&server).await;
}

async fn wait_for_health(server: &Server) {
    let until = Instant::now() + LONGEST;
    while server.get("/health").await.status != 200 {
        assert!(Instant::now() < until);
    }
}

#[tokio::test]
async fn a_connection_in_use_outlives_idle_ones() {
    let options = ServeOptions { max_connections: 4, ..ServeOptions::default() };
    let model = ScriptedModel::answering(|_| say("yes"));
    let server = Server::with(vec![Served::new(model, 9)], options).await;
    let mut used = server.connect().await;
    let request = "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let mut idle = Vec::new();
    for _ in 0..5 {
        used.write_all(request.as_bytes()).await.unwrap();
        read_until(&mut used, "\"ok\"").await;
        idle.push(server.connect().await);
        // Accepted by the time the next request on this connection is answered.
        idle.push(server.connect().await);
    }
    let last = request.replacen("\r\n\r\n", "\r\nconnection: close\r\n\r\n", 1);
    used.write_all(last.as_bytes()).await.unwrap();
    assert_eq!(read(&mut used).await.status, 200);
}
