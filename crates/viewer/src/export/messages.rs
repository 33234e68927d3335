//! Writes a conversation in OpenAI's chat format: one object with `messages` and `tools`, as trainers read it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use trajectory::{Arguments, Assistant, Content, Line, Message, ToolCall, history};

use super::About;

/// The conversation up to its last complete turn.
pub(super) fn export(lines: &[Line], about: &About) -> Value {
    let (messages, _) = history(lines);
    let mut value = json!({
        "messages": messages.iter().map(message).collect::<Vec<_>>(),
        "tools": tools(&messages),
    });
    let mut metadata = Map::new();
    metadata.insert("id".into(), json!(about.id));
    if let Some(score) = about.score {
        metadata.insert("score".into(), json!(score));
    }
    value["metadata"] = Value::Object(metadata);
    value
}

fn message(message: &Message) -> Value {
    match message {
        Message::System { text } => json!({ "role": "system", "content": text }),
        Message::User { content } => json!({ "role": "user", "content": parts(content) }),
        Message::Assistant(assistant) => assistant_message(assistant),
        Message::Tool(result) => json!({
            "role": "tool", "tool_call_id": result.call_id, "content": parts(&result.content),
        }),
    }
}

fn assistant_message(assistant: &Assistant) -> Value {
    let mut value = json!({ "role": "assistant", "content": assistant.text });
    if !assistant.reasoning.is_empty() {
        value["reasoning_content"] = json!(assistant.reasoning);
    }
    if !assistant.calls.is_empty() {
        value["tool_calls"] = assistant.calls.iter().map(call).collect();
    }
    value
}

fn call(call: &ToolCall) -> Value {
    let arguments = match &call.arguments {
        Arguments::Object(arguments) => Value::Object(arguments.clone()).to_string(),
        Arguments::Malformed { malformed, .. } => malformed.clone(),
    };
    let function = json!({ "name": call.name, "arguments": arguments });
    json!({ "id": call.id, "type": "function", "function": function })
}

/// A text, or parts where there are images.
fn parts(content: &[Content]) -> Value {
    if content.iter().all(|part| part.as_text().is_some()) {
        let texts: Vec<&str> = content.iter().filter_map(Content::as_text).collect();
        return json!(texts.join("\n"));
    }
    let part = |part: &Content| match part {
        Content::Text { text } => json!({ "type": "text", "text": text }),
        Content::Image { media_type, data } => json!({
            "type": "image_url", "image_url": { "url": format!("data:{media_type};base64,{data}") },
        }),
    };
    content.iter().map(part).collect()
}

/// The tools that were called, with the parameters that were used: their definitions are not recorded.
fn tools(messages: &[Message]) -> Vec<Value> {
    let mut tools: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for message in messages {
        let Message::Assistant(assistant) = message else { continue };
        for call in &assistant.calls {
            let names = tools.entry(&call.name).or_default();
            if let Arguments::Object(arguments) = &call.arguments {
                names.extend(arguments.keys().map(String::as_str));
            }
        }
    }
    let tool = |(name, parameters): (&str, BTreeSet<&str>)| {
        let properties: Map<String, Value> =
            parameters.into_iter().map(|name| (name.to_owned(), json!({}))).collect();
        let parameters = json!({ "type": "object", "properties": properties });
        json!({ "type": "function", "function": { "name": name, "parameters": parameters } })
    };
    tools.into_iter().map(tool).collect()
}
