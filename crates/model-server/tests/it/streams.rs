//! The events of a stream, one by one.

use std::time::Duration;

use lis_model_server::{ServeOptions, Served};
use model::{Delta, Error, Listener, Model, Request, Response};
use serde_json::{Value, json};
use testkit::{ScriptedModel, Step, say};
use tokio::io::AsyncWriteExt;
use trajectory::Usage;

use crate::support::{Endless, Server, chat, question, read_until};

fn chunks(events: &[String]) -> Vec<Value> {
    let (done, chunks) = events.split_last().unwrap();
    assert_eq!(done, "[DONE]");
    chunks.iter().map(|event| serde_json::from_str(event).unwrap()).collect()
}

#[tokio::test]
async fn a_stream_has_the_parts_clients_expect() {
    let turn = || say("four").reasoning("two and two").tokens(9, 4);
    let server = Server::of(ScriptedModel::answering(move |_| turn())).await;
    let got = server.ask(&question(json!({ "stream": true }))).await;
    assert_eq!((got.status, got.header("content-type")), (200, Some("text/event-stream")));
    let chunks = chunks(&got.events());
    let delta = |at: usize| &chunks[at]["choices"][0]["delta"];
    assert_eq!(*delta(0), json!({ "role": "assistant", "content": "" }));
    assert_eq!(*delta(1), json!({ "reasoning_content": "two and two" }));
    assert_eq!(*delta(2), json!({ "content": "four" }));
    assert_eq!(*delta(3), json!({}));
    let finishes: Vec<_> =
        chunks.iter().map(|chunk| &chunk["choices"][0]["finish_reason"]).collect();
    assert_eq!(finishes, [&Value::Null, &Value::Null, &Value::Null, &json!("stop")]);
    for chunk in &chunks {
        assert_eq!(chunk["object"], "chat.completion.chunk");
        assert_eq!((&chunk["id"], &chunk["model"]), (&chunks[0]["id"], &json!("scripted")));
        assert!(chunk.get("usage").is_none() && chunk["created"].as_u64().unwrap() > 1 << 30);
    }
}

#[tokio::test]
async fn the_count_comes_last_where_it_is_wanted() {
    let usage = Usage { input: 9, cached: 5, output: 4, reasoning: 1, ..Usage::default() };
    let server = Server::of(ScriptedModel::answering(move |_| say("four").usage(usage))).await;
    let options = json!({ "include_usage": true });
    let got = server.ask(&question(json!({ "stream": true, "stream_options": options }))).await;
    let chunks = chunks(&got.events());
    let (last, before) = chunks.split_last().unwrap();
    assert!(
        before.iter().all(|chunk| chunk["usage"] == Value::Null && chunk.get("usage").is_some())
    );
    assert_eq!(last["choices"], json!([]));
    let expected = json!({
        "prompt_tokens": 9,
        "completion_tokens": 4,
        "total_tokens": 13,
        "prompt_tokens_details": { "cached_tokens": 5 },
        "completion_tokens_details": { "reasoning_tokens": 1 },
    });
    assert_eq!(last["usage"], expected);
    let whole = server.ask(&question(json!({}))).await.json();
    assert_eq!(whole["usage"], expected);
    assert_eq!(whole["object"], "chat.completion");
}

#[tokio::test]
async fn a_failure_before_the_first_word_is_a_status() {
    let refused = Error::Refused { status: 418, message: "tea only".into() };
    let server = Server::of(ScriptedModel::new([Step::Error(refused)])).await;
    let got = server.ask(&question(json!({ "stream": true }))).await;
    assert_eq!(got.status, 418);
    assert!(got.error()["message"].as_str().unwrap().contains("tea only"));
}

/// Says something, then does something else.
struct Moody(fn() -> Result<(), Error>);

impl Model for Moody {
    fn name(&self) -> &str {
        "scripted"
    }

    async fn complete(&self, _: &Request<'_>, listener: &dyn Listener) -> Result<Response, Error> {
        listener.on_delta(Delta::Text("word"));
        self.0()?;
        listener.on_delta(Delta::Retry { attempt: 1, wait: Duration::ZERO, why: "again" });
        listener.on_delta(Delta::Text("other"));
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_failure_in_the_middle_ends_the_stream_with_an_error() {
    let cut: fn() -> Result<(), Error> = || Err(Error::Cut("gone".into()));
    let again: fn() -> Result<(), Error> = || Ok(());
    let panicking: fn() -> Result<(), Error> = || panic!("on purpose");
    for (mood, words) in [(cut, "gone"), (again, "discard"), (panicking, "failed")] {
        let server = Server::of(Moody(mood)).await;
        let got = server.ask(&question(json!({ "stream": true }))).await;
        let events = got.events();
        assert!(events.iter().any(|event| event.contains("\"word\"")), "{events:?}");
        let last: Value = serde_json::from_str(events.last().unwrap()).unwrap();
        let message = last["error"]["message"].as_str().unwrap();
        assert!(message.contains(words), "{message}");
        assert!(!got.body.contains("other"), "{got:?}");
    }
}

#[tokio::test]
async fn a_model_that_panics_is_a_failure_of_one_request() {
    let server = Server::of(Moody(|| panic!("on purpose"))).await;
    assert_eq!(server.ask(&question(json!({}))).await.status, 500);
    assert_eq!(server.get("/health").await.status, 200);
}

#[tokio::test]
async fn silence_is_bridged_by_comments() {
    let options = ServeOptions { heartbeat: Duration::from_millis(20), ..ServeOptions::default() };
    let model = ScriptedModel::new([Step::Hang]);
    let server = Server::with(vec![Served::new(model, 9)], options.clone()).await;
    let mut stream = server.connect().await;
    let body = question(json!({ "stream": true })).to_string();
    stream.write_all(chat(&body, "").as_bytes()).await.unwrap();
    let read = read_until(&mut stream, ": still writing\n\n").await;
    assert!(read.starts_with("HTTP/1.1 200"), "{read}");
    let server = Server::with(vec![Served::new(Endless::default(), 9)], options).await;
    let mut stream = server.connect().await;
    stream.write_all(chat(&body, "").as_bytes()).await.unwrap();
    let read = read_until(&mut stream, ": still writing\n\n").await;
    assert!(read.contains("\"word\""), "{read}");
}
