//! Parses and validates the body of a chat completions request.
//!
//! Unknown fields are ignored. Known fields that are not supported are refused instead of silently ignored.

use model::{Sampling, ToolSpec};
use serde_json::{Value, json};
use trajectory::Message;

use crate::{
    api_error::ApiError,
    fields::{Fields, wrong},
    messages,
    values::ValueBudget,
};

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

/// How the response is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    Whole,
    Stream(StreamUsage),
}

/// Whether a stream ends with the token usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamUsage {
    Included,
    Omitted,
}

/// Maximum tools of one request.
const MAX_TOOLS: usize = 1024;
/// Maximum stop sequences.
const MAX_STOPS: usize = 16;
/// Maximum bytes of a stop sequence. They are searched after every token.
const MAX_STOP_BYTES: usize = 1024;

/// More tokens than any vocabulary has, in a range every server accepts.
const UNLIMITED_TOP_K: u64 = i32::MAX as u64;

/// Parses a body.
pub(crate) fn parse(body: &[u8]) -> Result<ChatRequest, ApiError> {
    let mut values = ValueBudget::new();
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

fn sampling(fields: &Fields<'_>) -> Result<Sampling, ApiError> {
    // For other servers, -1 or 0 means no limit.
    let top_k = match fields.integer("top_k")? {
        Some(number) if number < -1 => return Err(fields.error("top_k", "must not be negative")),
        Some(-1 | 0) => Some(UNLIMITED_TOP_K),
        number => number.map(saturated),
    };
    // OpenAI allows negative seeds.
    let seed = fields.integer("seed")?.map(|seed| seed as u64);
    Ok(Sampling {
        temperature: fields.number("temperature", 0.0, 2.0)?,
        top_p: fields.number("top_p", 0.0, 1.0)?,
        top_k,
        min_p: fields.number("min_p", 0.0, 1.0)?,
        repetition_penalty: fields.number("repetition_penalty", 0.01, 10.0)?,
        seed,
        stop: stop(fields)?,
        ..Sampling::default()
    })
}

fn stop(fields: &Fields<'_>) -> Result<Vec<String>, ApiError> {
    let texts = match fields.get("stop") {
        None => Vec::new(),
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(list)) => {
            let text = |(at, value): (usize, &Value)| {
                let text = value.as_str().map(str::to_owned);
                text.ok_or_else(|| wrong(&format!("stop[{at}]"), "a string", value))
            };
            list.iter().take(MAX_STOPS + 1).enumerate().map(text).collect::<Result<_, _>>()?
        }
        Some(other) => return Err(wrong("stop", "a string or a list of strings", other)),
    };
    if texts.len() > MAX_STOPS {
        return Err(fields.error("stop", format_args!("must not be more than {MAX_STOPS} texts")));
    }
    if texts.iter().any(String::is_empty) {
        return Err(fields.error("stop", "must not be empty"));
    }
    if texts.iter().any(|text| text.len() > MAX_STOP_BYTES) {
        let why = format_args!("must not be longer than {MAX_STOP_BYTES} bytes");
        return Err(fields.error("stop", why));
    }
    Ok(texts)
}

fn max_tokens(fields: &Fields<'_>) -> Result<Option<u64>, ApiError> {
    for key in ["max_completion_tokens", "max_tokens"] {
        match fields.integer(key)? {
            None => {}
            Some(number) if number < 1 => return Err(fields.error(key, "must be at least 1")),
            Some(number) => return Ok(Some(saturated(number))),
        }
    }
    Ok(None)
}

/// How the response is delivered.
pub(crate) fn delivery(fields: &Fields<'_>) -> Result<Delivery, ApiError> {
    let usage = match fields.get("stream_options") {
        None => StreamUsage::Omitted,
        Some(options) => match Fields::of(options, "stream_options")?.flag("include_usage")? {
            true => StreamUsage::Included,
            false => StreamUsage::Omitted,
        },
    };
    Ok(match fields.flag("stream")? {
        true => Delivery::Stream(usage),
        false => Delivery::Whole,
    })
}

fn saturated(number: i128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "chat_request_tests.rs"]
mod tests;
