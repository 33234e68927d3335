//! The body of a messages request.
//!
//! Pure: fields a particular model refuses are removed elsewhere.

use serde_json::{Map, Value, json};
use trajectory::{Assistant, Content, Message, ToolResult};

use crate::{Request, Sampling, ToolSpec, wire};

/// The smallest thinking budget the vendor accepts, in tokens.
const MIN_THINKING: u64 = 1024;
/// Placeholder: the vendor does not accept an empty text.
const NOTHING: &str = "(nothing)";

/// The body, before the user's extra fields are merged in.
pub(super) fn body(model: &str, request: &Request<'_>) -> Map<String, Value> {
    let mut body = Map::new();
    body.insert("model".into(), json!(model));
    body.insert("max_tokens".into(), json!(request.max_tokens));
    let system = system(request.messages);
    if !system.is_empty() {
        body.insert("system".into(), Value::Array(system));
    }
    body.insert("messages".into(), Value::Array(messages(request)));
    let mut tools: Vec<_> = request.tools.iter().map(tool).collect();
    if let Some(last) = tools.last_mut() {
        cache(last);
        body.insert("tools".into(), Value::Array(tools));
    }
    sampling(request, &mut body);
    body.insert("stream".into(), json!(true));
    body
}

fn sampling(request: &Request<'_>, body: &mut Map<String, Value>) {
    let Sampling { temperature, top_p, top_k, stop, thinking, .. } = request.sampling;
    let thinking = thinking.and_then(|budget| budget_within(budget, request.max_tokens));
    let mut fields = vec![("stop_sequences", (!stop.is_empty()).then(|| json!(stop)))];
    match thinking {
        // Thinking requires the vendor's default sampling.
        Some(budget) => {
            let thinking = json!({ "type": "enabled", "budget_tokens": budget });
            fields.push(("thinking", Some(thinking)));
        }
        None => fields.extend([
            ("temperature", temperature.map(Value::from)),
            ("top_p", top_p.map(Value::from)),
            ("top_k", top_k.map(Value::from)),
        ]),
    }
    for (name, value) in fields {
        if let Some(value) = value {
            body.insert(name.into(), value);
        }
    }
}

/// The thinking budget, limited so that output tokens remain for the answer. `None` where both do not fit.
fn budget_within(budget: u64, max_tokens: u64) -> Option<u64> {
    let room = max_tokens.checked_sub(MIN_THINKING)?;
    (room >= MIN_THINKING).then(|| budget.clamp(MIN_THINKING, room))
}

fn tool(tool: &ToolSpec) -> Value {
    let ToolSpec { name, description, parameters } = tool;
    json!({ "name": name, "description": description, "input_schema": parameters })
}

fn system(messages: &[Message]) -> Vec<Value> {
    let texts = messages.iter().filter_map(|message| match message {
        Message::System { text } if !text.trim().is_empty() => Some(text),
        _ => None,
    });
    let mut blocks: Vec<_> = texts.map(|text| json!({ "type": "text", "text": text })).collect();
    blocks.last_mut().into_iter().for_each(cache);
    blocks
}

/// The conversation in alternating turns: consecutive messages of users and tools are merged.
fn messages(request: &Request<'_>) -> Vec<Value> {
    let mut turns: Vec<(&str, Vec<Value>)> = Vec::new();
    for message in request.messages {
        let (role, blocks) = match message {
            Message::System { .. } => continue,
            Message::User { content } => ("user", parts(content)),
            Message::Tool(result) => ("user", vec![tool_result(result)]),
            Message::Assistant(message) => ("assistant", assistant(message, request.tools)),
        };
        match turns.last_mut() {
            Some((last, held)) if *last == role => held.extend(blocks),
            _ => turns.push((role, blocks)),
        }
    }
    for (_, blocks) in &mut turns {
        if blocks.is_empty() {
            blocks.push(json!({ "type": "text", "text": NOTHING }));
        }
    }
    // Cache up to this turn, and find the cache entry of the turn before.
    let users = turns.iter_mut().rev().filter(|(role, _)| *role == "user").take(2);
    users.filter_map(|(_, blocks)| blocks.last_mut()).for_each(cache);
    let sent = turns.into_iter().map(|(role, content)| json!({ "role": role, "content": content }));
    sent.collect()
}

fn parts(content: &[Content]) -> Vec<Value> {
    let parts = content.iter().filter_map(|part| match part {
        Content::Text { text } if text.trim().is_empty() => None,
        Content::Text { text } => Some(json!({ "type": "text", "text": text })),
        Content::Image { media_type, data } => {
            let source = json!({ "type": "base64", "media_type": media_type, "data": data });
            Some(json!({ "type": "image", "source": source }))
        }
    });
    parts.collect()
}

fn tool_result(result: &ToolResult) -> Value {
    let mut block =
        json!({ "type": "tool_result", "tool_use_id": wire::safe_name(&result.call_id) });
    let content = parts(&result.content);
    if !content.is_empty() {
        block["content"] = Value::Array(content);
    }
    if result.is_error {
        block["is_error"] = json!(true);
    }
    block
}

fn assistant(message: &Assistant, tools: &[ToolSpec]) -> Vec<Value> {
    let mut blocks: Vec<Value> = message.opaque.iter().flat_map(thinking_blocks).cloned().collect();
    let (text, calls) = match (&message.raw, tools) {
        (Some(raw), []) => (raw, &[][..]),
        _ => (&message.text, &message.calls[..]),
    };
    if !text.trim().is_empty() {
        // The vendor refuses trailing blanks.
        blocks.push(json!({ "type": "text", "text": text.trim_end() }));
    }
    blocks.extend(calls.iter().map(|call| {
        json!({
            "type": "tool_use",
            "id": wire::safe_name(&call.id),
            "name": wire::safe_name(&call.name),
            "input": wire::arguments_object(&call.arguments),
        })
    }));
    // Thinking alone is not a valid message.
    if text.trim().is_empty() && calls.is_empty() {
        blocks.push(json!({ "type": "text", "text": NOTHING }));
    }
    blocks
}

/// The thinking blocks in the history; other vendors' data is ignored.
fn thinking_blocks(opaque: &Value) -> impl Iterator<Item = &Value> {
    let blocks = opaque.as_array().map(Vec::as_slice).unwrap_or_default();
    blocks.iter().filter(|block| {
        let kind = block.get("type").and_then(Value::as_str);
        matches!(kind, Some("thinking" | "redacted_thinking"))
    })
}

/// Requests that the vendor caches everything up to this block.
fn cache(block: &mut Value) {
    block["cache_control"] = json!({ "type": "ephemeral" });
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
