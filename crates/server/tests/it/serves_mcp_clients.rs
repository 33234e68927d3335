//! Clients of the Model Context Protocol: PyPI's `mcp`, unedited, the protocol's own conformance suite, and raw requests.

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use lis_server::{McpOptions, ServeOptions};
use reqwest::{Method, RequestBuilder, Response};
use sandbox_testkit::{setting, skip};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::{TestServer, with_server};

/// Runs a program against a server of its own.
fn runs(mut command: Command, ends_with: &str) {
    with_server(ServeOptions::default(), async |server| {
        for proxy in ["http_proxy", "https_proxy", "all_proxy"] {
            command.env_remove(proxy).env_remove(proxy.to_uppercase());
        }
        let url = format!("http://{}/mcp", server.address);
        // The suite has no variable for the address.
        command.args((ends_with.is_empty()).then_some(["--url", &url]).into_iter().flatten());
        let command = command.env("MCP_URL", &url).stdin(Stdio::null()).kill_on_drop(true);
        let output = command.output().await.unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.ends_with(ends_with), "{text}\n{errors}");
    });
}

#[test]
fn the_python_package() {
    let Some(package) = setting("LIS_TEST_MCP") else {
        return skip("mcp", "LIS_TEST_MCP names no directory with the package mcp");
    };
    let mut command = Command::new("python3");
    command.env("PYTHONPATH", package).args(["-c", include_str!("../clients/mcp_client.py")]);
    runs(command, "done\n");
}

/// Scenarios that fail are listed with their reasons; one that passes and is listed fails the test.
#[test]
fn the_conformance_suite() {
    let Some(package) = setting("LIS_TEST_MCP_CONFORMANCE") else {
        return skip("mcp-conformance", "LIS_TEST_MCP_CONFORMANCE names no directory with it");
    };
    let program = std::path::Path::new(&package)
        .join("node_modules/@modelcontextprotocol/conformance/dist/index.js");
    let expected = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/mcp-conformance.yml");
    let mut command = Command::new("node");
    command.arg(program).args(["server", "--expected-failures", expected]);
    runs(command, "");
}

impl TestServer {
    fn mcp(&self, method: Method) -> RequestBuilder {
        let accepted = "application/json, text/event-stream";
        self.request(method, "/mcp").header("Accept", accepted)
    }

    async fn send_message(&self, session: &str, message: &Value) -> Response {
        self.mcp(Method::POST).header("Mcp-Session-Id", session).json(message).send().await.unwrap()
    }

    /// Opens a session; returns its id.
    async fn open_session(&self) -> String {
        let response = self.mcp(Method::POST).json(&initialize()).send().await.unwrap();
        assert_eq!(response.status(), 200);
        response.headers()["mcp-session-id"].to_str().unwrap().to_owned()
    }

