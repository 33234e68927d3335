//! Named tokens: each sees its own sandboxes only and uses no more than its quotas.

use std::{
    io::Write,
    net::TcpStream,
    sync::Arc,
    time::{Duration, Instant},
};

use environment::Options;
use lis_server::{
    ChatOptions, FileLimits, FileStore, KeyHash, Quotas, ServeOptions, Token, Tokens,
};
use reqwest::{Method, RequestBuilder, Response};
use sandbox::Runtime;
use serde_json::{Value, json};

use tungstenite::{Message, WebSocket, client::IntoClientRequest};

use crate::{
    environments,
    support::{Created, TestServer, bash, with_server},
};

const ALICE: &str = "alice-key-0123456789";
const BOB: &str = "bob-key-0123456789";

fn token(name: &str, key: &str, quotas: Quotas) -> Token {
    Token { name: name.into(), key: KeyHash::of(key.as_bytes()), quotas }
}

fn options(alice: Quotas) -> ServeOptions {
    let tokens = vec![token("alice", ALICE, alice), token("bob", BOB, Quotas::default())];
    ServeOptions { tokens: Tokens::new(tokens).unwrap(), ..ServeOptions::default() }
}

fn ask(server: &TestServer, key: &str, method: Method, path: &str) -> RequestBuilder {
    server.request(method, path).header("X-API-Key", key)
}

async fn create(server: &TestServer, key: &str) -> Response {
    let body = json!({ "templateID": "base", "timeout": 60 });
    ask(server, key, Method::POST, "/v2/sandboxes").json(&body).send().await.unwrap()
}

async fn created(server: &TestServer, key: &str) -> Created {
    let response = create(server, key).await;
    assert_eq!(response.status(), 201);
    let value: Value = response.json().await.unwrap();
    let text = |name: &str| value[name].as_str().unwrap().to_owned();
    Created { id: text("sandboxID"), token: text("envdAccessToken") }
}

#[test]
fn a_token_does_not_see_or_use_the_sandboxes_of_another() {
    with_server(options(Quotas::default()), async |server| {
        let alices = created(server, ALICE).await;
        let id = &alices.id;
        for (key, expected) in [(ALICE, 1), (BOB, 0)] {
            for path in ["/sandboxes", "/v2/sandboxes"] {
                let list: Value =
                    ask(server, key, Method::GET, path).send().await.unwrap().json().await.unwrap();
                assert_eq!(list.as_array().unwrap().len(), expected, "{key} {path}");
            }
        }
        let paths = [
            (Method::GET, String::new()),
            (Method::POST, "/timeout".into()),
            (Method::POST, "/refreshes".into()),
            (Method::POST, "/connect".into()),
            (Method::POST, "/fork".into()),
            (Method::POST, "/snapshots".into()),
            (Method::POST, "/pause".into()),
            (Method::POST, "/resume".into()),
            (Method::DELETE, String::new()),
        ];
        for (method, path) in paths {
            let body = json!({ "timeout": 60, "count": 1 });
            let url = format!("/sandboxes/{id}{path}");
            let request = ask(server, BOB, method.clone(), &url).json(&body);
            assert_eq!(request.send().await.unwrap().status(), 404, "{method} {path}");
        }
        let path = format!("/sandboxes/{id}");
        let info = ask(server, ALICE, Method::GET, &path).send().await.unwrap();
        assert_eq!(info.status(), 200, "it lives on");
    });
}

#[test]
fn a_token_does_not_see_or_use_the_snapshots_of_another() {
    with_server(options(Quotas::default()), async |server| {
        let alices = created(server, ALICE).await;
        let name = format!("kept-{}", alices.id);
        let path = format!("/sandboxes/{}/snapshots", alices.id);
        let saved = ask(server, ALICE, Method::POST, &path).json(&json!({ "name": name }));
        let saved = saved.send().await.unwrap();
        if saved.status() == 501 {
            return;
        }
        assert_eq!(saved.status(), 201);
        let list = ask(server, BOB, Method::GET, "/snapshots").send().await.unwrap();
        assert_eq!(list.json::<Value>().await.unwrap(), json!([]));
        let body = json!({ "templateID": name });
        let used = ask(server, BOB, Method::POST, "/v2/sandboxes").json(&body).send().await;
        assert_eq!(used.unwrap().status(), 404);
        let bobs = created(server, BOB).await;
        let path = format!("/sandboxes/{}/snapshots", bobs.id);
        let replaced = ask(server, BOB, Method::POST, &path).json(&json!({ "name": name }));
        assert_eq!(replaced.send().await.unwrap().status(), 409);
        let path = format!("/templates/{name}");
        for (key, expected) in [(BOB, 404), (ALICE, 204)] {
            let removed = ask(server, key, Method::DELETE, &path).send().await.unwrap();
            assert_eq!(removed.status(), expected, "{key}");
        }
    });
}

