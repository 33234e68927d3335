//! Clients that send or read hardly anything: they are disconnected, and the others do not notice.

use std::time::{Duration, Instant};

use lis_server::ServeOptions;
use model::SharedModel;
use reqwest::Method;
use serde_json::{Value, json};
use testkit::{ScriptedModel, submit};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    answers_chats,
    support::{TestServer, bash, becomes, messages, with_server},
};

const SHORT: Duration = Duration::from_millis(400);
const SOON: Duration = Duration::from_secs(15);

fn options() -> ServeOptions {
    let mut options = ServeOptions::default();
    options.connections.head_timeout = SHORT;
    options.connections.stall_timeout = SHORT;
    options
}

/// Sends a byte now and then until the server disconnects; how long that took.
async fn drip(server: &TestServer, text: &'static [u8]) -> Duration {
    let begun = Instant::now();
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n").await.unwrap();
    for byte in text.iter().cycle() {
        let mut answer = [0; 512];
        let pause = tokio::time::sleep(SHORT / 10);
        tokio::select! {
            read = stream.read(&mut answer) => if !matches!(read, Ok(1..)) { break },
            () = pause => if stream.write_all(&[*byte]).await.is_err() { break },
        }
        assert!(begun.elapsed() < SOON, "the server still listens");
    }
    begun.elapsed()
}

#[test]
fn slow_heads_do_not_keep_a_connection() {
    with_server(options(), async |server| {
        let dripping = futures_util::future::join_all((0..50).map(|_| drip(server, b"X-A: b\r\n")));
        let asking = async {
            let mut slowest = Duration::ZERO;
            for _ in 0..20 {
                let begun = Instant::now();
                let answer = server.request(Method::GET, "/sandboxes").send().await.unwrap();
                assert_eq!(answer.status(), 200);
                slowest = slowest.max(begun.elapsed());
                tokio::time::sleep(SHORT / 20).await;
            }
            slowest
        };
        let (ended, slowest) = tokio::join!(dripping, asking);
        assert!(ended.iter().all(|time| *time >= SHORT / 2), "{ended:?}");
        assert!(slowest < Duration::from_secs(5), "others waited {slowest:?}");
    });
}

