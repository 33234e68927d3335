//! Responses in the format of Anthropic's messages API, with signed thinking.

use serde_json::{Value, json};
use trajectory::{Stop, Usage};

use crate::{
    Call, Turn,
    protocol::{Context, Stream, event},
};

/// The response as events.
pub(crate) fn stream(turn: &Turn, context: &Context<'_>) -> Stream {
    let mut events = vec![];
    let mut message = envelope(context, json!([]), None);
    if let Some(usage) = context.usage {
        message["usage"] = counted(usage, 1);
    }
    push(&mut events, json!({"type": "message_start", "message": message}));
    push(&mut events, json!({"type": "ping"}));
    let mut at = 0;
    if !turn.reasoning.is_empty() {
        let pieces = turn.cut(&turn.reasoning);
        let pieces = pieces.map(|piece| json!({"type": "thinking_delta", "thinking": piece}));
        let signed = json!({"type": "signature_delta", "signature": signature(context)});
        let empty = json!({"type": "thinking", "thinking": "", "signature": ""});
        block(&mut events, &mut at, empty, pieces.chain([signed]));
    }
    if !turn.text.is_empty() {
        let pieces = turn.cut(&turn.text);
        let pieces = pieces.map(|piece| json!({"type": "text_delta", "text": piece}));
        block(&mut events, &mut at, json!({"type": "text", "text": ""}), pieces);
    }
    for (number, call) in turn.calls.iter().enumerate() {
        let pieces = turn.cut(&call.arguments);
        let pieces = pieces.map(|piece| json!({"type": "input_json_delta", "partial_json": piece}));
        block(&mut events, &mut at, used(call, number, context, json!({})), pieces);
    }
    // Start, ping, the start of the first block, and its first piece if there is one.
    let repeat = if at == 0 { 1 } else { 3 };
    let mut end = json!({
        "type": "message_delta",
        "delta": {"stop_reason": word(&turn.stop_reason()), "stop_sequence": null},
    });
    if let Some(usage) = context.usage {
        end["usage"] = json!({"output_tokens": usage.output});
    }
    push(&mut events, end);
    let done = event(Some("message_stop"), &json!({"type": "message_stop"}));
    Stream { events, repeat, done }
}

/// The response as one document.
pub(crate) fn whole(turn: &Turn, context: &Context<'_>) -> Value {
    let mut content = vec![];
    if !turn.reasoning.is_empty() {
        content.push(json!({
            "type": "thinking", "thinking": turn.reasoning, "signature": signature(context),
        }));
    }
    if !turn.text.is_empty() {
        content.push(json!({"type": "text", "text": turn.text}));
    }
    for (number, call) in turn.calls.iter().enumerate() {
        let input = serde_json::from_str(&call.arguments);
        let input = input.unwrap_or_else(|_| Value::String(call.arguments.clone()));
        content.push(used(call, number, context, input));
    }
    let mut message = envelope(context, Value::Array(content), Some(word(&turn.stop_reason())));
    if let Some(usage) = context.usage {
        message["usage"] = counted(usage, usage.output);
    }
    message
}

fn envelope(context: &Context<'_>, content: Value, stop: Option<&str>) -> Value {
    json!({
        "id": format!("msg_{}", context.number),
        "type": "message",
        "role": "assistant",
        "model": context.model,
        "content": content,
        "stop_reason": stop,
        "stop_sequence": null,
    })
}

/// Adds an event, named by its type.
fn push(events: &mut Vec<String>, data: Value) {
    events.push(event(data["type"].as_str(), &data));
}

fn block(
    events: &mut Vec<String>,
    at: &mut usize,
    empty: Value,
    pieces: impl Iterator<Item = Value>,
) {
    push(events, json!({"type": "content_block_start", "index": at, "content_block": empty}));
    for delta in pieces {
        push(events, json!({"type": "content_block_delta", "index": at, "delta": delta}));
    }
    push(events, json!({"type": "content_block_stop", "index": at}));
    *at += 1;
}

fn used(call: &Call, number: usize, context: &Context<'_>, input: Value) -> Value {
    let made = || format!("toolu_{}_{number}", context.number);
    let id = call.id.clone().unwrap_or_else(made);
    json!({"type": "tool_use", "id": id, "name": call.name, "input": input})
}

fn signature(context: &Context<'_>) -> String {
    format!("signature-{}", context.number)
}

fn word(stop: &Stop) -> &str {
    match stop {
        Stop::End => "end_turn",
        Stop::ToolCalls => "tool_use",
        Stop::Length => "max_tokens",
        Stop::Refusal => "refusal",
        Stop::Other(word) => word,
    }
}

/// In this protocol, input tokens exclude cached ones.
fn counted(usage: Usage, output: u64) -> Value {
    json!({
        "input_tokens": usage.input.saturating_sub(usage.cached + usage.cache_writes),
        "cache_read_input_tokens": usage.cached,
        "cache_creation_input_tokens": usage.cache_writes,
        "output_tokens": output,
    })
}
