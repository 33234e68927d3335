//! Pages of a browser do not get in, under whatever name.

use lis_model_server::{ServeOptions, Served, serve};
use serde_json::json;
use testkit::{ScriptedModel, say};
use tokio::net::TcpListener;

use crate::support::{Server, chat, question, read};

async fn server() -> Server {
    Server::of(ScriptedModel::answering(|_| say("yes"))).await
}

#[tokio::test]
async fn only_names_of_this_machine_are_answered() {
    let server = server().await;
    let body = question(json!({})).to_string();
    let request = chat(&body, "connection: close\r\n");
    for (host, status) in [
        ("localhost", 200),
        ("127.0.0.1:9", 200),
        ("[::1]", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example:80", 403),
        ("", 403),
    ] {
        let named = request.replacen("host: localhost", &format!("host: {host}"), 1);
        assert_eq!(server.send(named).await.status, status, "{host}");
    }
    for hosts in ["localhost\r\nhost: evil.example", "evil.example\r\nhost: localhost"] {
        let twice = request.replacen("host: localhost", &format!("host: {hosts}"), 1);
        assert_ne!(server.send(twice).await.status, 200, "{hosts}");
    }
    let nameless = request.replacen("host: localhost\r\n", "", 1);
    assert_eq!(server.send(&nameless).await.status, 403);
    let old = nameless.replacen("HTTP/1.1", "HTTP/1.0", 1);
    assert_eq!(server.send(old).await.status, 200);
    let absolute = request.replacen("POST /v1", "POST http://evil.example/v1", 1);
    assert_eq!(server.send(absolute).await.status, 403);
    let health = "GET /health HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n";
    assert_eq!(server.send(health).await.status, 403);
}

#[tokio::test]
async fn pages_get_neither_an_answer_nor_leave_to_ask() {
    let server = server().await;
    let body = question(json!({})).to_string();
    for origin in ["http://evil.example", "null", "http://localhost:3000"] {
        let got =
            server.send(chat(&body, &format!("origin: {origin}\r\nconnection: close\r\n"))).await;
        assert_eq!(got.status, 403, "{origin}");
        assert_eq!(got.header("access-control-allow-origin"), None);
        got.error();
    }
    // Not every request of a web page names its origin.
    for (site, status) in [("cross-site", 403), ("same-site", 403), ("none", 200)] {
        let headers = format!("sec-fetch-site: {site}\r\nconnection: close\r\n");
        assert_eq!(server.send(chat(&body, &headers)).await.status, status, "{site}");
    }
    let preflight = "OPTIONS /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n\
                     access-control-request-method: POST\r\nconnection: close\r\n\r\n";
    let got = server.send(preflight).await;
    assert_eq!((got.status, got.header("access-control-allow-origin")), (405, None));
}

#[tokio::test]
async fn other_addresses_are_answered_under_any_name() {
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let models = vec![Served::new(ScriptedModel::default(), 9)];
    let serving =
        tokio::spawn(serve(listener, models, ServeOptions::default(), std::future::pending()));
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let request = "GET /health HTTP/1.1\r\nhost: gpu-box.lan\r\nconnection: close\r\n\r\n";
    tokio::io::AsyncWriteExt::write_all(&mut stream, request.as_bytes()).await.unwrap();
    assert_eq!(read(&mut stream).await.status, 200);
    serving.abort();
}