/// Sends the head of a request and of its body, then nothing. What it is answered, and how long that took.
async fn withhold(server: &TestServer, head: &str, body: &str) -> (String, Duration) {
    let begun = Instant::now();
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let request = format!("POST {head}\r\nHost: localhost\r\nContent-Length: 5000\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = [0; 4096];
    let read = tokio::time::timeout(SOON, stream.read(&mut answer)).await;
    assert!(read.is_ok(), "the server still listens: {head}");
    let read = read.unwrap().unwrap();
    (String::from_utf8_lossy(&answer[..read]).into_owned(), begun.elapsed())
}

#[test]
fn bodies_that_do_not_arrive_are_refused_on_every_route() {
    let data = tempfile::tempdir().unwrap();
    let model = SharedModel::new(ScriptedModel::answering(|_| submit()));
    let options = answers_chats::options(model, &data);
    with_server(ServeOptions { body_timeout: SHORT, ..options }, async |server| {
        let sandbox = server.create().await;
        let json = |path: &str| format!("{path} HTTP/1.1\r\nContent-Type: application/json");
        let form = "HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=b";
        let part = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\nx";
        let own = format!("E2b-Sandbox-Id: {}\r\nX-Access-Token: {}", sandbox.id, sandbox.token);
        let accept = "application/json, text/event-stream";
        let octets = "HTTP/1.1\r\nContent-Type: application/octet-stream";
        let cases = [
            (json("/v2/sandboxes"), "{", "504"),
            (json("/v1/episodes"), "{", "504"),
            (json("/v1/chat/completions"), "{", "408"),
            (format!("{}\r\nAccept: {accept}", json("/mcp")), "{", "504"),
            (format!("{}\r\n{own}", json("/process.Process/List")), "{", "504"),
            (format!("/v1/files {form}"), part, "408"),
            (format!("/files?path=/tmp/a {form}\r\n{own}"), part, "504"),
            (format!("/files?path=/tmp/b {octets}\r\n{own}"), "x", "504"),
        ];
        let waiting = cases.iter().map(|(head, body, _)| withhold(server, head, body));
        let answers = futures_util::future::join_all(waiting).await;
        for ((head, _, status), (answer, time)) in cases.iter().zip(answers) {
            let expected = format!("HTTP/1.1 {status}");
            assert!(answer.starts_with(&expected), "{head}: {answer}");
            assert!(time >= SHORT, "{head}: {time:?}");
        }
        // Half a file is none.
        let listed = server.request(Method::GET, "/v1/files").send().await.unwrap();
        assert_eq!(listed.json::<Value>().await.unwrap()["data"], json!([]));
        for path in ["/tmp/a", "/tmp/b"] {
            let path = format!("/files?path={path}");
            let read = server.to(&sandbox, Method::GET, &path).send().await.unwrap();
            assert_eq!(read.status(), 404, "{path}");
        }
    });
}

#[test]
fn a_client_that_reads_nothing_is_given_up() {
    with_server(options(), async |server| {
        let sandbox = server.create().await;
        let body = bash("cat /dev/zero").to_string();
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        let head = format!(
            "POST /process.Process/Start HTTP/1.1\r\nHost: localhost\r\nE2b-Sandbox-Id: {}\r\n\
             X-Access-Token: {}\r\nContent-Type: application/connect+json\r\nContent-Length: {}\r\n\r\n",
            sandbox.id,
            sandbox.token,
            body.len() + 5
        );
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let request = [head.as_bytes(), &[0], &length, body.as_bytes()].concat();
        stream.write_all(&request).await.unwrap();
        // Long enough for the system's buffers to fill, and then for the server's patience.
        tokio::time::sleep(SHORT * 5).await;
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(SOON, stream.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "the server still sends");
        assert!(!rest.ends_with(b"0\r\n\r\n"), "it looks complete");
        let list = server.call(&sandbox, "/process.Process/List", &json!({})).await;
        assert_eq!(list.status(), 200);
        assert!(list.json::<Value>().await.unwrap().is_object());
        server.request(Method::DELETE, &format!("/sandboxes/{}", sandbox.id)).send().await.unwrap();
        becomes(server, 0).await;
    });
}

/// So that proxies keep the connection, and a client notices its loss.
#[test]
fn streams_without_messages_show_that_they_live() {
    with_server(ServeOptions::default(), async |server| {
        let sandbox = server.create().await;
        let every_second = async |procedure: &str, message: &Value| {
            let request = server.streaming(&sandbox, procedure, message);
            request.header("Keepalive-Ping-Interval", "1").send().await.unwrap()
        };
        let quiet = bash("sleep 2.5; echo late");
        let mut watching =
            every_second("/filesystem.Filesystem/WatchDir", &json!({ "path": "/tmp" })).await;
        let running = every_second("/process.Process/Start", &quiet).await;
        let usual = server.stream(&sandbox, "/process.Process/Start", &quiet).await;
        for (stream, signs) in [(running, 1..=9), (usual, 0..=0)] {
            let all = messages(&stream.bytes().await.unwrap());
            let seen = all.iter().filter(|one| one["event"]["keepalive"].is_object()).count();
            assert!(signs.contains(&seen), "{seen} not in {signs:?}: {all:?}");
            let event = |name: &str| all.iter().any(|one| one["event"][name].is_object());
            assert!(event("start") && event("data") && event("end"), "{all:?}");
        }
        let mut text = String::new();
        while !text.contains("keepalive") {
            let chunk = tokio::time::timeout(SOON, watching.chunk()).await;
            text += &String::from_utf8_lossy(&chunk.unwrap().unwrap().unwrap());
        }
        assert!(text.find("start") < text.find("keepalive"), "{text}");
    });
}
