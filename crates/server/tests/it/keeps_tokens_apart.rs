//! Named tokens: each sees its own sandboxes only and uses no more than its quotas.

use std::time::{Duration, Instant};

use lis_server::{KeyHash, Quotas, ServeOptions, Token, Tokens};
use reqwest::{Method, RequestBuilder, Response};
use sandbox::Runtime;
use serde_json::{Value, json};

use crate::support::{Created, TestServer, bash, with_server};

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
