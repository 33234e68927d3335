//! Converts a client's messages to [`Message`]s.
//!
//! Pure. Validates everything, so that models receive well-formed conversations only.

use std::collections::HashMap;

use serde_json::{Map, Value};
use trajectory::{Arguments, Assistant, Content, Message, ToolCall, ToolResult};

use crate::{ApiError, Fields, ValueBudget, wrong};

/// Converts the whole conversation.
///
/// # Errors
/// If a message is malformed, naming its field.
pub fn messages(list: &[Value], values: &mut ValueBudget) -> Result<Vec<Message>, ApiError> {
    if list.is_empty() {
        return Err(ApiError::field("messages", "must contain at least one message"));
    }
    let mut reading = Reading { called: HashMap::new(), values };
    let read = list.iter().enumerate();
    read.map(|(at, value)| message(value, &format!("messages[{at}]"), &mut reading)).collect()
}

/// State from earlier messages.
struct Reading<'a> {
    /// Tool names of earlier calls, by call id.
    called: HashMap<String, String>,
    values: &'a mut ValueBudget,
}

fn message(value: &Value, path: &str, reading: &mut Reading<'_>) -> Result<Message, ApiError> {
    let fields = Fields::of(value, path)?;
    match fields.needed_text("role")? {
        // `developer` is OpenAI's newer name for `system`.
        "system" | "developer" => Ok(Message::System { text: text(&fields)? }),
        "user" => {
            fields.need("content")?;
            Ok(Message::User { content: content(&fields)? })
        }
        "assistant" => {
            let message = assistant(&fields, reading.values)?;
            reading
                .called
                .extend(message.calls.iter().map(|call| (call.id.clone(), call.name.clone())));
            Ok(Message::Assistant(message))
        }
        "tool" => {
            let call_id = fields.needed_text("tool_call_id")?.to_owned();
            let name = reading.called.get(&call_id).cloned();
            let name = name.ok_or_else(|| {
                fields.error("tool_call_id", "no earlier assistant message has a call with this id")
            })?;
            let content = content(&fields)?;
            Ok(Message::Tool(ToolResult { call_id, name, content, is_error: false }))
        }
        "function" => Err(fields.error("role", "functions are deprecated; use tools")),
        _ => {
            let roles = "must be system, developer, user, assistant or tool";
            Err(fields.error("role", roles))
        }
    }
}

fn assistant(fields: &Fields<'_>, values: &mut ValueBudget) -> Result<Assistant, ApiError> {
    if fields.get("function_call").is_some() {
        return Err(fields.error("function_call", "functions are deprecated; use tool_calls"));
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

fn call(value: &Value, path: &str, values: &mut ValueBudget) -> Result<ToolCall, ApiError> {
    let fields = Fields::of(value, path)?;
    if !matches!(fields.text("type")?, None | Some("function")) {
        return Err(fields.error("type", "only function calls are supported"));
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

/// Clients may send back malformed arguments, which the model should see.
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

/// The content of a message that may contain text only.
fn text(fields: &Fields<'_>) -> Result<String, ApiError> {
    let parts = content(fields)?;
    if parts.iter().any(|part| part.as_text().is_none()) {
        return Err(fields.error("content", "only user and tool messages may contain images"));
    }
    Ok(parts.iter().filter_map(Content::as_text).collect::<Vec<_>>().join("\n"))
}

fn content(fields: &Fields<'_>) -> Result<Vec<Content>, ApiError> {
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

/// A part of a message: text, or an image as a data URL.
///
/// # Errors
/// If it is neither.
pub fn part(value: &Value, path: &str) -> Result<Content, ApiError> {
    let fields = Fields::of(value, path)?;
    match fields.needed_text("type")? {
        "text" => Ok(Content::text(fields.needed_text("text")?)),
        "refusal" => Ok(Content::text(fields.needed_text("refusal")?)),
        "image_url" => match fields.need("image_url")? {
            Value::String(url) => image(url, &fields.name("image_url")),
            nested => {
                let path = fields.name("image_url");
                let nested = Fields::of(nested, &path)?;
                image(nested.needed_text("url")?, &nested.name("url"))
            }
        },
        _ => Err(fields.error("type", "only text and image_url are supported")),
    }
}

/// Only data URLs: fetching an address for a client could reach hosts that only this machine can reach.
fn image(url: &str, name: &str) -> Result<Content, ApiError> {
    let data = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    let Some((media_type, data)) = data else {
        let why = "must be a data URL in base64, such as data:image/png;base64,...";
        return Err(ApiError::field(name, why));
    };
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '+' | '-' | '.');
    if !media_type.starts_with("image/") || !media_type.chars().all(fine) {
        return Err(ApiError::field(name, "must be an image, such as image/png"));
    }
    let base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
    if data.is_empty() || !data.bytes().all(base64) {
        return Err(ApiError::field(name, "is not base64"));
    }
    Ok(Content::Image { media_type: media_type.to_owned(), data: data.to_owned() })
}
