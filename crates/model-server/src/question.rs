//! The body of a chat completions request, checked and in our own vocabulary.
//!
//! Fields nobody knows are ignored. What is known and cannot be done is refused, not ignored: a reply
//! that is not what was asked for helps nobody.

use model::{Sampling, ToolSpec};
use serde_json::{Value, json};
use trajectory::Message;

use crate::{
    failure::Failure,
    fields::{Fields, wrong},
    messages,
    values::Values,
};

/// What a client wants.
#[derive(Debug)]
pub(crate) struct Question {
    /// The model's name; empty for the first one.
    pub(crate) model: String,
    pub(crate) messages: Vec<Message>,
    /// The tools that may be used.
    pub(crate) tools: Vec<ToolSpec>,
    pub(crate) choice: Choice,
    pub(crate) parallel: Parallel,
    pub(crate) sampling: Sampling,
    pub(crate) max_tokens: Option<u64>,
    pub(crate) delivery: Delivery,
}

/// Whether a tool has to be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The model decides.
    Auto,
    /// At least one.
    Required,
}

/// Whether a reply may hold several calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parallel {
    Many,
    One,
}

/// How the reply is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    Whole,
    Stream(StreamUsage),
}

/// Whether the count of tokens is wanted at the end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamUsage {
    Told,
    Untold,
}

/// Tools of one request.
const MOST_TOOLS: usize = 1024;
/// Texts that end a reply.
const MOST_STOPS: usize = 16;
/// Bytes of each. They are looked for after every token.
const LONGEST_STOP: usize = 1024;

/// More tokens than any model knows, and a number every server can read.
const EVERY_TOKEN: u64 = i32::MAX as u64;

