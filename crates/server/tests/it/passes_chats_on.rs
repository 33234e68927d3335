//! The gateway: requests and answers pass unchanged, their tokens are recorded, secrets are not.

use std::{sync::Arc, time::Duration};

use lis_server::{
    ChatOptions, FileLimits, FileStore, Gateway, KeyHash, Quotas, ServeOptions, Token,
    TokenRequest, Tokens,
};
use model::{Endpoint, Secret};
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::{Answer, Fault, MockServer, UnusedPort, say};

use crate::support::with_server;

fn options(base_url: String, tokens: TokenRequest, data: &TempDir) -> ServeOptions {
    let files = FileStore::open(data.path().join("files"), FileLimits::default()).unwrap();
    let endpoint = Endpoint {
        api_key: Some(Secret::new("sk-upstream-secret")),
        ..Endpoint::new("mock", base_url)
    };
    let log = data.path().join("tokens.jsonl");
    let gateway = Gateway::new(endpoint, tokens, log, 1 << 20).unwrap();
    let chat =
        ChatOptions { gateway: Some(Arc::new(gateway)), ..ChatOptions::new(Arc::new(files)) };
    let api_key = Some("sk-client-secret".into());
    ServeOptions { chat: Some(chat), api_key, ..ServeOptions::default() }
}

