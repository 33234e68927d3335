//! A field that a server refuses is left out, at once and from then on.

use std::{sync::Arc, time::Duration};

use lis_model::{Endpoint, Error, Model, Request, Sampling};
use serde_json::{Value, json};
use testkit::{Answer, MockServer, Quirk, Received, say};
use trajectory::Message;

use crate::clients::{Client, Recorder, Vendor, endpoint};

async fn ask(
    client: &Client,
    sampling: &Sampling,
    recorder: &Recorder,
) -> Result<lis_model::Response, Error> {
    let messages = [Message::user("Go.")];
    let request = Request { messages: &messages, tools: &[], sampling, max_tokens: 4096 };
    client.complete(&request, recorder).await
}

/// A server like OpenAI's own for its reasoning models.
fn picky(received: &Received) -> Answer {
    let refusal = |message: &str, param: &str| {
        let code = "unsupported_parameter";
        let error = json!({"message": message, "param": param, "code": code});
        Answer::status(400, json!({ "error": error }).to_string())
    };
    let has = |field: &str| received.body.get(field).is_some();
    if has("max_tokens") {
        let words = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.";
        return refusal(words, "max_tokens");
    }
    if has("temperature") {
        let words = "Unsupported value: 'temperature' does not support 0.5 with this model.";
        return refusal(words, "temperature");
    }
    if has("stream_options") {
        let detail =
            json!([{"loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}]);
        return Answer::status(422, json!({ "detail": detail }).to_string());
    }
    say("fine").into()
}

#[tokio::test]
async fn fields_are_renamed_or_dropped_and_not_sent_again() {
    let server = MockServer::answering(picky).unwrap();
    let client = Client::new(Vendor::OpenAi, endpoint(&server)).unwrap();
    let sampling = Sampling { temperature: Some(0.5), seed: Some(7), ..Sampling::default() };
    let recorder = Recorder::default();
    let response = ask(&client, &sampling, &recorder).await.unwrap();
    assert_eq!(response.message.text, "fine");
    let retries = recorder.heard().iter().filter(|line| line.starts_with("retry ")).count();
    assert_eq!(retries, 3);
    assert!(recorder.heard()[0].contains("does not accept `max_tokens`"));
    assert_eq!(server.count(), 4);
    ask(&client, &sampling, &Recorder::default()).await.unwrap();
    assert_eq!(server.count(), 5);
    let body = server.requests()[4].body.clone();
    assert_eq!(body["max_completion_tokens"], 4096);
    assert_eq!(body["seed"], 7);
    let absent = |field: &str| body.get(field).is_none();
    assert!(absent("max_tokens") && absent("temperature") && absent("stream_options"));
}

#[tokio::test]
async fn many_calls_at_once_all_learn() {
    // No request is answered before all have sent the field.
    const CALLS: usize = 16;
    let late = |received: &Received| picky(received).after(Duration::from_millis(200));
    let server = MockServer::answering(late).unwrap();
    let client = Arc::new(Client::new(Vendor::OpenAi, endpoint(&server)).unwrap());
    let asking = (0..CALLS).map(|_| {
        let client = Arc::clone(&client);
        tokio::spawn(async move {
            let sampling = Sampling { temperature: Some(0.5), ..Sampling::default() };
            ask(&client, &sampling, &Recorder::default())
                .await
                .map(|response| response.message.text)
        })
    });
    for asked in asking.collect::<Vec<_>>() {
        assert_eq!(asked.await.unwrap().unwrap(), "fine");
    }
    let first = server.requests().iter().filter(|one| one.body.get("max_tokens").is_some()).count();
    assert!(first > 1, "the calls came one after the other");
}

#[tokio::test]
async fn what_the_user_insists_on_is_sent_or_fails() {
    let server = MockServer::answering(picky).unwrap();
    let extra_body = json!({"temperature": 0.5, "max_tokens": null});
    let extra_body = extra_body.as_object().unwrap().clone();
    let client = Client::new(Vendor::OpenAi, Endpoint { extra_body, ..endpoint(&server) }).unwrap();
    let error = ask(&client, &Sampling::default(), &Recorder::default()).await.unwrap_err();
    assert!(matches!(error, Error::Refused { status: 400, .. }), "{error:?}");
    assert_eq!(server.count(), 1);
}

#[tokio::test]
async fn a_model_that_decides_itself_how_long_to_think() {
    let answer = |received: &Received| match &received.body["thinking"]["type"] {
        Value::String(kind) if kind == "enabled" => Answer::error(
            400,
            "\"thinking.type.enabled\" is not supported for this model. Use \"thinking.type.adaptive\".",
        ),
        _ => say("fine").into(),
    };
    let server = MockServer::answering(answer).unwrap();
    let client = Client::new(Vendor::Anthropic, endpoint(&server)).unwrap();
    let sampling = Sampling { thinking: Some(2000), ..Sampling::default() };
    ask(&client, &sampling, &Recorder::default()).await.unwrap();
    assert_eq!(server.requests()[0].body["thinking"]["budget_tokens"], 2000);
    assert_eq!(server.requests()[1].body["thinking"], json!({"type": "adaptive"}));
}

#[tokio::test]
async fn thinking_goes_back_unless_the_server_refuses_it() {
    let answer = |received: &Received| {
        let back = received.messages().iter().any(|one| one.get("reasoning").is_some());
        if back && received.mentions("strict") {
            let words = "messages.1.assistant.reasoning: property 'messages.1.assistant.reasoning' is unsupported";
            return Answer::status(400, json!({ "message": words }).to_string());
        }
        say("fine").reasoning("so it is").quirk(Quirk::ReasoningAs("reasoning"))
    };
    let server = MockServer::answering(answer).unwrap();
    let client = Client::new(Vendor::OpenAi, endpoint(&server)).unwrap();
    let sampling = Sampling::default();
    for (task, sent) in [("lenient", 2), ("strict", 3)] {
        let mut messages = vec![Message::user(task)];
        for _ in 0..2 {
            let request =
                Request { messages: &messages, tools: &[], sampling: &sampling, max_tokens: 9 };
            let response = client.complete(&request, &Recorder::default()).await.unwrap();
            messages.extend([Message::Assistant(response.message), Message::user("Go on.")]);
        }
        let asked: Vec<_> =
            server.requests().into_iter().filter(|one| one.mentions(task)).collect();
        assert_eq!(asked.len(), sent);
        assert_eq!(asked[1].messages()[1]["reasoning"], "so it is");
        assert_eq!(asked[sent - 1].messages()[1].get("reasoning").is_some(), task == "lenient");
    }
}
