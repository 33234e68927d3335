//! Bodies as they go out.

use serde_json::json;
use trajectory::{Arguments, ToolResult};

use super::*;

fn sent(model: &str, base_url: &str, request: &Request<'_>) -> Value {
    Value::Object(body(&Endpoint::new(model, base_url), request))
}

fn conversation() -> Vec<Message> {
    let arguments = |text: &str| match json!({ "command": text }) {
        Value::Object(map) => Arguments::Object(map),
        _ => unreachable!(),
    };
    let malformed = Arguments::Malformed { malformed: "{\"comm".into(), why: "cut".into() };
    let call =
        |id: &str, name: &str, arguments| ToolCall { id: id.into(), name: name.into(), arguments };
    let result = |id: &str, content| {
        let call_id = id.into();
        Message::Tool(ToolResult { call_id, name: "execute_bash".into(), content, is_error: false })
    };
    let picture = Content::Image { media_type: "image/png".into(), data: "aGk=".into() };
    vec![
        Message::System { text: "You have a computer.".into() },
        Message::user("What is there?"),
        Message::Assistant(Assistant {
            reasoning: "told by another vendor".into(),
            calls: vec![
                call("a", "execute_bash", arguments("ls")),
                call("b", "bad name!", malformed),
            ],
            raw: Some("<tool_call>...".into()),
            ..Assistant::default()
        }),
        result("a", vec![Content::text("x.png"), picture.clone()]),
        result("b", vec![Content::text("no such tool")]),
        Message::User { content: vec![Content::text("Go on."), picture] },
        Message::Assistant(Assistant { text: "Fine.".into(), ..Assistant::default() }),
    ]
}

fn tools() -> Vec<ToolSpec> {
    let parameters = json!({"type": "object", "properties": {"command": {"type": "string"}}});
    vec![ToolSpec { name: "execute_bash".into(), description: "Runs it.".into(), parameters }]
}

#[test]
fn a_conversation_with_tools() {
    let (messages, tools) = (conversation(), tools());
    let sampling = Sampling {
        temperature: Some(0.5),
        top_p: Some(0.75),
        top_k: Some(20),
        min_p: Some(0.25),
        repetition_penalty: Some(1.5),
        seed: Some(7),
        stop: vec!["END".into()],
        thinking: Some(1024),
        ..Sampling::default()
    };
    let request =
        Request { messages: &messages, tools: &tools, sampling: &sampling, max_tokens: 4096 };
    let mut body = sent("qwen", "http://localhost:8000/v1", &request);
    body.sort_all_objects();
    insta::assert_snapshot!(format!("{body:#}"));
}

#[test]
fn without_tools_calls_go_back_as_raw_text_and_nothing_unset_is_sent() {
    let messages = conversation();
    let sampling = Sampling::default();
    let request =
        Request { messages: &messages[..3], tools: &[], sampling: &sampling, max_tokens: 10 };
    let expected = json!({
        "model": "m",
        "messages": [
            {"role": "system", "content": "You have a computer."},
            {"role": "user", "content": "What is there?"},
            {"role": "assistant", "content": "<tool_call>..."},
        ],
        "max_tokens": 10,
        "stream": true,
        "stream_options": {"include_usage": true},
    });
    assert_eq!(sent("m", "http://localhost:8000/v1", &request), expected);
}

#[test]
fn thinking_goes_back_under_the_name_it_came() {
    for name in ["reasoning_content", "reasoning", "content", ""] {
        let message = Assistant {
            text: "Two.".into(),
            reasoning: "one and one".into(),
            opaque: Some(reasoning_sent_as(name)),
            ..Assistant::default()
        };
        let mut expected = json!({"role": "assistant", "content": "Two."});
        if REASONING.contains(&name) {
            expected[name] = json!("one and one");
        }
        assert_eq!(assistant(&message, &[]), expected);
    }
}

#[test]
fn the_limit_has_the_name_the_server_knows() {
    let name = |model: &str, base_url: &str| limit_name(&Endpoint::new(model, base_url));
    for model in ["o1", "o3-mini", "openai/o4-mini", "gpt-5", "gpt-5-mini-2025-08-07"] {
        assert_eq!(name(model, "http://litellm/v1"), "max_completion_tokens", "{model}");
    }
    for model in ["openai/gpt-oss-120b", "qwen3", "olmo-2", "gpt-4o", "o"] {
        assert_eq!(name(model, "http://localhost:8000/v1"), "max_tokens", "{model}");
    }
    assert_eq!(name("gpt-4o", "https://api.openai.com/v1"), "max_completion_tokens");
}
