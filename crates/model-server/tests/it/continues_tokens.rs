//! Completions with token ids: what samplers of rollouts send.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use lis_model_server::{ServeOptions, Served, TokenModel, TokenText};
use sampling::{OnToken, SampleEnd, SampleError, SampleRequest, Sampled, Sampler as SamplerTrait};
use serde_json::{Value, json};
use testkit::{ScriptedModel, say};
use tokio::io::AsyncWriteExt;

use crate::support::{Got, Server, read_until, wait_for};

/// The token that ends responses.
const END: u32 = 0;

/// Tokens are the bytes of UTF-8, shifted by one.
struct Bytes;

impl TokenText for Bytes {
    fn bytes(&self, token: u32) -> Vec<u8> {
        token.checked_sub(1).and_then(|byte| u8::try_from(byte).ok()).into_iter().collect()
    }

    fn ends(&self) -> Vec<u32> {
        vec![END]
    }
}

/// Continues every prompt with the same text, token by token.
#[derive(Clone, Default)]
struct Fixed {
    text: &'static str,
    pause: Duration,
    running: Arc<AtomicUsize>,
}

struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl SamplerTrait for Fixed {
    fn context(&self) -> usize {
        100
    }

    async fn sample(&self, request: SampleRequest) -> Result<Sampled, SampleError> {
        self.sample_with(request, Box::new(|_, _| {})).await
    }

    async fn sample_with(
        &self,
        request: SampleRequest,
        mut on_token: OnToken,
    ) -> Result<Sampled, SampleError> {
        if request.tokens.len() >= 100 {
            return Err(SampleError::TooLong { tokens: request.tokens.len(), context: 100 });
        }
        if let Some(&token) = request.tokens.iter().find(|token| **token > 256) {
            return Err(SampleError::UnknownToken { token, vocabulary: 257 });
        }
        self.running.fetch_add(1, Ordering::SeqCst);
        let _running = Running(self.running.clone());
        let all = self.text.bytes().map(|byte| u32::from(byte) + 1).chain([END]);
        let mut sampled =
            Sampled { tokens: vec![], logprobs: vec![], versions: vec![], end: SampleEnd::Length };
        for token in all.take(request.max_tokens) {
            tokio::time::sleep(self.pause).await;
            sampled.tokens.push(token);
            sampled.logprobs.push(-0.5);
            on_token(token, -0.5);
            if request.stop_tokens.contains(&token) {
                sampled.end = SampleEnd::Token;
                break;
            }
        }
        Ok(sampled)
    }

    fn release(&self, _: u64) {}
}

async fn server_of(sampler: Fixed) -> Server {
    let model = ScriptedModel::answering(|_| say("hi")).named("tokens");
    let tokens = Some(TokenModel::new(sampler, Bytes));
    let chat_only = ScriptedModel::answering(|_| say("hi")).named("chat");
    let models = vec![Served { tokens, ..Served::new(model, 100) }, Served::new(chat_only, 100)];
    Server::with(models, ServeOptions::default()).await
}

async fn server() -> Server {
    server_of(Fixed { text: "né", ..Fixed::default() }).await
}