#[test]
fn a_token_over_its_quota_is_refused_with_a_time_to_wait() {
    let quotas = Quotas { sandboxes: Some(1), ..Quotas::default() };
    with_server(options(quotas), async |server| {
        let first = created(server, ALICE).await;
        let refused = create(server, ALICE).await;
        assert_eq!(refused.status(), 429);
        assert_eq!(refused.headers()["retry-after"], "5");
        // E2B's clients would wait several times as long, and only they can end a sandbox.
        assert_eq!(refused.headers()["should-retry"], "false");
        let message = refused.json::<Value>().await.unwrap()["message"].to_string();
        assert!(message.contains("`alice` may use 1 sandboxes at once"), "{message}");
        // A fork is a sandbox too.
        let path = format!("/sandboxes/{}/fork", first.id);
        let fork = ask(server, ALICE, Method::POST, &path).json(&json!({ "count": 1 }));
        let fork: Value = fork.send().await.unwrap().json().await.unwrap();
        assert_eq!(fork[0]["error"]["code"], 429, "{fork}");
        let bobs = created(server, BOB).await;
        assert_ne!(bobs.id, first.id);
        let path = format!("/sandboxes/{}", first.id);
        ask(server, ALICE, Method::DELETE, &path).send().await.unwrap();
        let begun = Instant::now();
        while create(server, ALICE).await.status() != 201 {
            assert!(begun.elapsed() < Duration::from_secs(20), "the quota is not given back");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
}

#[test]
fn quotas_of_resources_count_all_sandboxes_of_a_token() {
    let options = options(Quotas::default());
    let tokens = options.tokens.clone();
    with_server(options, async |server| {
        let _first = created(server, ALICE).await;
        let cpus = Quotas { cpus: Some(1.5), ..Quotas::default() };
        let memory = Quotas { memory: Some(sandbox::ByteSize::mib(1536)), ..Quotas::default() };
        let disk = Quotas { disk: Some(sandbox::ByteSize::gib(3)), ..Quotas::default() };
        for (quotas, named) in [
            (cpus, "may use 1.5 cores of all"),
            (memory, "of memory of all"),
            (disk, "of disk of all"),
        ] {
            let both = [token("alice", ALICE, quotas), token("bob", BOB, Quotas::default())];
            tokens.replace(both.into()).unwrap();
            let refused = create(server, ALICE).await;
            assert_eq!(refused.status(), 429, "{named}");
            assert_eq!(refused.headers()["retry-after"], "5", "{named}");
            assert_eq!(refused.headers()["should-retry"], "false", "{named}");
            let message = refused.json::<Value>().await.unwrap()["message"].to_string();
            assert!(message.contains(named), "{message}");
        }
        tokens.replace(vec![token("alice", ALICE, Quotas::default())]).unwrap();
        created(server, ALICE).await;
    });
}

#[test]
fn files_and_snapshots_have_a_quota_together() {
    let data = tempfile::tempdir().unwrap();
    let files = FileStore::open(data.path(), FileLimits::default()).unwrap();
    let chat = Some(ChatOptions::new(Arc::new(files)));
    let quotas = Quotas { storage: Some(sandbox::ByteSize::mib(2)), ..Quotas::default() };
    with_server(ServeOptions { chat, ..options(quotas) }, async |server| {
        let upload = async |key: &str, kib: usize| {
            let part =
                |name: &str| format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"");
            let body = [
                part("purpose") + "\r\n\r\nuser_data\r\n",
                part("file") + "; filename=\"a\"\r\n\r\n" + &"x".repeat(kib << 10),
                "\r\n--b--\r\n".to_owned(),
            ];
            let request = ask(server, key, Method::POST, "/v1/files").body(body.concat());
            let request = request.header("Content-Type", "multipart/form-data; boundary=b");
            let response = request.send().await.unwrap();
            (response.status().as_u16(), response.json::<Value>().await.unwrap())
        };
        assert_eq!(upload(ALICE, 1024).await.0, 200);
        let (status, refused) = upload(ALICE, 1100).await;
        assert_eq!(status, 507, "{refused}");
        assert!(refused["error"]["message"].as_str().unwrap().contains("you may store at most"));
        assert_eq!(upload(BOB, 1100).await.0, 200);
        let alices = created(server, ALICE).await;
        let write = server.to(&alices, Method::POST, "/files?path=/tmp/large&username=root");
        let write =
            write.header("Content-Type", "application/octet-stream").body(vec![7; 1500 << 10]);
        assert_eq!(write.send().await.unwrap().status(), 200);
        let path = format!("/sandboxes/{}/snapshots", alices.id);
        let save = async || {
            let saved =
                ask(server, ALICE, Method::POST, &path).json(&json!({})).send().await.unwrap();
            (saved.status().as_u16(), saved.json::<Value>().await.unwrap())
        };
        let (status, refused) = save().await;
        assert_eq!(status, 429, "{refused}");
        assert!(
            refused["message"].as_str().unwrap().contains("for files and snapshots"),
            "{refused}"
        );
        let list = ask(server, ALICE, Method::GET, "/v1/files").send().await.unwrap();
        let list: Value = list.json().await.unwrap();
        let path = format!("/v1/files/{}", list["data"][0]["id"].as_str().unwrap());
        ask(server, ALICE, Method::DELETE, &path).send().await.unwrap();
        let (status, saved) = save().await;
        if status == 501 {
            return;
        }
        assert_eq!(status, 201, "{saved}");
        // What the snapshot takes is no longer there for files.
        assert_eq!(upload(ALICE, 1024).await.0, 507);
        let path = format!("/templates/{}", saved["snapshotID"].as_str().unwrap());
        assert_eq!(ask(server, ALICE, Method::DELETE, &path).send().await.unwrap().status(), 204);
        assert_eq!(upload(ALICE, 1024).await.0, 200);
    });
}

#[test]
fn grading_in_a_sandbox_counts_toward_the_quota() {
    let quotas = Quotas { sandboxes: Some(1), ..Quotas::default() };
    let tasks = environments::options(Options::default()).environments;
    let options = ServeOptions { environments: tasks, ..options(quotas) };
    with_server(options, async |server| {
        let post = async |path: &str, body: Value| {
            let begun = Instant::now();
            let response = loop {
                let asked = ask(server, ALICE, Method::POST, path).json(&body);
                let response = asked.send().await.unwrap();
                // A sandbox counts until it is gone, which takes a moment longer than its removal.
                if response.status() != 429 || begun.elapsed() > Duration::from_secs(20) {
                    break response;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            };
            assert_eq!(response.status(), 200, "{path}");
            response.json::<Value>().await.unwrap()
        };
        // The grader of the second one is a program; that of the first computes, and needs no sandbox.
        let receipts = environments::bash(&["echo 41.85 > /testbed/output/answer.txt", "submit"]);
        let tasks = [("math", environments::right_answer(), 201), ("receipts", receipts, 429)];
        for (task, answer, while_graded) in tasks {
            let reset = post(&format!("/v1/environments/{task}/reset"), json!({})).await;
            let session = format!("/v1/sessions/{}", reset["session"].as_str().unwrap());
            assert_eq!(create(server, ALICE).await.status(), 429);
            let step = json!({ "message": answer });
            let done = post(&format!("{session}/step"), step).await;
            assert_eq!(done["done"], true, "{done}");
            let other = create(server, ALICE).await;
            assert_eq!(other.status(), while_graded, "{task}");
            if let Some(id) = other.json::<Value>().await.unwrap()["sandboxID"].as_str() {
                let path = format!("/sandboxes/{id}");
                ask(server, ALICE, Method::DELETE, &path).send().await.unwrap();
            }
            let scored = post(&format!("{session}/score"), json!({})).await;
            assert_eq!(scored["score"]["valid"], true, "{scored}");
            let begun = Instant::now();
            let free = loop {
                let other = create(server, ALICE).await;
                if other.status() == 201 {
                    break other.json::<Value>().await.unwrap();
                }
                assert!(begun.elapsed() < Duration::from_secs(20), "the quota is not given back");
                tokio::time::sleep(Duration::from_millis(10)).await;
            };
            let path = format!("/sandboxes/{}", free["sandboxID"].as_str().unwrap());
            ask(server, ALICE, Method::DELETE, &path).send().await.unwrap();
            server.has_sandboxes(0).await;
        }
    });
}

#[test]
fn requests_over_the_rate_are_refused_on_both_planes() {
    let quotas = Quotas { requests_per_minute: Some(3), ..Quotas::default() };
    with_server(options(quotas), async |server| {
        let sandbox = created(server, ALICE).await;
        // A stranger who only knows the id uses nothing up.
        let stranger = Created { id: sandbox.id.clone(), token: "x".into() };
        for _ in 0..5 {
            server.call(&stranger, "/process.Process/List", &json!({})).await;
        }
        let list = server.call(&sandbox, "/process.Process/List", &json!({})).await;
        assert_eq!(list.status(), 200);
        assert_eq!(
            ask(server, ALICE, Method::GET, "/sandboxes").send().await.unwrap().status(),
            200
        );
        let wires = [
            ("/sandboxes", "/message"),
            ("/v1/models", "/error/message"),
            ("/mcp", "/error/message"),
        ];
        for (path, pointer) in wires {
            let refused = ask(server, ALICE, Method::GET, path).send().await.unwrap();
            assert_eq!(refused.status(), 429, "{path}");
            assert!(refused.headers().contains_key("retry-after"), "{path}");
            assert!(!refused.headers().contains_key("should-retry"), "waiting helps: {path}");
            let body: Value = refused.json().await.unwrap();
            let message = body.pointer(pointer).unwrap().to_string();
            assert!(message.contains("3 requests per minute"), "{path}: {body}");
        }
        let refused = server.call(&sandbox, "/process.Process/List", &json!({})).await;
        assert_eq!(refused.status(), 429);
        assert_eq!(ask(server, BOB, Method::GET, "/sandboxes").send().await.unwrap().status(), 200);
    });
}

#[test]
fn sandboxes_have_the_limits_of_their_token() {
    let each = lis_server::EachSandbox {
        memory: Some(sandbox::ByteSize::mib(64)),
        ..lis_server::EachSandbox::default()
    };
    with_server(options(Quotas { each, ..Quotas::default() }), async |server| {
        for (key, memory) in [(ALICE, 64), (BOB, 1024)] {
            let sandbox = created(server, key).await;
            let path = format!("/sandboxes/{}", sandbox.id);
            let info = ask(server, key, Method::GET, &path).send().await.unwrap();
            assert_eq!(info.json::<Value>().await.unwrap()["memoryMB"], memory, "{key}");
        }
    });
}

#[test]
fn a_token_that_is_taken_away_loses_its_sandboxes() {
    let options = options(Quotas::default());
    let tokens = options.tokens.clone();
    with_server(options, async |server| {
        let alices = created(server, ALICE).await;
        let bobs = created(server, BOB).await;
        let mut running =
            server.stream(&alices, "/process.Process/Start", &bash("sleep 600")).await;
        assert!(running.chunk().await.unwrap().is_some());
        tokens.replace(vec![token("bob", BOB, Quotas::default())]).unwrap();
        assert_eq!(create(server, ALICE).await.status(), 401);
        let begun = Instant::now();
        while server.runtime.list().await.unwrap().len() != 1 {
            assert!(begun.elapsed() < Duration::from_secs(20), "it still runs");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(server.call(&bobs, "/process.Process/List", &json!({})).await.status(), 200);
    });
}

/// A request with a body of 900 KiB, of which the last byte is missing.
fn unfinished_body(server: &TestServer, key: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).unwrap();
    let length = 900 << 10;
    let head = format!(
        "POST /v2/sandboxes HTTP/1.1\r\nhost: {}\r\nx-api-key: {key}\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n",
        server.address
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&vec![b' '; length - 1]).unwrap();
    stream
}

#[test]
fn bodies_of_one_token_leave_memory_to_those_of_others() {
    let options = ServeOptions { body_memory: 4 << 20, ..options(Quotas::default()) };
    with_server(options, async |server| {
        let mut unfinished = Vec::new();
        let padded = format!("{{{}}}", " ".repeat(900 << 10));
        let send = async |key| {
            let request = ask(server, key, Method::POST, "/v2/sandboxes");
            let request = request.header("content-type", "application/json").body(padded.clone());
            request.send().await.unwrap().status()
        };
        let deadline = Instant::now() + Duration::from_secs(20);
        // Two fit into her half.
        while send(ALICE).await != 429 {
            assert!(Instant::now() < deadline, "her memory never ends");
            unfinished.push(tokio::task::block_in_place(|| unfinished_body(server, ALICE)));
        }
        assert_eq!(send(BOB).await, 400, "his body is received and lacks a template");
        created(server, BOB).await;
        drop(unfinished);
        while send(ALICE).await != 400 {
            assert!(Instant::now() < deadline, "what she held is never given back");
        }
    });
}

/// A connection of OpenEnv's protocol.
fn open(server: &TestServer, key: &str) -> WebSocket<TcpStream> {
    let stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let address = format!("ws://{}/openenv/math/ws", server.address);
    let mut request = address.into_client_request().unwrap();
    request.headers_mut().insert("X-API-Key", key.parse().unwrap());
    tungstenite::client(request, stream).unwrap().0
}

fn exchange(socket: &mut WebSocket<TcpStream>, message: &Value) -> Value {
    socket.send(Message::text(message.to_string())).unwrap();
    serde_json::from_str(socket.read().unwrap().to_text().unwrap()).unwrap()
}

#[test]
fn a_connection_ends_with_its_token() {
    let options = ServeOptions {
        tokens: options(Quotas::default()).tokens,
        ..environments::options(Options::default())
    };
    let tokens = options.tokens.clone();
    with_server(options, async |server| {
        let mut socket = tokio::task::block_in_place(|| {
            let mut socket = open(server, ALICE);
            let reset = exchange(&mut socket, &json!({ "type": "reset" }));
            assert_eq!(reset["type"], "observation", "{reset}");
            socket
        });
        tokens.replace(vec![token("bob", BOB, Quotas::default())]).unwrap();
        tokio::task::block_in_place(|| {
            // Whatever it sends: the connection ends, at most after a message that is refused.
            let _ = socket.send(Message::text(json!({ "type": "reset" }).to_string()));
            while let Ok(Message::Text(text)) = socket.read() {
                assert!(text.contains("the token is not valid any more"), "{text}");
            }
        });
        server.has_sandboxes(0).await;
    });
}

#[test]
fn messages_of_a_connection_count_as_requests() {
    let quotas = Quotas { requests_per_minute: Some(3), ..Quotas::default() };
    let options = ServeOptions {
        tokens: options(quotas).tokens,
        ..environments::options(Options::default())
    };
    with_server(options, async |server| {
        tokio::task::block_in_place(|| {
            let mut socket = open(server, ALICE);
            let state = json!({ "type": "state" });
            for _ in 0..2 {
                assert_eq!(exchange(&mut socket, &state)["type"], "state");
            }
            let refused = exchange(&mut socket, &state);
            assert_eq!(refused["data"]["code"], "CAPACITY_REACHED", "{refused}");
            // A message that is too long is not received.
            let mut socket = open(server, BOB);
            let _ = socket.send(Message::text("x".repeat(2 << 20)));
            assert!(!matches!(socket.read(), Ok(Message::Text(_))));
        });
    });
}

#[test]
fn sandboxes_of_tool_calls_have_the_limits_of_their_token() {
    let each = lis_server::EachSandbox {
        memory: Some(sandbox::ByteSize::mib(64)),
        ..lis_server::EachSandbox::default()
    };
    // Room for one with this limit, and for none with the server's.
    let memory = Some(sandbox::ByteSize::mib(100));
    let mcp = lis_server::McpOptions { max_sessions: 8, ..lis_server::McpOptions::default() };
    let options = ServeOptions { mcp, ..options(Quotas { each, memory, ..Quotas::default() }) };
    with_server(options, async |server| {
        let post = async |session: Option<&str>, body: Value| {
            let accepted = "application/json, text/event-stream";
            let mut request = ask(server, ALICE, Method::POST, "/mcp").header("Accept", accepted);
            if let Some(session) = session {
                request = request.header("Mcp-Session-Id", session);
            }
            request.json(&body).send().await.unwrap()
        };
        let initialize = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "test", "version": "1" },
        }});
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
            "name": "execute_bash", "arguments": { "command": "echo made" },
        }});
        let mut sessions = Vec::new();
        for _ in 0..2 {
            let opened = post(None, initialize.clone()).await;
            sessions.push(opened.headers()["mcp-session-id"].to_str().unwrap().to_owned());
        }
        // A quarter of all sessions.
        assert_eq!(post(None, initialize).await.status(), 429);
        for (session, expected) in sessions.iter().zip(["made", "of memory"]) {
            let text = post(Some(session), call.clone()).await.text().await.unwrap();
            assert!(text.contains(expected), "{expected}: {text}");
        }
    });
}

#[test]
fn metadata_and_variables_are_bounded_together() {
    with_server(options(Quotas::default()), async |server| {
        let values = |count: usize| {
            let entry = |at: usize| (format!("NAME_{at}"), json!("x".repeat(30 << 10)));
            (0..count).map(entry).collect::<serde_json::Map<_, _>>()
        };
        let body = |metadata, variables| json!({ "templateID": "base", "metadata": values(metadata), "envVars": values(variables) });
        let create = async |body: Value| {
            ask(server, ALICE, Method::POST, "/v2/sandboxes").json(&body).send().await.unwrap()
        };
        let refused = create(body(5, 4)).await;
        assert_eq!(refused.status(), 400);
        assert!(refused.text().await.unwrap().contains("together"));
        assert_eq!(create(body(5, 3)).await.status(), 201);
    });
}