/// The recorded lines, once there are so many.
async fn lines(data: &TempDir, count: usize) -> Vec<Value> {
    let path = data.path().join("tokens.jsonl");
    for _ in 0..500 {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(!text.contains("secret") && !text.contains("Hello"), "{text}");
        if text.lines().count() >= count {
            return text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("fewer than {count} lines");
}

#[test]
fn conversations_pass_unchanged_and_tokens_are_recorded() {
    let data = tempfile::tempdir().unwrap();
    let upstream = MockServer::answering(|received| {
        if received.body["stream"] == json!(true) {
            return say("Hello.").tokens(3, 2).into();
        }
        let body = json!({
            "id": "x", "object": "chat.completion", "prompt_token_ids": [1, 2, 3],
            "choices": [{
                "index": 0, "message": { "role": "assistant", "content": "Hello." },
                "token_ids": [4, 5], "finish_reason": "stop",
                "logprobs": { "content": [{ "token": "a", "logprob": -0.5 }, { "token": "b", "logprob": -1.5 }] },
            }],
            "usage": { "prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5 }, "own": "field",
        });
        Answer::status(200, body.to_string())
    })
    .unwrap();
    with_server(options(upstream.base_url(), TokenRequest::AsSent, &data), async |server| {
        let body = json!({
            "model": "mock", "messages": [{ "role": "user", "content": "Hi" }], "n": 1,
            "tools": [], "return_token_ids": true, "logprobs": true, "unknown": { "kept": [1.5] },
        });
        let ask = |body: &Value| {
            let request = server.request(Method::POST, "/v1/chat/completions").json(body);
            request.bearer_auth("sk-client-secret").send()
        };
        let answer = ask(&body).await.unwrap();
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.json::<Value>().await.unwrap()["own"], "field");
        let received = upstream.requests();
        assert_eq!(received[0].body, body);
        assert_eq!(received[0].header("authorization"), Some("Bearer sk-upstream-secret"));
        let lines = lines(&data, 1).await;
        assert_eq!(lines[0]["prompt_token_ids"], json!([1, 2, 3]));
        assert_eq!(lines[0]["choices"][0]["token_ids"], json!([4, 5]));
        assert_eq!(lines[0]["choices"][0]["logprobs"], json!([-0.5, -1.5]));
        assert_eq!((&lines[0]["caller"], &lines[0]["complete"]), (&json!("default"), &json!(true)));
        // Streams as well.
        let mut body = body.clone();
        body["stream"] = json!(true);
        let answer = ask(&body).await.unwrap();
        assert_eq!(answer.headers()["content-type"], "text/event-stream");
        let text = answer.text().await.unwrap();
        assert!(text.contains("Hel") && text.trim_end().ends_with("data: [DONE]"), "{text}");
        let models = server.request(Method::GET, "/v1/models").bearer_auth("sk-client-secret");
        let models: Value = models.send().await.unwrap().json().await.unwrap();
        assert_eq!(models["data"][0]["id"], "mock");
    });
}

#[test]
fn tokens_are_requested_where_the_operator_says_so() {
    let data = tempfile::tempdir().unwrap();
    let upstream = MockServer::answering(|_| say("Hello.")).unwrap();
    with_server(options(upstream.base_url(), TokenRequest::Added, &data), async |server| {
        for (path, logprobs) in
            [("/v1/chat/completions", json!(true)), ("/v1/completions", json!(0))]
        {
            let body = json!({ "messages": [{ "role": "user", "content": "Hi" }], "prompt": [1] });
            let request = server.request(Method::POST, path).bearer_auth("sk-client-secret");
            request.json(&body).send().await.unwrap();
            let received = upstream.requests().pop().unwrap().body;
            assert_eq!(received["return_token_ids"], json!(true));
            assert_eq!((&received["logprobs"], &received["model"]), (&logprobs, &json!("mock")));
        }
    });
}

#[test]
fn failures_of_the_models_server_are_told_apart() {
    let data = tempfile::tempdir().unwrap();
    let upstream = MockServer::scripted([
        Answer::error(429, "slow down"),
        Answer::error(401, "who are you?"),
        Answer::error(400, "too long"),
    ])
    .unwrap();
    let body = json!({ "model": "mock", "messages": [{ "role": "user", "content": "Hi" }] });
    with_server(options(upstream.base_url(), TokenRequest::AsSent, &data), async |server| {
        for status in [429, 502, 400] {
            let request = server.request(Method::POST, "/v1/chat/completions").json(&body);
            let answer = request.bearer_auth("sk-client-secret").send().await.unwrap();
            assert_eq!(answer.status(), status);
            assert!(answer.json::<Value>().await.unwrap()["error"].is_object());
        }
    });
    let (data, port) = (tempfile::tempdir().unwrap(), UnusedPort::new().unwrap());
    with_server(options(port.base_url().unwrap(), TokenRequest::AsSent, &data), async |server| {
        let request = server.request(Method::POST, "/v1/chat/completions").json(&body);
        let answer = request.bearer_auth("sk-client-secret").send().await.unwrap();
        assert_eq!(answer.status(), 502);
        assert_eq!(answer.json::<Value>().await.unwrap()["error"]["type"], "server_error");
    });
}

#[test]
fn what_is_passed_on_counts_toward_the_quota() {
    let data = tempfile::tempdir().unwrap();
    let upstream = MockServer::answering(|_| say("Hello.").tokens(3, 2)).unwrap();
    let token = |name: &str, quotas: Quotas| Token {
        name: name.into(),
        key: KeyHash::of(name.as_bytes()),
        quotas,
    };
    let few = Quotas { model_tokens_per_day: Some(3), ..Quotas::default() };
    let cheap = Quotas { model_cost_per_day: Some(1.0), ..Quotas::default() };
    let tokens = Tokens::new(vec![token("few", few), token("cheap", cheap)]).unwrap();
    let options = options(upstream.base_url(), TokenRequest::AsSent, &data);
    let options = ServeOptions { tokens, api_key: None, ..options };
    with_server(options, async |server| {
        let ask = async |key: &str, model: &str| {
            let body = json!({
                "model": model, "stream": true, "messages": [{ "role": "user", "content": "Hi" }],
            });
            let request = server.request(Method::POST, "/v1/chat/completions").json(&body);
            let answer = request.bearer_auth(key).send().await.unwrap();
            (answer.status().as_u16(), answer.text().await.unwrap())
        };
        let (status, text) = ask("few", "another").await;
        assert_eq!(status, 404, "{text}");
        let (status, text) = ask("cheap", "mock").await;
        assert_eq!(status, 403, "{text}");
        assert!(upstream.requests().is_empty());
        let (status, text) = ask("few", "mock").await;
        assert_eq!(status, 200, "{text}");
        assert!(text.contains("Hel") && text.contains("[DONE]"), "{text}");
        // The client did not ask for it.
        assert!(!text.contains("prompt_tokens"), "{text}");
        let asked = &upstream.requests()[0].body;
        assert_eq!(asked["stream_options"], json!({ "include_usage": true }));
        assert_eq!(lines(&data, 1).await[0]["usage"]["prompt_tokens"], 3);
        let (status, text) = ask("few", "mock").await;
        assert_eq!(status, 429, "{text}");
    });
}

#[test]
fn an_answer_that_breaks_off_is_passed_on_as_such_and_charged() {
    let data = tempfile::tempdir().unwrap();
    let upstream = MockServer::answering(|received| {
        let answer = say("Hello to all of you, my friends.").tokens(3, 9);
        let cut = if received.body["stream"] == json!(true) { 4 } else { 5 };
        answer.every(Duration::from_millis(5)).fault(Fault::CutAfter(cut))
    })
    .unwrap();
    with_server(options(upstream.base_url(), TokenRequest::AsSent, &data), async |server| {
        for stream in [true, false] {
            let body = json!({
                "model": "mock", "stream": stream, "messages": [{ "role": "user", "content": "Hi" }],
            });
            let request = server.request(Method::POST, "/v1/chat/completions").json(&body);
            let mut answer = request.bearer_auth("sk-client-secret").send().await.unwrap();
            assert_eq!(answer.status(), 200);
            let mut text = String::new();
            let cut = loop {
                match answer.chunk().await {
                    Ok(Some(piece)) => text += &String::from_utf8_lossy(&piece),
                    Ok(None) => break false,
                    Err(_) => break true,
                }
            };
            assert!(cut && !text.is_empty() && !text.contains("[DONE]"), "{stream}: {text}");
        }
        let lines = lines(&data, 2).await;
        assert!(lines.iter().all(|line| line["complete"] == json!(false)), "{lines:?}");
        // The server goes on.
        let models = server.request(Method::GET, "/v1/models").bearer_auth("sk-client-secret");
        assert_eq!(models.send().await.unwrap().status(), 200);
    });
}

#[test]
fn a_full_disk_for_the_token_log_disturbs_no_answer() {
    let data = tempfile::tempdir().unwrap();
    let log = data.path().join("tokens.jsonl");
    std::os::unix::fs::symlink("/dev/full", &log).unwrap();
    let upstream = MockServer::answering(|_| say("Hello.").tokens(3, 2)).unwrap();
    let quotas = Quotas { model_tokens_per_day: Some(8), ..Quotas::default() };
    let token = Token { name: "few".into(), key: KeyHash::of(b"few"), quotas };
    let options = options(upstream.base_url(), TokenRequest::AsSent, &data);
    let tokens = Tokens::new(vec![token]).unwrap();
    with_server(ServeOptions { tokens, api_key: None, ..options }, async |server| {
        let ask = async || {
            let body =
                json!({ "model": "mock", "messages": [{ "role": "user", "content": "Hi" }] });
            let request = server.request(Method::POST, "/v1/chat/completions").json(&body);
            let answer = request.bearer_auth("few").send().await.unwrap();
            (answer.status().as_u16(), answer.text().await.unwrap())
        };
        let (status, text) = ask().await;
        assert!(status == 200 && text.contains("Hello."), "{text}");
        std::fs::remove_file(&log).unwrap();
        assert_eq!(ask().await.0, 200);
        assert_eq!(lines(&data, 1).await[0]["usage"]["prompt_tokens"], 3);
        // What could not be recorded is charged all the same.
        assert_eq!(ask().await.0, 429);
    });
}

#[test]
fn a_client_that_leaves_ends_the_call_and_is_charged() {
    let data = tempfile::tempdir().unwrap();
    // It would take a minute.
    let words = "word ".repeat(600);
    let upstream =
        MockServer::answering(move |_| say(words.clone()).every(Duration::from_millis(100)))
            .unwrap();
    let quotas = Quotas { model_tokens_per_day: Some(1), ..Quotas::default() };
    let token = Token { name: "few".into(), key: KeyHash::of(b"few"), quotas };
    let options = options(upstream.base_url(), TokenRequest::AsSent, &data);
    let tokens = Tokens::new(vec![token]).unwrap();
    let options = ServeOptions { tokens, api_key: None, ..options };
    with_server(options, async |server| {
        let body = json!({
            "model": "mock", "stream": true, "messages": [{ "role": "user", "content": "Hi" }],
        });
        let request = || {
            let request = server.request(Method::POST, "/v1/chat/completions").json(&body);
            request.bearer_auth("few").send()
        };
        let mut streaming = request().await.unwrap();
        assert_eq!(streaming.status(), 200);
        assert!(streaming.chunk().await.unwrap().is_some());
        assert_eq!(upstream.open(), 1);
        drop(streaming);
        let begun = std::time::Instant::now();
        while upstream.open() > 0 {
            assert!(begun.elapsed() < Duration::from_secs(20), "the model still generates");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // By an estimate: there was no usage yet.
        assert_eq!(lines(&data, 1).await.len(), 1);
        assert_eq!(request().await.unwrap().status(), 429);
        assert_eq!(upstream.count(), 1);
    });
}
