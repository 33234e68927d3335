//! The body of a chat completions request.
//!
//! Pure: fields a particular server refuses are removed elsewhere.

use serde_json::{Map, Value, json};
use trajectory::{Assistant, Content, Message, ToolCall};

use super::REASONING;
use crate::{Endpoint, Request, Sampling, ToolSpec, wire};

/// The body, before the user's extra fields are merged in.
pub(super) fn body(endpoint: &Endpoint, request: &Request<'_>) -> Map<String, Value> {
    let mut body = Map::new();
    body.insert("model".into(), json!(endpoint.model));
    body.insert("messages".into(), Value::Array(messages(request)));
    if !request.tools.is_empty() {
        body.insert("tools".into(), request.tools.iter().map(tool).collect());
    }
    body.insert(limit_name(endpoint).into(), json!(request.max_tokens));
    sampling(request.sampling, &mut body);
    body.insert("stream".into(), json!(true));
    body.insert("stream_options".into(), json!({ "include_usage": true }));
    body
}

/// The name of the token limit: OpenAI renamed the field; most other servers know the old name only.
fn limit_name(endpoint: &Endpoint) -> &'static str {
    let model = endpoint.model.rsplit('/').next().unwrap_or_default();
    let numbered = model.strip_prefix('o').and_then(|rest| rest.chars().next());
    let reasons = numbered.is_some_and(|c| c.is_ascii_digit())
        || ["gpt-5", "gpt-6"].iter().any(|family| model.starts_with(family));
    if reasons || endpoint.base_url.contains("//api.openai.com") {
        "max_completion_tokens"
    } else {
        "max_tokens"
    }
}

fn sampling(sampling: &Sampling, body: &mut Map<String, Value>) {
    let Sampling { temperature, top_p, top_k, min_p, repetition_penalty, seed, stop, .. } =
        sampling;
    let fields = [
        ("temperature", temperature.map(Value::from)),
        ("top_p", top_p.map(Value::from)),
        ("top_k", top_k.map(Value::from)),
        ("min_p", min_p.map(Value::from)),
        ("repetition_penalty", repetition_penalty.map(Value::from)),
        ("seed", seed.map(Value::from)),
        ("stop", (!stop.is_empty()).then(|| json!(stop))),
    ];
    for (name, value) in fields {
        if let Some(value) = value {
            body.insert(name.into(), value);
        }
    }
}

fn tool(tool: &ToolSpec) -> Value {
    let ToolSpec { name, description, parameters } = tool;
    json!({
        "type": "function",
        "function": { "name": name, "description": description, "parameters": parameters },
    })
}

fn messages(request: &Request<'_>) -> Vec<Value> {
    let mut sent = Vec::with_capacity(request.messages.len());
    // A tool message holds text only; images follow after the last tool result.
    let mut images = Vec::new();
    for message in request.messages {
        if !matches!(message, Message::Tool(_)) {
            flush_images(&mut images, &mut sent);
        }
        match message {
            Message::System { text } => sent.push(json!({ "role": "system", "content": text })),
            Message::User { content } => {
                sent.push(json!({ "role": "user", "content": parts(content) }));
            }
            Message::Assistant(message) => sent.push(assistant(message, request.tools)),
            Message::Tool(result) => {
                let parts = result.content.iter().filter(|part| part.as_text().is_none());
                images.extend(parts.map(part));
                sent.push(json!({
                    "role": "tool",
                    "tool_call_id": result.call_id,
                    "content": wire::joined_text(&result.content),
                }));
            }
        }
    }
    flush_images(&mut images, &mut sent);
    sent
}

fn flush_images(images: &mut Vec<Value>, sent: &mut Vec<Value>) {
    if images.is_empty() {
        return;
    }
    let mut content = vec![json!({ "type": "text", "text": "The pictures of the tool results:" })];
    content.append(images);
    sent.push(json!({ "role": "user", "content": content }));
}

/// A plain string where there is only text: many chat templates support nothing else.
fn parts(content: &[Content]) -> Value {
    if content.iter().all(|part| part.as_text().is_some()) {
        return Value::String(wire::joined_text(content));
    }
    content.iter().map(part).collect()
}

fn part(content: &Content) -> Value {
    match content {
        Content::Text { text } => json!({ "type": "text", "text": text }),
        Content::Image { media_type, data } => {
            let url = format!("data:{media_type};base64,{data}");
            json!({ "type": "image_url", "image_url": { "url": url } })
        }
    }
}

fn assistant(message: &Assistant, tools: &[ToolSpec]) -> Value {
    let mut sent = match &message.raw {
        Some(text) if tools.is_empty() => json!({ "role": "assistant", "content": text }),
        _ if message.calls.is_empty() => json!({ "role": "assistant", "content": message.text }),
        _ => {
            // OpenAI itself writes null for empty text beside calls.
            let content = (!message.text.is_empty()).then_some(&message.text);
            let calls: Vec<_> = message.calls.iter().map(call).collect();
            json!({ "role": "assistant", "content": content, "tool_calls": calls })
        }
    };
    if let Some(name) = reasoning_name(message) {
        sent[name] = json!(message.reasoning);
    }
    sent
}

/// Records the field in which the server sent thinking. Models that think between calls continue from their earlier
/// thinking, and some servers require it: it is sent back under the same name.
pub(super) fn reasoning_sent_as(name: &str) -> Value {
    json!({ "reasoning_as": name })
}

fn reasoning_name(message: &Assistant) -> Option<&'static str> {
    let name = message.opaque.as_ref()?.get("reasoning_as")?.as_str()?;
    REASONING.into_iter().find(|known| *known == name)
}

fn call(call: &ToolCall) -> Value {
    let arguments = wire::arguments_object(&call.arguments).to_string();
    json!({
        "id": call.id,
        "type": "function",
        "function": { "name": wire::safe_name(&call.name), "arguments": arguments },
    })
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