/// Reads a body.
pub(crate) fn question(body: &[u8]) -> Result<Question, Failure> {
    let mut values = Values::new();
    values.spend(body)?;
    let value: Value = serde_json::from_slice(body)
        .map_err(|error| Failure::request(format_args!("is no JSON: {error}")))?;
    let fields = Fields::of(&value, "")?;
    refuse(&fields)?;
    fields.need("messages")?;
    let messages = messages::messages(fields.list("messages")?, &mut values)?;
    let (tools, choice) = choose(&fields, tools(&fields)?)?;
    let parallel = match fields.get("parallel_tool_calls") {
        Some(_) if !fields.flag("parallel_tool_calls")? => Parallel::One,
        _ => Parallel::Many,
    };
    Ok(Question {
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

/// Wishes that cannot be granted.
fn refuse(fields: &Fields<'_>) -> Result<(), Failure> {
    if fields.whole("n")?.is_some_and(|n| n != 1) {
        return Err(fields.fault("n", "only one reply to a request is given"));
    }
    for key in ["functions", "function_call"] {
        if fields.get(key).is_some() {
            return Err(fields.fault(key, "is outdated; use tools and tool_choice"));
        }
    }
    for key in ["presence_penalty", "frequency_penalty"] {
        if fields.number(key, -2.0, 2.0)?.is_some_and(|penalty| penalty != 0.0) {
            return Err(fields.fault(key, "is not supported; use repetition_penalty"));
        }
    }
    if fields.flag("logprobs")? || fields.whole("top_logprobs")?.is_some_and(|top| top != 0) {
        return Err(fields.fault("logprobs", "probabilities are not told"));
    }
    if fields.get("logit_bias").is_some_and(|bias| *bias != json!({})) {
        return Err(fields.fault("logit_bias", "is not supported"));
    }
    if fields.get("audio").is_some() {
        return Err(fields.fault("audio", "is not supported"));
    }
    if let Some(format) = fields.get("response_format") {
        let format = Fields::of(format, "response_format")?;
        if format.needed_text("type")? != "text" {
            let why = "only text is supported; for JSON, offer a tool with that schema and \
                       tool_choice \"required\"";
            return Err(format.fault("type", why));
        }
    }
    Ok(())
}

fn tools(fields: &Fields<'_>) -> Result<Vec<ToolSpec>, Failure> {
    let list = fields.list("tools")?;
    if list.len() > MOST_TOOLS {
        return Err(fields.fault("tools", format_args!("must not be more than {MOST_TOOLS}")));
    }
    let mut tools: Vec<ToolSpec> = Vec::with_capacity(list.len());
    for (at, value) in list.iter().enumerate() {
        let path = format!("tools[{at}]");
        let spec = tool(value, &path)?;
        if tools.iter().any(|other| other.name == spec.name) {
            return Err(Failure::field(path + ".function.name", "another tool has this name"));
        }
        tools.push(spec);
    }
    Ok(tools)
}

fn tool(value: &Value, path: &str) -> Result<ToolSpec, Failure> {
    let fields = Fields::of(value, path)?;
    if fields.needed_text("type")? != "function" {
        return Err(fields.fault("type", "only functions are known"));
    }
    let path = fields.name("function");
    let function = Fields::of(fields.need("function")?, &path)?;
    let name = function.needed_text("name")?.to_owned();
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.is_empty() || name.len() > 64 || !name.chars().all(fine) {
        let why = "must be 1 to 64 letters, digits, underscores, hyphens or full stops";
        return Err(function.fault("name", why));
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
) -> Result<(Vec<ToolSpec>, Choice), Failure> {
    let choice = match fields.get("tool_choice") {
        None => Choice::Auto,
        Some(Value::String(word)) => match word.as_str() {
            "auto" => Choice::Auto,
            "none" => return Ok((Vec::new(), Choice::Auto)),
            "required" => Choice::Required,
            _ => {
                let why = "must be auto, none, required or the name of a function";
                return Err(fields.fault("tool_choice", why));
            }
        },
        Some(named) => {
            let named = Fields::of(named, "tool_choice")?;
            if named.needed_text("type")? != "function" {
                return Err(named.fault("type", "only functions can be chosen"));
            }
            let function = Fields::of(named.need("function")?, "tool_choice.function")?;
            let name = function.needed_text("name")?;
            tools.retain(|tool| tool.name == name);
            if tools.is_empty() {
                return Err(function.fault("name", "no such tool is offered"));
            }
            Choice::Required
        }
    };
    if choice == Choice::Required && tools.is_empty() {
        return Err(fields.fault("tool_choice", "without tools none can be required"));
    }
    Ok((tools, choice))
}

fn sampling(fields: &Fields<'_>) -> Result<Sampling, Failure> {
    // Other servers take -1, or 0, for no limit.
    let top_k = match fields.whole("top_k")? {
        Some(number) if number < -1 => return Err(fields.fault("top_k", "must not be negative")),
        Some(-1 | 0) => Some(EVERY_TOKEN),
        number => number.map(saturated),
    };
    // A seed is any number; OpenAI allows negative ones.
    let seed = fields.whole("seed")?.map(|seed| seed as u64);
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

fn stop(fields: &Fields<'_>) -> Result<Vec<String>, Failure> {
    let texts = match fields.get("stop") {
        None => Vec::new(),
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(list)) => {
            let text = |(at, value): (usize, &Value)| {
                let text = value.as_str().map(str::to_owned);
                text.ok_or_else(|| wrong(&format!("stop[{at}]"), "a string", value))
            };
            list.iter().take(MOST_STOPS + 1).enumerate().map(text).collect::<Result<_, _>>()?
        }
        Some(other) => return Err(wrong("stop", "a string or a list of strings", other)),
    };
    if texts.len() > MOST_STOPS {
        return Err(fields.fault("stop", format_args!("must not be more than {MOST_STOPS} texts")));
    }
    if texts.iter().any(String::is_empty) {
        return Err(fields.fault("stop", "an empty text would end every reply"));
    }
    if texts.iter().any(|text| text.len() > LONGEST_STOP) {
        let why = format_args!("must not be longer than {LONGEST_STOP} bytes");
        return Err(fields.fault("stop", why));
    }
    Ok(texts)
}

fn max_tokens(fields: &Fields<'_>) -> Result<Option<u64>, Failure> {
    for key in ["max_completion_tokens", "max_tokens"] {
        match fields.whole(key)? {
            None => {}
            Some(number) if number < 1 => return Err(fields.fault(key, "must be at least 1")),
            Some(number) => return Ok(Some(saturated(number))),
        }
    }
    Ok(None)
}

fn delivery(fields: &Fields<'_>) -> Result<Delivery, Failure> {
    let usage = match fields.get("stream_options") {
        None => StreamUsage::Untold,
        Some(options) => match Fields::of(options, "stream_options")?.flag("include_usage")? {
            true => StreamUsage::Told,
            false => StreamUsage::Untold,
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
#[path = "question_tests.rs"]
mod tests;
