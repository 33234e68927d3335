//! Bodies as they go out.

use serde_json::json;
use trajectory::{Arguments, ToolCall};

use super::*;

fn sent(request: &Request<'_>) -> Value {
    Value::Object(body("claude-x", request))
}

fn call(id: &str, arguments: Value) -> ToolCall {
    let arguments = match arguments {
        Value::Object(map) => Arguments::Object(map),
        other => Arguments::Malformed { malformed: other.to_string(), why: "no object".into() },
    };
    ToolCall { id: id.into(), name: "execute_bash".into(), arguments }
}

fn result(id: &str, content: Vec<Content>) -> ToolResult {
    ToolResult { call_id: id.into(), name: "execute_bash".into(), content, is_error: false }
}

fn conversation() -> Vec<Message> {
    let picture = Content::Image { media_type: "image/png".into(), data: "aGk=".into() };
    let thought = json!([
        {"type": "thinking", "thinking": "Look.", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "b3BhcXVl"},
        {"type": "text", "text": "smuggled"},
    ]);
    vec![
        Message::System { text: "You have a computer.".into() },
        Message::user("What is there?"),
        Message::Assistant(Assistant {
            text: "I look. ".into(),
            reasoning: "Look.".into(),
            calls: vec![call("a", json!({"command": "ls"})), call("b:1", json!(7))],
            opaque: Some(thought),
            ..Assistant::default()
        }),
        Message::Tool(result("a", vec![Content::text("x.png"), picture])),
        Message::Tool(ToolResult { is_error: true, ..result("b:1", vec![Content::text("")]) }),
        Message::user("Go on."),
        Message::Assistant(Assistant::default()),
        Message::user(" "),
    ]
}

fn tools() -> Vec<ToolSpec> {
    let parameters = json!({"type": "object", "properties": {"command": {"type": "string"}}});
    let tool = |name: &str| ToolSpec {
        name: name.into(),
        description: "Runs it.".into(),
        parameters: parameters.clone(),
    };
    vec![tool("execute_bash"), tool("submit")]
}

#[test]
fn a_conversation_with_thinking_and_tools() {
    let (messages, tools) = (conversation(), tools());
    let sampling = Sampling {
        temperature: Some(0.5),
        top_k: Some(20),
        seed: Some(7),
        min_p: Some(0.25),
        stop: vec!["END".into()],
        thinking: Some(2048),
        ..Sampling::default()
    };
    let request =
        Request { messages: &messages, tools: &tools, sampling: &sampling, max_tokens: 4096 };
    let mut body = sent(&request);
    body.sort_all_objects();
    insta::assert_snapshot!(format!("{body:#}"));
}

#[test]
fn without_thinking_the_temperature_is_sent_and_the_raw_text_goes_back() {
    let message = Assistant {
        raw: Some("```bash\nls\n```".into()),
        text: "x".into(),
        ..Assistant::default()
    };
    let messages = [Message::user("hi"), Message::Assistant(message), Message::user("out")];
    let sampling = Sampling { temperature: Some(0.5), top_p: Some(0.75), ..Sampling::default() };
    let request = Request { messages: &messages, tools: &[], sampling: &sampling, max_tokens: 10 };
    let kept = json!({"type": "ephemeral"});
    let expected = json!({
        "model": "claude-x",
        "max_tokens": 10,
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": kept}]},
            {"role": "assistant", "content": [{"type": "text", "text": "```bash\nls\n```"}]},
            {"role": "user", "content": [{"type": "text", "text": "out", "cache_control": kept}]},
        ],
        "temperature": 0.5,
        "top_p": 0.75,
        "stream": true,
    });
    assert_eq!(sent(&request), expected);
}

#[test]
fn thinking_leaves_room_for_an_answer() {
    assert_eq!(budget_within(2048, 8192), Some(2048));
    assert_eq!(budget_within(16_000, 8192), Some(7168));
    assert_eq!(budget_within(1, 8192), Some(1024));
    assert_eq!(budget_within(4000, 2047), None);
    assert_eq!(budget_within(4000, 10), None);
}

#[test]
fn no_more_than_four_marks_are_set() {
    let mut messages = Vec::new();
    for _ in 0..9 {
        messages.push(Message::user("x"));
        messages.push(Message::Assistant(Assistant { text: "y".into(), ..Assistant::default() }));
    }
    messages.insert(0, Message::System { text: "s".into() });
    messages.insert(1, Message::System { text: "t".into() });
    let (tools, sampling) = (tools(), Sampling::default());
    let request =
        Request { messages: &messages, tools: &tools, sampling: &sampling, max_tokens: 1 };
    assert_eq!(sent(&request).to_string().matches("cache_control").count(), 4);
}
