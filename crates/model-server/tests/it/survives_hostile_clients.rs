//! Clients that hang up, dawdle, flood, or speak something else.

use std::time::Duration;

use lis_model_server::{ServeOptions, Served};
use serde_json::json;
use testkit::{ScriptedModel, say};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::{Instant, timeout},
};

use crate::support::{Endless, LONGEST, Server, chat, question, read, read_until, wait_for};

#[tokio::test]
async fn who_hangs_up_ends_the_generation() {
    let model = Endless::default();
    let server = Server::of(model.clone()).await;
    for stream in [true, false] {
        let mut connection = server.connect().await;
        let body = question(json!({ "stream": stream })).to_string();
        connection.write_all(chat(&body, "").as_bytes()).await.unwrap();
        wait_for("it is being written", || model.running() == 1).await;
        if stream {
            read_until(&mut connection, "\"word\"").await;
        }
        drop(connection);
        wait_for("it ended", || model.running() == 0).await;
    }
    assert_eq!(model.begun(), 2);
}

#[tokio::test]
async fn who_hangs_up_while_waiting_leaves_the_queue() {
    let model = Endless::default();
    let options = ServeOptions { max_running: 1, max_waiting: 4, ..ServeOptions::default() };
    let server = Server::with(vec![Served::new(model.clone(), 9)], options).await;
    let body = question(json!({})).to_string();
    let mut first = server.connect().await;
    first.write_all(chat(&body, "").as_bytes()).await.unwrap();
    wait_for("the first runs", || model.running() == 1).await;
    // Many more than the queue has slots: each must have released its own.
    for _ in 0..20 {
        let mut one = server.connect().await;
        one.write_all(chat(&body, "").as_bytes()).await.unwrap();
        drop(one);
    }
    drop(first);
    wait_for("all have gone", || model.running() == 0).await;
    let mut last = server.connect().await;
    last.write_all(chat(&body, "").as_bytes()).await.unwrap();
    wait_for("the last runs", || model.running() == 1).await;
}

#[tokio::test]
async fn a_gigabyte_is_refused() {
    let server = Server::of(ScriptedModel::answering(|_| say("yes"))).await;
    let heads = [
        "content-length: 1073741824\r\n",
        "transfer-encoding: chunked\r\n",
        "content-length: 1073741824\r\nexpect: 100-continue\r\n",
    ];
    for head in heads {
        let mut stream = server.connect().await;
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{head}\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        if !head.contains("expect") {
            let block = vec![b' '; 1 << 20];
            for _ in 0..1024 {
                let chunked = head.contains("chunked");
                let sent = async {
                    if chunked {
                        stream.write_all(b"100000\r\n").await?;
                    }
                    stream.write_all(&block).await?;
                    if chunked { stream.write_all(b"\r\n").await } else { Ok(()) }
                };
                if timeout(LONGEST, sent).await.unwrap().is_err() {
                    break;
                }
            }
        }
        let got = read(&mut stream).await;
        // Whoever sends on after the answer may lose it: the connection is closed on them.
        assert!(got.status == 413 || got.status == 0, "{got:?}");
        if head.contains("expect") {
            assert_eq!(got.status, 413);
        }
        assert!(!got.body.contains("choices"));
    }
    let long = "x".repeat(17 << 20);
    let got = server.ask(&question(json!({ "model": long }))).await;
    assert_eq!(got.status, 413);
    got.error();
    assert_eq!(server.ask(&question(json!({}))).await.status, 200);
}

#[tokio::test]
async fn slow_heads_bodies_and_idle_connections_are_closed() {
    let short = Duration::from_millis(200);
    let options =
        ServeOptions { head_timeout: short, body_timeout: short, ..ServeOptions::default() };
    let model = ScriptedModel::answering(|_| say("yes"));
    let server = Server::with(vec![Served::new(model, 9)], options).await;
    let whole = chat(&question(json!({})).to_string(), "");
    for sent in [0, 20, whole.len() - 5] {
        let mut stream = server.connect().await;
        stream.write_all(&whole.as_bytes()[..sent]).await.unwrap();
        let begun = Instant::now();
        let got = read(&mut stream).await;
        assert!(got.status == 408 || got.status == 0, "{got:?}");
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
    // One that was used and then forgotten.
    let mut stream = server.connect().await;
    stream.write_all(whole.as_bytes()).await.unwrap();
    assert_eq!(read(&mut stream).await.status, 200);
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_given_up() {
    let options =
        ServeOptions { stall_timeout: Duration::from_millis(300), ..ServeOptions::default() };
    // More than the system's buffers hold.
    let model = ScriptedModel::answering(|_| say("x".repeat(32 << 20)));
    let server = Server::with(vec![Served::new(model, 9)], options).await;
    let mut stream = server.connect().await;
    let body = question(json!({})).to_string();
    stream.write_all(chat(&body, "").as_bytes()).await.unwrap();
    let mut first = [0; 16];
    timeout(LONGEST, stream.read_exact(&mut first)).await.unwrap().unwrap();
    // The server's side is gone once it has closed: what we send then is answered with a reset.
    let gone = async {
        while stream.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(LONGEST, gone).await.unwrap();
}

#[tokio::test]
async fn what_is_no_http_does_no_harm() {
    let server = Server::of(ScriptedModel::answering(|_| say("yes"))).await;
    let long = format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "x".repeat(1 << 20));
    let many = format!("GET / HTTP/1.1\r\nhost: localhost\r\n{}\r\n", "a: b\r\n".repeat(5000));
    let requests: [&[u8]; 6] = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\r\n\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        long.as_bytes(),
        many.as_bytes(),
    ];
    for request in requests {
        let mut stream = server.connect().await;
        let _ = stream.write_all(request).await;
        let _ = stream.shutdown().await;
        let got = read(&mut stream).await;
        assert!(got.status == 0 || got.status >= 400, "{got:?}");
    }
    assert_eq!(server.ask(&question(json!({}))).await.status, 200);
}
