//! A client's messages in our own vocabulary.
//!
//! Pure. Everything is checked here, so that no model meets a conversation that makes no sense.

use std::collections::HashMap;

use serde_json::{Map, Value};
use trajectory::{Arguments, Assistant, Content, Message, ToolCall, ToolResult};

use crate::{
    failure::Failure,
    fields::{Fields, wrong},
    values::Values,
};

/// Reads the whole conversation.
pub(crate) fn messages(list: &[Value], values: &mut Values) -> Result<Vec<Message>, Failure> {
    if list.is_empty() {
        return Err(Failure::field("messages", "must hold at least one message"));
    }
    let mut reading = Reading { called: HashMap::new(), values };
    let read = list.iter().enumerate();
    read.map(|(at, value)| message(value, &format!("messages[{at}]"), &mut reading)).collect()
}

/// What is known from the messages before.
struct Reading<'a> {
    /// The tools of earlier calls, by the ids of the calls.
    called: HashMap<String, String>,
    values: &'a mut Values,
}

fn message(value: &Value, path: &str, reading: &mut Reading<'_>) -> Result<Message, Failure> {
    let fields = Fields::of(value, path)?;
    match fields.needed_text("role")? {
        // OpenAI's newer name for the same.
        "system" | "developer" => Ok(Message::System { text: text(&fields)? }),
        "user" => {
            fields.need("content")?;
            Ok(Message::User { content: content(&fields)? })
        }
        "assistant" => {
            let said = assistant(&fields, reading.values)?;
            reading
                .called
                .extend(said.calls.iter().map(|call| (call.id.clone(), call.name.clone())));
            Ok(Message::Assistant(said))
        }
        "tool" => {
            let call_id = fields.needed_text("tool_call_id")?.to_owned();
            let name = reading.called.get(&call_id).cloned();
            let name = name.ok_or_else(|| {
                fields.fault("tool_call_id", "no assistant message before it has such a call")
            })?;
            let content = content(&fields)?;
            Ok(Message::Tool(ToolResult { call_id, name, content, is_error: false }))
        }
        "function" => Err(fields.fault("role", "functions are outdated; use tools")),
        _ => {
            let roles = "must be system, developer, user, assistant or tool";
            Err(fields.fault("role", roles))
        }
    }
}

fn assistant(fields: &Fields<'_>, values: &mut Values) -> Result<Assistant, Failure> {
    if fields.get("function_call").is_some() {
        return Err(fields.fault("function_call", "functions are outdated; use tool_calls"));
    }
    let list = fields.list("tool_calls")?.iter().enumerate();
    let calls =
        list.map(|(at, value)| call(value, &fields.name(&format!("tool_calls[{at}]")), values));
    let calls = calls.collect::<Result<Vec<_>, _>>()?;
    let mut reasoning = fields.text("reasoning_content")?;
    if reasoning.is_none() {
        reasoning = fields.text("reasoning")?;
    }
    let reasoning = reasoning.unwrap_or_default().to_owned();
    Ok(Assistant { text: text(fields)?, reasoning, calls, ..Assistant::default() })
}

fn call(value: &Value, path: &str, values: &mut Values) -> Result<ToolCall, Failure> {
    let fields = Fields::of(value, path)?;
    if !matches!(fields.text("type")?, None | Some("function")) {
        return Err(fields.fault("type", "only function calls are known"));
    }
    let id = fields.needed_text("id")?.to_owned();
    let path = fields.name("function");
    let function = Fields::of(fields.need("function")?, &path)?;
    let name = function.needed_text("name")?.to_owned();
    let arguments = match function.get("arguments") {
        None => Arguments::Object(Map::new()),
        Some(Value::Object(map)) => Arguments::Object(map.clone()),
        Some(Value::String(text)) => {
            values.spend(text.as_bytes())?;
            arguments(text)
        }
        Some(other) => return Err(wrong(&function.name("arguments"), "a string", other)),
    };
    Ok(ToolCall { id, name, arguments })
}

/// A client may send back what a model wrote wrong: the model is to see it.
fn arguments(text: &str) -> Arguments {
    if text.trim().is_empty() {
        return Arguments::Object(Map::new());
    }
    match serde_json::from_str(text) {
        Ok(Value::Object(map)) => Arguments::Object(map),
        Ok(_) => malformed(text, "the arguments are no object"),
        Err(error) => malformed(text, &error.to_string()),
    }
}

fn malformed(text: &str, why: &str) -> Arguments {
    Arguments::Malformed { malformed: text.to_owned(), why: why.to_owned() }
}

/// The content where only text makes sense.
fn text(fields: &Fields<'_>) -> Result<String, Failure> {
    let parts = content(fields)?;
    if parts.iter().any(|part| part.as_text().is_none()) {
        return Err(fields.fault("content", "only users and tools can show pictures"));
    }
    Ok(parts.iter().filter_map(Content::as_text).collect::<Vec<_>>().join("\n"))
}

fn content(fields: &Fields<'_>) -> Result<Vec<Content>, Failure> {
    match fields.get("content") {
        None => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(vec![Content::text(text)]),
        Some(Value::Array(parts)) => {
            let parts = parts.iter().enumerate();
            parts.map(|(at, value)| part(value, &fields.name(&format!("content[{at}]")))).collect()
        }
        Some(other) => Err(wrong(&fields.name("content"), "a string or a list of parts", other)),
    }
}

fn part(value: &Value, path: &str) -> Result<Content, Failure> {
    let fields = Fields::of(value, path)?;
    match fields.needed_text("type")? {
        "text" => Ok(Content::text(fields.needed_text("text")?)),
        "refusal" => Ok(Content::text(fields.needed_text("refusal")?)),
        "image_url" => match fields.need("image_url")? {
            Value::String(url) => picture(url, &fields.name("image_url")),
            nested => {
                let path = fields.name("image_url");
                let nested = Fields::of(nested, &path)?;
                picture(nested.needed_text("url")?, &nested.name("url"))
            }
        },
        _ => Err(fields.fault("type", "only text and image_url are taken")),
    }
}

/// Nothing is fetched for a client: its address might be one that only this machine can reach.
fn picture(url: &str, name: &str) -> Result<Content, Failure> {
    let data = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    let Some((media_type, data)) = data else {
        let why = "must be a data URL in base64, such as data:image/png;base64,...";
        return Err(Failure::field(name, why));
    };
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '+' | '-' | '.');
    if !media_type.starts_with("image/") || !media_type.chars().all(fine) {
        return Err(Failure::field(name, "must hold a picture, such as image/png"));
    }
    let base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
    if data.is_empty() || !data.bytes().all(base64) {
        return Err(Failure::field(name, "holds no base64"));
    }
    Ok(Content::Image { media_type: media_type.to_owned(), data: data.to_owned() })
}
