//! Responses in the format of OpenAI's chat completions, as OpenAI, vLLM and similar servers send them.

use serde_json::{Map, Value, json};
use trajectory::{Stop, Usage};

use crate::{
    Call, Quirk, Turn,
    protocol::{Context, Stream, event},
};

/// The response as events.
pub(crate) fn stream(turn: &Turn, context: &Context<'_>) -> Stream {
    let mut events = vec![chunk(context, json!({"role": "assistant", "content": ""}), None)];
    let field = reasoning_field(context);
    for piece in turn.cut(&turn.reasoning) {
        events.push(chunk(context, json!({field: piece}), None));
    }
    for piece in turn.cut(&turn.text) {
        events.push(chunk(context, json!({"content": piece}), None));
    }
    let calls = call_deltas(turn, context).into_iter();
    events.extend(calls.map(|delta| chunk(context, json!({"tool_calls": [delta]}), None)));
    let repeat = 1.min(events.len() - 1);
    events.push(chunk(context, json!({}), Some(word(&turn.stop_reason()))));
    if let Some(usage) = context.usage {
        let mut last = envelope(context, "chat.completion.chunk", json!([]));
        last["usage"] = counted(usage);
        events.push(event(None, &last));
    }
    Stream { events, repeat, done: "data: [DONE]\n\n".into() }
}

/// The response as one document.
pub(crate) fn whole(turn: &Turn, context: &Context<'_>) -> Value {
    let mut message = Map::new();
    message.insert("role".into(), json!("assistant"));
    let silent = turn.text.is_empty() && !turn.calls.is_empty();
    message.insert("content".into(), if silent { Value::Null } else { json!(turn.text) });
    if !turn.reasoning.is_empty() {
        message.insert(reasoning_field(context).into(), json!(turn.reasoning));
    }
    if !turn.calls.is_empty() {
        let calls = turn.calls.iter().enumerate();
        let calls = calls.map(|(at, call)| opened(call, at, context, &call.arguments));
        message.insert("tool_calls".into(), calls.collect());
    }
    let choice = json!({
        "index": 0, "message": message, "logprobs": null, "finish_reason": word(&turn.stop_reason()),
    });
    let mut body = envelope(context, "chat.completion", json!([choice]));
    if let Some(usage) = context.usage {
        body["usage"] = counted(usage);
    }
    body
}

fn envelope(context: &Context<'_>, object: &str, choices: Value) -> Value {
    json!({
        "id": format!("chatcmpl-{}", context.number),
        "object": object,
        "created": 1_700_000_000,
        "model": context.model,
        "choices": choices,
    })
}

fn chunk(context: &Context<'_>, delta: Value, finish: Option<&str>) -> String {
    let choice = json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}]);
    event(None, &envelope(context, "chat.completion.chunk", choice))
}

/// The deltas of all calls, in the order in which they are sent.
fn call_deltas(turn: &Turn, context: &Context<'_>) -> Vec<Value> {
    let mut calls = turn.calls.iter().enumerate();
    if context.answer.has(Quirk::WholeCalls) {
        return calls.map(|(at, call)| opened(call, at, context, &call.arguments)).collect();
    }
    let deltas: Vec<Vec<Value>> = calls
        .by_ref()
        .map(|(at, call)| {
            let more = turn.cut(&call.arguments);
            let more = more.map(|piece| json!({"index": at, "function": {"arguments": piece}}));
            std::iter::once(opened(call, at, context, "")).chain(more).collect()
        })
        .collect();
    if !context.answer.has(Quirk::Interleaved) {
        return deltas.concat();
    }
    let longest = deltas.iter().map(Vec::len).max().unwrap_or(0);
    (0..longest).flat_map(|at| deltas.iter().filter_map(move |all| all.get(at).cloned())).collect()
}

fn opened(call: &Call, at: usize, context: &Context<'_>, arguments: &str) -> Value {
    let made = || format!("call_{}_{at}", context.number);
    json!({
        "index": at,
        "id": call.id.clone().unwrap_or_else(made),
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    })
}

fn reasoning_field(context: &Context<'_>) -> &'static str {
    let named = context.answer.quirks.iter().find_map(|quirk| match quirk {
        Quirk::ReasoningAs(name) => Some(*name),
        _ => None,
    });
    named.unwrap_or("reasoning_content")
}

fn word(stop: &Stop) -> &str {
    match stop {
        Stop::End => "stop",
        Stop::ToolCalls => "tool_calls",
        Stop::Length => "length",
        Stop::Refusal => "content_filter",
        Stop::Other(word) => word,
    }
}

fn counted(usage: Usage) -> Value {
    json!({
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.total(),
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    })
}