fn post(body: &Value) -> String {
    let body = body.to_string();
    format!(
        "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

async fn ask(server: &Server, more: Value) -> Got {
    let mut body = json!({ "prompt": [5, 6], "max_tokens": 10 });
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    server.send(post(&body)).await
}

#[tokio::test]
async fn ids_go_in_and_come_out_with_their_logprobs() {
    let server = server().await;
    let shown =
        json!({ "return_token_ids": true, "logprobs": 1, "return_tokens_as_token_ids": true });
    let got = ask(&server, shown).await;
    assert_eq!(got.status, 200, "{got:?}");
    let got = got.json();
    assert_eq!((&got["object"], &got["model"]), (&json!("text_completion"), &json!("tokens")));
    let choice = &got["choices"][0];
    assert_eq!(choice["prompt_token_ids"], json!([5, 6]));
    assert_eq!(choice["token_ids"], json!([111, 196, 170, END]));
    assert_eq!(choice["logprobs"]["token_logprobs"], json!([-0.5, -0.5, -0.5, -0.5]));
    assert_eq!(choice["logprobs"]["tokens"][0], "token_id:111");
    assert_eq!((&choice["text"], &choice["finish_reason"]), (&json!("né"), &json!("stop")));
    assert_eq!(choice["stop_reason"], END);
    assert_eq!(
        got["usage"],
        json!({ "prompt_tokens": 2, "completion_tokens": 4, "total_tokens": 6 })
    );
    let plain = ask(&server, json!({ "max_tokens": 2 })).await.json();
    let choice = &plain["choices"][0];
    assert_eq!(choice["finish_reason"], "length");
    // Half a character is not text.
    assert_eq!(choice["text"], "n\u{fffd}");
    assert!(choice.get("token_ids").is_none() && choice["logprobs"].is_null());
}

#[tokio::test]
async fn a_stream_has_the_same_content() {
    let sampler = Fixed { text: "né", pause: Duration::from_millis(2), ..Fixed::default() };
    let server = server_of(sampler).await;
    let shown = json!({
        "stream": true, "return_token_ids": true, "logprobs": 0,
        "stream_options": { "include_usage": true }
    });
    let got = ask(&server, shown).await;
    assert_eq!(got.header("content-type"), Some("text/event-stream"));
    let mut events = got.events();
    assert_eq!(events.pop().as_deref(), Some("[DONE]"));
    let events: Vec<Value> =
        events.iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    assert_eq!(events.last().unwrap()["usage"]["completion_tokens"], 4);
    let choices = || events.iter().filter_map(|event| event["choices"].get(0));
    let all = |field: &str| -> Vec<Value> {
        choices()
            .filter_map(|choice| choice.pointer(field)?.as_array())
            .flatten()
            .cloned()
            .collect()
    };
    assert_eq!(all("/token_ids"), [111, 196, 170, END]);
    assert_eq!(all("/logprobs/token_logprobs").len(), 4);
    assert_eq!(all("/prompt_token_ids"), [5, 6]);
    let text: String = choices().map(|choice| choice["text"].as_str().unwrap()).collect();
    assert_eq!(text, "né");
    let last = choices().next_back().unwrap();
    assert_eq!((&last["finish_reason"], &last["stop_reason"]), (&json!("stop"), &json!(END)));
}

#[tokio::test]
async fn ends_are_the_clients_choice() {
    let server = server().await;
    let ids = |more: Value| {
        let server = &server;
        async move { ask(server, more).await.json()["choices"][0]["token_ids"].clone() }
    };
    let stopped = ids(json!({ "return_token_ids": true, "stop_token_ids": [196] })).await;
    assert_eq!(stopped, json!([111, 196]));
    let stopped = ask(&server, json!({ "stop_token_ids": [196] })).await.json();
    assert_eq!(stopped["choices"][0]["text"], "n", "what ends a response is not its text");
    let ignoring = json!({ "return_token_ids": true, "ignore_eos": true });
    assert_eq!(ids(ignoring).await, json!([111, 196, 170, END]));
}

#[tokio::test]
async fn errors_are_openais() {
    let server = server().await;
    for (more, status, param) in [
        (json!({ "prompt": "text" }), 400, json!("prompt")),
        (json!({ "prompt": [900] }), 400, json!("prompt")),
        (json!({ "prompt": vec![1; 100] }), 400, json!("prompt")),
        (json!({ "prompt": vec![1; 100], "stream": true }), 400, json!("prompt")),
        (json!({ "model": "none" }), 404, json!("model")),
        (json!({ "model": "chat" }), 404, Value::Null),
    ] {
        let got = ask(&server, more.clone()).await;
        assert_eq!((got.status, &got.error()["param"]), (status, &param), "{more}");
    }
    let got = ask(&server, json!({ "prompt": vec![1; 100] })).await;
    assert_eq!(got.error()["code"], "context_length_exceeded");
    let body =
        json!({ "messages": [{ "role": "user", "content": "Hi" }], "return_token_ids": true });
    let got = server.ask(&body).await;
    assert_eq!((got.status, &got.error()["param"]), (400, &json!("return_token_ids")));
}

#[tokio::test]
async fn the_context_is_listed() {
    let server = server().await;
    let listed = server.get("/v1/models").await.json();
    assert_eq!(listed["data"][0]["max_model_len"], 100);
    assert!(listed["data"][1].get("max_model_len").is_none());
    assert_eq!(server.get("/v1/models/tokens").await.json()["max_model_len"], 100);
}

#[tokio::test]
async fn a_client_that_leaves_stops_the_work() {
    let sampler = Fixed { text: "long", pause: Duration::from_millis(50), ..Fixed::default() };
    let running = sampler.running.clone();
    let server = server_of(sampler).await;
    let mut stream = server.connect().await;
    let body = json!({ "prompt": [1], "max_tokens": 10, "stream": true });
    stream.write_all(post(&body).as_bytes()).await.unwrap();
    read_until(&mut stream, "data: ").await;
    assert_eq!(running.load(Ordering::SeqCst), 1);
    drop(stream);
    wait_for("the response is abandoned", || running.load(Ordering::SeqCst) == 0).await;
}
