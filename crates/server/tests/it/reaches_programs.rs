//! Ports of programs: WebSockets, streams that last, connections that either side closes, pages and tokens.

use std::{
    net::TcpStream,
    time::{Duration, Instant},
};

use futures_util::StreamExt;
use lis_server::ServeOptions;
use reqwest::Method;
use serde_json::{Value, json};
use tungstenite::{Message, WebSocket, client::IntoClientRequest};

use crate::support::{Created, TestServer, bash, with_server};

/// A server of WebSockets, of an endless stream of events, and of what it sees; written with the standard library. It notes
/// in `/tmp/closed` when a connection was closed by the other side.
const PROGRAM: &str = r#"
import base64, hashlib, http.server, struct, time

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def closed(self):
        open("/tmp/closed", "a").write(self.path + "\n")

    def read_exactly(self, n):
        data = self.rfile.read(n)
        if len(data) < n:
            raise ConnectionError
        return data

    def do_GET(self):
        try:
            getattr(self, "get_" + self.path.strip("/"))()
        except OSError:
            self.closed()
        self.close_connection = True

    def get_ws(self):
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers()
        while True:
            first, second = self.read_exactly(2)
            length = second & 127
            if length == 126:
                length, = struct.unpack(">H", self.read_exactly(2))
            elif length == 127:
                length, = struct.unpack(">Q", self.read_exactly(8))
            mask = self.read_exactly(4)
            data = bytearray(self.read_exactly(length))
            for i in range(length):
                data[i] ^= mask[i & 3]
            if data == b"leave":
                return
            head = bytes([first]) + (bytes([length]) if length < 126 else b"\x7e" + struct.pack(">H", length)
                                     if length < 65536 else b"\x7f" + struct.pack(">Q", length))
            self.wfile.write(head + data)

    def get_events(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        while True:
            self.wfile.write(b"data: tick\n\n")
            time.sleep(0.02)

    def get_silence(self):
        while self.connection.recv(1):
            pass
        raise ConnectionError

    def get_headers(self):
        body = repr(sorted((k.lower(), v) for k, v in self.headers.items())).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

http.server.ThreadingHTTPServer(("127.0.0.1", 8080), Handler).serve_forever()
"#;

/// Starts the program and waits until it answers.
async fn start(server: &TestServer, sandbox: &Created, headers: &[(&str, &str)]) {
    let path = "/files?username=root&path=/tmp/server.py";
    let write = server.to(sandbox, Method::POST, path).body(PROGRAM);
    assert_eq!(write.send().await.unwrap().status(), 200);
    let program = json!({ "process": { "cmd": "python3", "args": ["/tmp/server.py"] } });
    let mut running = server.stream(sandbox, "/process.Process/Start", &program).await;
    assert!(running.chunk().await.unwrap().is_some());
    let begun = Instant::now();
    while get(server, sandbox, "/headers", headers).await.0 != 200 {
        assert!(begun.elapsed() < Duration::from_secs(20), "the program does not answer");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn host(server: &TestServer, sandbox: &Created) -> String {
    format!("8080-{}.localhost:{}", sandbox.id, server.address.port())
}

async fn get(
    server: &TestServer,
    sandbox: &Created,
    path: &str,
    headers: &[(&str, &str)],
) -> (u16, String) {
    let mut request = server.request(Method::GET, path).header("Host", host(server, sandbox));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = request.send().await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

/// Waits until the program has noticed that the other side closed a connection.
async fn is_closed(server: &TestServer, sandbox: &Created, path: &str) {
    let begun = Instant::now();
    loop {
        let read = server.to(sandbox, Method::GET, "/files?username=root&path=/tmp/closed");
        let text = read.send().await.unwrap().text().await.unwrap();
        if text.lines().any(|line| line == path) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "the program still has {path}: {text}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A WebSocket to the program.
fn open(server: &TestServer, sandbox: &Created) -> WebSocket<TcpStream> {
    let stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let request = format!("ws://{}/ws", host(server, sandbox)).into_client_request().unwrap();
    let (socket, response) = tungstenite::client(request, stream).unwrap();
    assert_eq!(response.status(), 101);
    socket
}

#[test]
fn web_sockets_pass_in_both_directions_until_either_side_leaves() {
    with_server(ServeOptions::default(), async |server| {
        let sandbox = server.create().await;
        start(server, &sandbox, &[]).await;
        tokio::task::block_in_place(|| {
            let mut socket = open(server, &sandbox);
            for message in [Message::text("hello"), Message::binary(vec![7; 300_000])] {
                socket.send(message.clone()).unwrap();
                assert!(socket.read().unwrap() == message);
            }
            // The program closes the connection: the client sees it.
            socket.send(Message::text("leave")).unwrap();
            assert!(socket.read().is_err());
            // The client is gone: the program sees it.
            drop(open(server, &sandbox));
        });
        is_closed(server, &sandbox, "/ws").await;
        // A sandbox that ends ends its connections.
        let mut socket = tokio::task::block_in_place(|| open(server, &sandbox));
        let path = format!("/sandboxes/{}", sandbox.id);
        server.request(Method::DELETE, &path).send().await.unwrap();
        tokio::task::block_in_place(|| assert!(socket.read().is_err()));
    });
}

#[test]
fn streams_last_until_the_client_leaves() {
    with_server(ServeOptions::default(), async |server| {
        let sandbox = server.create().await;
        start(server, &sandbox, &[]).await;
        let request = server.request(Method::GET, "/events");
        let response = request.header("Host", host(server, &sandbox)).send().await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let mut events = response.bytes_stream();
        for _ in 0..5 {
            assert!(events.next().await.unwrap().unwrap().starts_with(b"data: tick"));
        }
        drop(events);
        is_closed(server, &sandbox, "/events").await;
        // The same while it waits for an answer that does not come.
        let silent = server.request(Method::GET, "/silence").header("Host", host(server, &sandbox));
        let silent = silent.timeout(Duration::from_millis(200)).send().await;
        assert!(silent.is_err());
        is_closed(server, &sandbox, "/silence").await;
    });
}

#[test]
fn a_page_of_a_program_uses_its_own_port_only() {
    with_server(ServeOptions::default(), async |server| {
        let sandbox = server.create().await;
        start(server, &sandbox, &[]).await;
        let own = format!("http://{}", host(server, &sandbox));
        let same = ("Sec-Fetch-Site", "same-origin");
        let status =
            async |headers: &[(&str, &str)]| get(server, &sandbox, "/headers", headers).await.0;
        assert_eq!(status(&[("Origin", &own), same]).await, 200);
        assert_eq!(status(&[("Origin", "http://evil.example")]).await, 403);
        let other = server.create().await;
        let id = other.id.as_str();
        assert_eq!(status(&[("Origin", &own), same, ("E2b-Sandbox-Id", id)]).await, 403);
        let data = format!("49983-{}.localhost:{}", sandbox.id, server.address.port());
        let page = format!("http://{data}");
        let request = server.request(Method::GET, "/envs").header("Host", &data);
        let answer = request.header("Origin", page).send().await.unwrap();
        assert_eq!(answer.status(), 403);
    });
}

#[test]
fn private_ports_need_a_token_and_masks_hide_the_host() {
    with_server(ServeOptions::default(), async |server| {
        let network =
            json!({ "allowPublicTraffic": false, "maskRequestHost": "a.example:${PORT}" });
        let body = json!({ "templateID": "base", "timeout": 60, "network": network });
        let created = server.request(Method::POST, "/sandboxes").json(&body).send().await.unwrap();
        let created: Value = created.json().await.unwrap();
        let text = |name: &str| created[name].as_str().unwrap().to_owned();
        let sandbox = Created { id: text("sandboxID"), token: text("envdAccessToken") };
        let traffic = text("trafficAccessToken");
        let token = [("e2b-traffic-access-token", traffic.as_str())];
        start(server, &sandbox, &token).await;
        assert_eq!(get(server, &sandbox, "/headers", &[]).await.0, 403);
        let wrong = [("e2b-traffic-access-token", "wrong")];
        assert_eq!(get(server, &sandbox, "/headers", &wrong).await.0, 403);
        let (status, seen) = get(server, &sandbox, "/headers", &token).await;
        assert_eq!(status, 200);
        assert!(seen.contains("('host', 'a.example:8080')"), "{seen}");
        assert!(!seen.contains(&traffic), "{seen}");
    });
}

#[test]
fn a_request_resumes_a_sandbox_whose_creator_wants_that() {
    with_server(ServeOptions::default(), async |server| {
        let create = async |resume: bool| {
            let body = json!({ "templateID": "base", "timeout": 60, "autoPause": true,
                               "autoResume": { "enabled": resume } });
            let created = server.request(Method::POST, "/sandboxes").json(&body).send().await;
            let created: Value = created.unwrap().json().await.unwrap();
            let text = |name: &str| created[name].as_str().unwrap().to_owned();
            Created { id: text("sandboxID"), token: text("envdAccessToken") }
        };
        for resume in [true, false] {
            let sandbox = create(resume).await;
            start(server, &sandbox, &[]).await;
            let path = format!("/sandboxes/{}/timeout", sandbox.id);
            let now = server.request(Method::POST, &path).json(&json!({ "timeout": 0 }));
            assert_eq!(now.send().await.unwrap().status(), 204);
            let health = async || {
                server.to(&sandbox, Method::GET, "/health").send().await.unwrap().status().as_u16()
            };
            let begun = Instant::now();
            while health().await != 502 {
                assert!(begun.elapsed() < Duration::from_secs(20), "it is not paused");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            // Those who may not use it do not wake it.
            let stranger = server.request(Method::GET, "/envs");
            let stranger = stranger.header("E2b-Sandbox-Id", &sandbox.id);
            assert_eq!(stranger.send().await.unwrap().status(), 401);
            assert_eq!(health().await, 502);
            let expected = if resume { 200 } else { 502 };
            assert_eq!(get(server, &sandbox, "/headers", &[]).await.0, expected);
            assert_eq!(health().await, if resume { 204 } else { 502 });
        }
    });
}

#[test]
fn metrics_and_logs_tell_what_a_sandbox_did() {
    with_server(ServeOptions::default(), async |server| {
        let sandbox = server.create().await;
        let work = bash("i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done; exit 3");
        let work = server.stream(&sandbox, "/process.Process/Start", &work).await;
        work.bytes().await.unwrap();
        tokio::time::sleep(Duration::from_millis(1100)).await;
        let ask = async |path: String| -> Value {
            let answer = server.request(Method::GET, &path).send().await.unwrap();
            assert_eq!(answer.status(), 200, "{path}");
            answer.json().await.unwrap()
        };
        let id = &sandbox.id;
        let metrics = ask(format!("/sandboxes/{id}/metrics")).await;
        let busy = metrics.as_array().unwrap().iter().map(|m| m["cpuUsedPct"].as_f64().unwrap());
        assert!(busy.fold(0.0, f64::max) > 0.0, "{metrics}");
        assert!(metrics[0]["cpuCount"].as_u64().unwrap() > 0);
        assert_eq!(ask(format!("/sandboxes/{id}/metrics?start=1&end=2")).await, json!([]));
        let several = ask(format!("/sandboxes/metrics?sandbox_ids={id},unknown")).await;
        assert_eq!(several["sandboxes"].as_object().unwrap().len(), 1);
        let logs = ask(format!("/v2/sandboxes/{id}/logs?level=warn")).await;
        assert_eq!(logs["logs"][0]["fields"]["status"], "exit code 3", "{logs}");
        let logs = ask(format!("/sandboxes/{id}/logs")).await;
        assert_eq!(logs["logEntries"][0]["message"], "sandbox started");
        assert!(logs["logs"][1]["line"].as_str().unwrap().contains("/bin/bash -c"), "{logs}");
        let template = ask("/templates/aliases/base".into()).await;
        assert_eq!(template["templateID"], "base");
        for (path, status) in [
            ("/templates/aliases/none-such".to_owned(), 404),
            ("/sandboxes/metrics".to_owned(), 400),
            (format!("/sandboxes/{id}/metrics?start=5&end=2"), 400),
            (format!("/sandboxes/{id}/metrics?start=-5"), 400),
            (format!("/v2/sandboxes/{id}/logs?limit=x"), 400),
            ("/sandboxes/unknown/metrics".to_owned(), 404),
        ] {
            let answer = server.request(Method::GET, &path).send().await.unwrap();
            assert_eq!(answer.status(), status, "{path}");
        }
        let network = async |body: Value| {
            let request = server.request(Method::PUT, &format!("/sandboxes/{id}/network"));
            request.json(&body).send().await.unwrap().status().as_u16()
        };
        assert_eq!(network(json!({ "denyOut": ["0.0.0.0/0"] })).await, 204);
        let more = json!({ "denyOut": ["0.0.0.0/0"], "allowOut": ["example.com"] });
        assert_eq!(network(more).await, 403);
    });
}