    async fn call_bash(&self, session: &str, id: u64, command: &str) -> Value {
        let response = self.send_message(session, &bash(id, command)).await;
        assert_eq!(response.status(), 200);
        // JSON, or events where the answer took long.
        let text = response.text().await.unwrap();
        let data = text.lines().rev().find_map(|line| line.strip_prefix("data: "));
        serde_json::from_str(data.unwrap_or(&text))
            .unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    async fn count_sandboxes(&self) -> usize {
        sandbox::Runtime::list(&*self.runtime).await.unwrap().len()
    }

    async fn until_sandboxes(&self, count: usize) {
        let begun = Instant::now();
        while self.count_sandboxes().await != count {
            assert!(begun.elapsed() < Duration::from_secs(20), "{}", self.count_sandboxes().await);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn initialize() -> Value {
    let client = json!({ "name": "test", "version": "1" });
    let params =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
    json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params })
}

fn bash(id: u64, command: &str) -> Value {
    let params = json!({ "name": "execute_bash", "arguments": { "command": command } });
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
}

#[test]
fn a_session_has_one_sandbox_until_it_is_deleted() {
    with_server(ServeOptions::default(), async |server| {
        let (one, other) = (server.open_session().await, server.open_session().await);
        assert!(one.len() >= 32 && one != other);
        assert_eq!(server.count_sandboxes().await, 0);
        server.call_bash(&one, 1, "echo one > /tmp/x").await;
        let seen = server.call_bash(&other, 1, "cat /tmp/x || echo none").await;
        assert!(seen.to_string().contains("none"), "{seen}");
        assert_eq!(server.count_sandboxes().await, 2);
        let deleted = server.mcp(Method::DELETE).header("Mcp-Session-Id", &one).send().await;
        assert_eq!(deleted.unwrap().status(), 204);
        assert_eq!(server.count_sandboxes().await, 1, "it is gone when the request is answered");
        assert_eq!(server.send_message(&one, &bash(2, "true")).await.status(), 404);
        server.call_bash(&other, 2, "true").await;
    });
}

#[test]
fn a_client_that_is_gone_takes_its_sandbox_with_it() {
    let mcp = McpOptions { idle_timeout: Duration::from_millis(500), ..McpOptions::default() };
    with_server(ServeOptions { mcp, ..ServeOptions::default() }, async |server| {
        let session = server.open_session().await;
        server.call_bash(&session, 1, "true").await;
        // A call that nobody waits for any more.
        let call = server.mcp(Method::POST).header("Mcp-Session-Id", &session);
        let call = call.json(&bash(2, "sleep 600")).send();
        assert!(tokio::time::timeout(Duration::from_millis(300), call).await.is_err());
        assert_eq!(server.count_sandboxes().await, 1);
        server.until_sandboxes(0).await;
        assert_eq!(server.send_message(&session, &bash(3, "true")).await.status(), 404);
    });
}

#[test]
fn an_open_stream_keeps_a_session() {
    let mcp = McpOptions { idle_timeout: Duration::from_millis(300), ..McpOptions::default() };
    with_server(ServeOptions { mcp, ..ServeOptions::default() }, async |server| {
        let session = server.open_session().await;
        let open = || server.mcp(Method::GET).header("Mcp-Session-Id", &session).send();
        let stream = open().await.unwrap();
        assert_eq!(stream.headers()["content-type"], "text/event-stream");
        assert_eq!(open().await.unwrap().status(), 409, "one stream");
        tokio::time::sleep(Duration::from_millis(700)).await;
        server.call_bash(&session, 1, "true").await;
        drop(stream);
        server.until_sandboxes(0).await;
    });
}

#[test]
fn a_cancelled_call_ends_without_an_answer() {
    with_server(ServeOptions::default(), async |server| {
        let session = server.open_session().await;
        server.call_bash(&session, 1, "true").await;
        let cancelling = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let params = json!({ "requestId": 2 });
            let cancelled =
                json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
            assert_eq!(server.send_message(&session, &cancelled).await.status(), 202);
        };
        let begun = Instant::now();
        let message = bash(2, "sleep 600");
        let (answer, ()) = tokio::join!(server.send_message(&session, &message), cancelling);
        assert!(!answer.text().await.unwrap().contains("result"));
        // The shell is free again.
        server.call_bash(&session, 3, "true").await;
        assert!(begun.elapsed() < Duration::from_secs(10));
    });
}

#[test]
fn limits_are_those_of_the_server() {
    let mcp = McpOptions { max_sessions: 2, ..McpOptions::default() };
    let options = ServeOptions { mcp, max_sandboxes: 1, ..ServeOptions::default() };
    with_server(options, async |server| {
        let (one, other) = (server.open_session().await, server.open_session().await);
        let third = server.mcp(Method::POST).json(&initialize()).send().await.unwrap();
        assert_eq!(third.status(), 429);
        server.call_bash(&one, 1, "true").await;
        let refused = server.call_bash(&other, 1, "true").await;
        let failure = &refused["result"]["_meta"]["llm-in-sandbox/failure"];
        assert_eq!(failure, "infrastructure", "{refused}");
        assert!(refused.to_string().contains("at most 1 sandboxes"), "{refused}");
        let body = json!({ "templateID": "base" });
        let e2b = server.request(Method::POST, "/v2/sandboxes").json(&body).send().await.unwrap();
        assert_eq!(e2b.status(), 429, "one limit for all");
    });
}

#[test]
fn bad_requests_are_refused() {
    let key = Some("secret".to_owned());
    with_server(ServeOptions { api_key: key, ..ServeOptions::default() }, async |server| {
        let with = |name: &str, value: &str| {
            let request = server.mcp(Method::POST).header("X-API-Key", "secret");
            request.header(name, value)
        };
        let status = async |request: RequestBuilder| {
            let response = request.send().await.unwrap();
            let status = response.status().as_u16();
            let body: Value = response.json().await.unwrap();
            assert!(status == 200 || body["error"]["code"].is_i64(), "{status}: {body}");
            status
        };
        let plain = || with("X-Test", "1");
        assert_eq!(status(server.mcp(Method::POST).json(&initialize())).await, 401);
        assert_eq!(status(with("Origin", "http://evil.example").json(&initialize())).await, 403);
        assert_eq!(status(with("Host", "evil.example").json(&initialize())).await, 403);
        let bare = server.request(Method::POST, "/mcp").header("X-API-Key", "secret");
        assert_eq!(
            status(bare.header("Accept", "application/json").json(&initialize())).await,
            406
        );
        let version = with("MCP-Protocol-Version", "2026-07-28");
        assert_eq!(status(version.json(&initialize())).await, 400);
        assert_eq!(status(plain().body("{").header("Content-Type", "application/json")).await, 400);
        assert_eq!(status(plain().json(&json!([initialize()]))).await, 400);
        assert_eq!(status(plain().json(&bash(1, "true"))).await, 400, "no session");
        let unknown = with("Mcp-Session-Id", "unknown");
        assert_eq!(status(unknown.json(&bash(1, "true"))).await, 404);
        assert_eq!(status(plain().json(&"x".repeat(9 << 20))).await, 413);
        assert_eq!(status(plain().json(&initialize())).await, 200);
        assert_eq!(server.count_sandboxes().await, 0);
    });
}
