//! Parses and validates the body of a chat completions request.
//!
//! Unknown fields are ignored. Known fields that are not supported are refused instead of silently ignored.

use model::{Sampling, ToolSpec};
use openai_wire::{
    ApiError, Fields, ValueBudget, messages,
    parameters::{Delivery, delivery, max_tokens, sampling},
    wrong,
};
use serde_json::{Value, json};
use trajectory::Message;

/// A chat completions request.
#[derive(Debug)]
pub(crate) struct ChatRequest {
    /// The model's name; empty for the first one.
    pub(crate) model: String,
    pub(crate) messages: Vec<Message>,
    /// The tools that may be called.
    pub(crate) tools: Vec<ToolSpec>,
    pub(crate) choice: Choice,
    pub(crate) parallel: Parallel,
    pub(crate) sampling: Sampling,
    pub(crate) max_tokens: Option<u64>,
    pub(crate) delivery: Delivery,
}

/// Whether a tool must be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The model decides.
    Auto,
    /// At least one call.
    Required,
}

/// Whether a response may contain several calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parallel {
    Many,
    One,
}

/// Maximum tools of one request.
const MAX_TOOLS: usize = 1024;
/// Parses a body.
pub(crate) fn parse(body: &[u8]) -> Result<ChatRequest, ApiError> {
    let mut values = ValueBudget::default();
    values.spend(body)?;
    let value: Value = serde_json::from_slice(body)
        .map_err(|error| ApiError::request(format_args!("is not JSON: {error}")))?;
    let fields = Fields::of(&value, "")?;
    reject_unsupported(&fields)?;
    fields.need("messages")?;
    let messages = messages::messages(fields.list("messages")?, &mut values)?;
    let (tools, choice) = choose(&fields, tools(&fields)?)?;
    let parallel = match fields.get("parallel_tool_calls") {
        Some(_) if !fields.flag("parallel_tool_calls")? => Parallel::One,
        _ => Parallel::Many,
    };
    Ok(ChatRequest {
        model: fields.text("model")?.unwrap_or_default().trim().to_owned(),
        messages,
        tools,
        choice,
        parallel,
        sampling: sampling(&fields)?,
        max_tokens: max_tokens(&fields)?,
        delivery: delivery(&fields)?,
    })
}

/// Rejects known fields that are not supported.
fn reject_unsupported(fields: &Fields<'_>) -> Result<(), ApiError> {
    if fields.integer("n")?.is_some_and(|n| n != 1) {
        return Err(fields.error("n", "only 1 is supported"));
    }
    for key in ["functions", "function_call"] {
        if fields.get(key).is_some() {
            return Err(fields.error(key, "is deprecated; use tools and tool_choice"));
        }
    }
    for key in ["presence_penalty", "frequency_penalty"] {
        if fields.number(key, -2.0, 2.0)?.is_some_and(|penalty| penalty != 0.0) {
            return Err(fields.error(key, "is not supported; use repetition_penalty"));
        }
    }
    if fields.flag("logprobs")? || fields.integer("top_logprobs")?.is_some_and(|top| top != 0) {
        return Err(fields.error("logprobs", "is not supported"));
    }
    if fields.get("logit_bias").is_some_and(|bias| *bias != json!({})) {
        return Err(fields.error("logit_bias", "is not supported"));
    }
    if fields.flag("return_token_ids")? {
        return Err(fields.error("return_token_ids", "is supported by /v1/completions only"));
    }
    if fields.get("audio").is_some() {
        return Err(fields.error("audio", "is not supported"));
    }
    if let Some(format) = fields.get("response_format") {
        let format = Fields::of(format, "response_format")?;
        if format.needed_text("type")? != "text" {
            let why = "only text is supported; for JSON, offer a tool with that schema and \
                       tool_choice \"required\"";
            return Err(format.error("type", why));
        }
    }
    Ok(())
}

fn tools(fields: &Fields<'_>) -> Result<Vec<ToolSpec>, ApiError> {
    let list = fields.list("tools")?;
    if list.len() > MAX_TOOLS {
        return Err(fields.error("tools", format_args!("must not be more than {MAX_TOOLS}")));
    }
    let mut tools: Vec<ToolSpec> = Vec::with_capacity(list.len());
    for (at, value) in list.iter().enumerate() {
        let path = format!("tools[{at}]");
        let spec = tool(value, &path)?;
        if tools.iter().any(|other| other.name == spec.name) {
            return Err(ApiError::field(path + ".function.name", "duplicate name"));
        }
        tools.push(spec);
    }
    Ok(tools)
}

fn tool(value: &Value, path: &str) -> Result<ToolSpec, ApiError> {
    let fields = Fields::of(value, path)?;
    if fields.needed_text("type")? != "function" {
        return Err(fields.error("type", "only functions are supported"));
    }
    let path = fields.name("function");
    let function = Fields::of(fields.need("function")?, &path)?;
    let name = function.needed_text("name")?.to_owned();
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.is_empty() || name.len() > 64 || !name.chars().all(fine) {
        let why = "must be 1 to 64 letters, digits, underscores, hyphens or full stops";
        return Err(function.error("name", why));
    }
    let parameters = match function.get("parameters") {
        None => json!({ "type": "object", "properties": {} }),
        Some(Value::Object(map)) => Value::Object(map.clone()),
        Some(other) => return Err(wrong(&function.name("parameters"), "an object", other)),
    };
    let description = function.text("description")?.unwrap_or_default().to_owned();
    Ok(ToolSpec { name, description, parameters })
}

fn choose(
    fields: &Fields<'_>,
    mut tools: Vec<ToolSpec>,
) -> Result<(Vec<ToolSpec>, Choice), ApiError> {
    let choice = match fields.get("tool_choice") {
        None => Choice::Auto,
        Some(Value::String(word)) => match word.as_str() {
            "auto" => Choice::Auto,
            "none" => return Ok((Vec::new(), Choice::Auto)),
            "required" => Choice::Required,
            _ => {
                let why = "must be auto, none, required or the name of a function";
                return Err(fields.error("tool_choice", why));
            }
        },
        Some(named) => {
            let named = Fields::of(named, "tool_choice")?;
            if named.needed_text("type")? != "function" {
                return Err(named.error("type", "only functions can be chosen"));
            }
            let function = Fields::of(named.need("function")?, "tool_choice.function")?;
            let name = function.needed_text("name")?;
            tools.retain(|tool| tool.name == name);
            if tools.is_empty() {
                return Err(function.error("name", "no such tool is offered"));
            }
            Choice::Required
        }
    };
    if choice == Choice::Required && tools.is_empty() {
        return Err(fields.error("tool_choice", "cannot require a call without tools"));
    }
    Ok((tools, choice))
}

#[cfg(test)]
#[path = "chat_request_tests.rs"]
mod tests;
