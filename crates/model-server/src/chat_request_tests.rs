//! Bodies as clients send them.

use openai_wire::parameters::{StreamUsage, UNLIMITED_TOP_K};
use trajectory::Arguments;

use super::*;

fn asked(more: Value) -> Result<ChatRequest, ApiError> {
    let mut body = json!({ "messages": [{ "role": "user", "content": "Hi" }] });
    for (key, value) in more.as_object().into_iter().flatten() {
        body[key] = value.clone();
    }
    parse(body.to_string().as_bytes())
}

/// The field that is at fault.
fn fault(more: Value) -> String {
    let shown = more.to_string();
    let error = asked(more).err().unwrap_or_else(|| panic!("taken: {shown}")).json();
    let (param, message) = (&error["error"]["param"], &error["error"]["message"]);
    let param = param.as_str().unwrap_or_else(|| panic!("{error}")).to_owned();
    assert!(message.as_str().is_some_and(|message| message.starts_with(&param)), "{error}");
    param
}

fn said(messages: Value) -> Result<Vec<Message>, ApiError> {
    asked(json!({ "messages": messages })).map(|chat| chat.messages)
}

#[test]
fn a_small_question_has_sensible_defaults() {
    let chat = asked(json!({ "unheard_of": { "x": 1 }, "temperature": null })).unwrap();
    assert_eq!(chat.messages, [Message::user("Hi")]);
    assert_eq!((chat.choice, chat.parallel), (Choice::Auto, Parallel::Many));
    assert_eq!((chat.delivery, chat.max_tokens), (Delivery::Whole, None));
    assert_eq!(chat.sampling, Sampling::default());
    assert!(chat.model.is_empty() && chat.tools.is_empty());
}

#[test]
fn sampling_is_read() {
    let chat = asked(json!({
        "temperature": 0, "top_p": 0.5, "top_k": 40, "min_p": 0.1, "repetition_penalty": 1.1,
        "seed": -1, "stop": "END", "max_tokens": 9, "max_completion_tokens": 7,
        "n": 1, "presence_penalty": 0, "frequency_penalty": 0.0, "logprobs": false,
        "logit_bias": {}, "response_format": { "type": "text" }, "stream": true,
        "stream_options": { "include_usage": true },
    }))
    .unwrap();
    let sampling = chat.sampling;
    assert_eq!(
        (sampling.temperature, sampling.top_p, sampling.top_k),
        (Some(0.0), Some(0.5), Some(40))
    );
    assert_eq!((sampling.min_p, sampling.repetition_penalty), (Some(0.1), Some(1.1)));
    assert_eq!((sampling.seed, sampling.stop), (Some(u64::MAX), vec!["END".to_owned()]));
    assert_eq!(chat.max_tokens, Some(7));
    assert_eq!(chat.delivery, Delivery::Stream(StreamUsage::Included));
    let unlimited = |top_k: i64| asked(json!({ "top_k": top_k })).unwrap().sampling.top_k;
    assert_eq!((unlimited(-1), unlimited(0)), (Some(UNLIMITED_TOP_K), Some(UNLIMITED_TOP_K)));
    let huge = asked(json!({ "max_tokens": u64::MAX, "stop": ["a", "b"] })).unwrap();
    assert_eq!((huge.max_tokens, huge.sampling.stop.len()), (Some(u64::MAX), 2));
}

#[test]
fn faults_name_their_field() {
    for (key, values) in [
        ("model", json!([7, {}])),
        ("messages", json!([7, "hi", [], {}])),
        ("temperature", json!(["hot", -1, 3, 1e300])),
        ("top_p", json!([2, true])),
        ("top_k", json!([-2, 1.5, "x"])),
        ("min_p", json!([-0.1, "x"])),
        ("repetition_penalty", json!([0, -1, "x"])),
        ("seed", json!([1.5, "x"])),
        ("stop", json!([7, "", [""]])),
        ("max_tokens", json!([0, -1, "x", 1.5])),
        ("max_completion_tokens", json!([0, []])),
        ("n", json!([2, 0, "x"])),
        ("stream", json!(["yes", 1])),
        ("stream_options", json!([7])),
        ("tools", json!([7, {}])),
        ("tool_choice", json!(["any", "required", 7])),
        ("parallel_tool_calls", json!(["no"])),
        ("presence_penalty", json!([0.5, "x"])),
        ("frequency_penalty", json!([-0.5, 9])),
        ("logprobs", json!([true, "x"])),
        ("logit_bias", json!([{ "1": 2 }])),
        ("functions", json!([[]])),
        ("function_call", json!(["auto"])),
        ("audio", json!([{}])),
        ("response_format", json!([7])),
    ] {
        for value in values.as_array().into_iter().flatten() {
            assert_eq!(fault(json!({ key: value })), key, "{value}");
        }
    }
    assert_eq!(fault(json!({ "stop": ["a", 7] })), "stop[1]");
    assert_eq!(fault(json!({ "stop": vec!["a"; 17] })), "stop");
    assert_eq!(fault(json!({ "stop": ["a", "b".repeat(1025)] })), "stop");
    assert_eq!(fault(json!({ "stop": "b".repeat(8 << 20) })), "stop");
    assert_eq!(
        fault(json!({ "stream_options": { "include_usage": 1 } })),
        "stream_options.include_usage"
    );
    assert_eq!(
        fault(json!({ "response_format": { "type": "json_object" } })),
        "response_format.type"
    );
}

