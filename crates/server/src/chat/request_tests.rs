//! Bodies as clients send them.

use axum::http::StatusCode;

use super::*;

fn asked(more: Value) -> Result<ChatRequest, ApiError> {
    let mut body = json!({ "messages": [{ "role": "user", "content": "Hi" }] });
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    parse(body.to_string().as_bytes())
}

#[test]
fn what_cannot_be_honoured_is_refused_by_name() {
    for (key, value) in [
        ("n", json!(2)),
        ("tools", json!([{ "type": "function", "function": { "name": "f" } }])),
        ("tool_choice", json!("required")),
        ("functions", json!([{}])),
        ("logprobs", json!(true)),
        ("top_logprobs", json!(3)),
        ("logit_bias", json!({ "1": 2 })),
        ("response_format", json!({ "type": "json_schema", "json_schema": {} })),
        ("stop", json!(["x"])),
        ("store", json!(true)),
        ("presence_penalty", json!(0.5)),
        ("audio", json!({})),
        ("modalities", json!(["text", "audio"])),
        ("reasoning_effort", json!("high")),
        ("no_such_parameter", json!(1)),
    ] {
        let error = asked(json!({ key: value })).unwrap_err();
        assert_eq!(error.status(), StatusCode::BAD_REQUEST, "{key}");
        let told = &error.json()["error"];
        assert_eq!((&told["param"], &told["code"]), (&json!(key), &json!("unsupported_parameter")));
    }
}

#[test]
fn what_asks_for_nothing_is_accepted() {
    let more = json!({
        "n": 1, "tools": [], "tool_choice": "auto", "logprobs": false, "top_logprobs": 0, "logit_bias": {},
        "response_format": { "type": "text" }, "store": false, "presence_penalty": 0, "frequency_penalty": 0.0,
        "user": "ann", "seed": -1, "stop": null, "service_tier": "auto", "audio": null, "temperature": 0.5,
        "max_completion_tokens": 100, "metadata": { "a": "b" }, "stream": true, "sandbox": "new",
    });
    let chat = asked(more).unwrap();
    assert_eq!((chat.sampling.temperature, chat.max_tokens), (Some(0.5), Some(100)));
    assert_eq!(chat.sandbox, Some(SandboxChoice::New));
    assert_eq!(chat.metadata["a"], "b");
    assert!(matches!(chat.delivery, Delivery::Stream(_)));
}

#[test]
fn instructions_become_part_of_the_task() {
    let messages = json!([
        { "role": "system", "content": "Be brief." },
        { "role": "user", "content": "One" },
        { "role": "assistant", "content": "1" },
        { "role": "developer", "content": [{ "type": "text", "text": "Be exact." }] },
        { "role": "user", "content": [{ "type": "text", "text": "Two" }] },
    ]);
    let chat = asked(json!({ "messages": messages })).unwrap();
    let last = Message::User {
        content: vec![Content::text("Be brief.\n\nBe exact."), Content::text("Two")],
    };
    assert_eq!(chat.messages.len(), 3);
    assert_eq!(chat.messages.last(), Some(&last));
}

#[test]
fn files_are_named_by_id_or_sent_along() {
    let part = |file: Value| {
        json!([{ "role": "user", "content": [
            { "type": "text", "text": "Look" }, { "type": "file", "file": file },
        ]}])
    };
    let file = |value: Value| {
        asked(json!({ "messages": part(value) })).map(|mut chat| chat.files.remove(0))
    };
    let sent = file(json!({ "file_data": "data:text/plain;base64,aGk=", "filename": "a.txt" }));
    let sent = sent.unwrap();
    assert_eq!(
        (sent.content, sent.name.as_deref()),
        (FileContent::Bytes(b"hi".into()), Some("a.txt"))
    );
    let plain = file(json!({ "file_data": "aGk=" })).unwrap();
    assert_eq!(plain.content, FileContent::Bytes(b"hi".into()));
    let stored = file(json!({ "file_id": "file-1" })).unwrap();
    assert_eq!(stored.content, FileContent::Stored("file-1".into()));
    for bad in [
        json!({}),
        json!({ "file_id": "x", "file_data": "aGk=" }),
        json!({ "file_data": "?" }),
        json!({ "file_data": "data:text/plain,hi" }),
    ] {
        assert!(file(bad.clone()).is_err(), "{bad}");
    }
}

#[test]
fn conversations_that_make_no_sense_are_refused() {
    for messages in [
        json!([]),
        json!([{ "role": "system", "content": "x" }]),
        json!([{ "role": "user", "content": "x" }, { "role": "assistant", "content": "y" }]),
        json!([{ "role": "tool", "tool_call_id": "1", "content": "x" }, { "role": "user", "content": "x" }]),
        json!([{ "role": "user", "content": [{ "type": "input_audio", "input_audio": {} }] }]),
        json!([{ "role": "assistant", "tool_calls": [{}] }, { "role": "user", "content": "x" }]),
        json!([{ "role": "user", "content": [{ "type": "image_url", "image_url": { "url": "http://10.0.0.1/" } }] }]),
    ] {
        assert!(asked(json!({ "messages": messages })).is_err(), "{messages}");
    }
    for sandbox in ["", "../../etc", "short", &"x".repeat(65)] {
        assert!(asked(json!({ "sandbox": sandbox })).is_err(), "{sandbox}");
    }
}
