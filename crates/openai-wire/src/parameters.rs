//! Parameters of a request: sampling, length, delivery.

use model::Sampling;
use serde_json::Value;

use crate::{ApiError, Fields, wrong};

/// How the response is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// As one document.
    Whole,
    /// As events.
    Stream(StreamUsage),
}

/// Whether a stream ends with the token usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamUsage {
    /// It does.
    Included,
    /// It does not.
    Omitted,
}

/// Maximum stop sequences.
const MAX_STOPS: usize = 16;
/// Maximum bytes of a stop sequence. They are searched after every token.
const MAX_STOP_BYTES: usize = 1024;

/// More tokens than any vocabulary has, in a range every server accepts.
pub const UNLIMITED_TOP_K: u64 = i32::MAX as u64;

/// The sampling parameters.
///
/// # Errors
/// If one has the wrong type or is out of range.
pub fn sampling(fields: &Fields<'_>) -> Result<Sampling, ApiError> {
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

/// The client's sampling parameters, with the server's as defaults.
#[must_use]
pub fn with_defaults(client: Sampling, server: &Sampling) -> Sampling {
    let stop = if client.stop.is_empty() { server.stop.clone() } else { client.stop };
    Sampling {
        temperature: client.temperature.or(server.temperature),
        top_p: client.top_p.or(server.top_p),
        top_k: client.top_k.or(server.top_k),
        min_p: client.min_p.or(server.min_p),
        repetition_penalty: client.repetition_penalty.or(server.repetition_penalty),
        seed: client.seed.or(server.seed),
        stop,
        ..server.clone()
    }
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

/// The most tokens of a response, under the new or the old name.
///
/// # Errors
/// If it is not a positive integer.
pub fn max_tokens(fields: &Fields<'_>) -> Result<Option<u64>, ApiError> {
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
///
/// # Errors
/// If a field has the wrong type.
pub fn delivery(fields: &Fields<'_>) -> Result<Delivery, ApiError> {
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