#[test]
fn messages_of_every_role_are_read() {
    let messages = said(json!([
        { "role": "developer", "content": [{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }] },
        { "role": "user", "content": "x", "name": "somebody" },
        { "role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [
            { "id": "1", "type": "function", "function": { "name": "f", "arguments": "{\"a\": 1}" } },
            { "id": "2", "function": { "name": "f", "arguments": "" } },
            { "id": "3", "type": "function", "function": { "name": "f", "arguments": "{\"a\": " } },
        ]},
        { "role": "tool", "tool_call_id": "1", "content": "y" },
        { "role": "assistant", "content": [{ "type": "refusal", "refusal": "no" }] },
    ]))
    .unwrap();
    assert_eq!(messages[0], Message::System { text: "a\nb".into() });
    let Message::Assistant(message) = &messages[2] else { panic!("{:?}", messages[2]) };
    assert_eq!((message.reasoning.as_str(), message.text.as_str()), ("hm", ""));
    let object = |at: usize| match &message.calls[at].arguments {
        Arguments::Object(map) => Some(map.len()),
        Arguments::Malformed { .. } => None,
    };
    assert_eq!([object(0), object(1), object(2)], [Some(1), Some(0), None]);
    assert!(matches!(&messages[3], Message::Tool(result) if result.name == "f"));
    assert!(matches!(&messages[4], Message::Assistant(message) if message.text == "no"));
}

#[test]
fn faults_of_messages_name_the_way_to_them() {
    let fault = |message: Value| fault(json!({ "messages": [message] }));
    let call = |function: Value| json!({ "role": "assistant", "tool_calls": [{ "id": "1", "function": function }] });
    let part = |part: Value| json!({ "role": "user", "content": [part] });
    let url = |url: &str| part(json!({ "type": "image_url", "image_url": { "url": url } }));
    let at_url = "messages[0].content[0].image_url.url";
    for (message, field) in [
        (json!(7), "messages[0]"),
        (json!({ "content": "x" }), "messages[0].role"),
        (json!({ "role": "king", "content": "x" }), "messages[0].role"),
        (json!({ "role": "function", "content": "x" }), "messages[0].role"),
        (json!({ "role": "user" }), "messages[0].content"),
        (json!({ "role": "user", "content": 7 }), "messages[0].content"),
        (json!({ "role": "tool", "content": "x" }), "messages[0].tool_call_id"),
        (
            json!({ "role": "tool", "content": "x", "tool_call_id": "1" }),
            "messages[0].tool_call_id",
        ),
        (call(json!(7)), "messages[0].tool_calls[0].function"),
        (call(json!({ "arguments": "{}" })), "messages[0].tool_calls[0].function.name"),
        (
            call(json!({ "name": "f", "arguments": 7 })),
            "messages[0].tool_calls[0].function.arguments",
        ),
        (part(json!({ "type": "input_audio" })), "messages[0].content[0].type"),
        (part(json!({ "type": "text" })), "messages[0].content[0].text"),
        (url("https://x.example/a.png"), at_url),
        (url("file:///etc/passwd"), at_url),
        (url("data:text/html;base64,QQ=="), at_url),
        (url("data:image/png;base64,"), at_url),
        (url("data:image/png;base64,<>"), at_url),
    ] {
        assert_eq!(fault(message.clone()), field, "{message}");
    }
    let picture = json!({ "type": "image_url", "image_url": "data:image/png;base64,QQ==" });
    assert!(said(json!([part(picture.clone())])).is_ok());
    let system = json!({ "role": "system", "content": [picture] });
    assert_eq!(fault(system), "messages[0].content");
}

#[test]
fn tools_are_read_and_chosen() {
    let tool = |name: &str| json!({ "type": "function", "function": { "name": name } });
    let chosen = |choice: Value| {
        let chat = asked(json!({ "tools": [tool("a"), tool("b")], "tool_choice": choice }));
        chat.map(|chat| (chat.tools.len(), chat.choice))
    };
    assert_eq!(chosen(json!("auto")), Ok((2, Choice::Auto)));
    assert_eq!(chosen(Value::Null), Ok((2, Choice::Auto)));
    assert_eq!(chosen(json!("none")), Ok((0, Choice::Auto)));
    assert_eq!(chosen(json!("required")), Ok((2, Choice::Required)));
    assert_eq!(chosen(tool("b")), Ok((1, Choice::Required)));
    assert!(chosen(tool("c")).is_err());
    let read = asked(json!({ "tools": [tool("a")] })).unwrap().tools.remove(0);
    assert_eq!(read.parameters, json!({ "type": "object", "properties": {} }));
    for (tool, field) in [
        (tool(""), "tools[0].function.name"),
        (tool("a b"), "tools[0].function.name"),
        (tool(&"a".repeat(65)), "tools[0].function.name"),
        (json!({ "type": "web_search" }), "tools[0].type"),
        (
            json!({ "type": "function", "function": { "name": "a", "parameters": 7 } }),
            "tools[0].function.parameters",
        ),
    ] {
        assert_eq!(fault(json!({ "tools": [tool] })), field);
    }
    assert_eq!(fault(json!({ "tools": [tool("a"), tool("a")] })), "tools[1].function.name");
}

#[test]
fn a_small_body_cannot_become_a_large_one() {
    let many = |count: usize| format!("{{\"a\": [{}1]}}", "1,".repeat(count));
    let body = |arguments: &str| {
        let function = json!({ "name": "f", "arguments": arguments });
        let calls = json!([{ "id": "1", "function": function }]);
        json!({ "messages": [{ "role": "assistant", "tool_calls": calls }] }).to_string()
    };
    assert!(parse(body(&many(10)).as_bytes()).is_ok());
    for small in [body(&many(1 << 20)), many(1 << 20)] {
        let failure = parse(small.as_bytes()).unwrap_err().json().to_string();
        assert!(failure.contains("values"), "{failure}");
    }
}
