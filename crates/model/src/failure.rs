//! What a server's refusal means, and its words in a form fit to be shown.
//!
//! Everything in a refusal is hostile: it is shortened, put on one line and cleared of secrets.

use std::time::{Duration, SystemTime};

use reqwest::header::{HeaderMap, RETRY_AFTER};
use serde_json::{Value, json};

use crate::{Endpoint, Error, overflow};

/// The longest message shown, in characters.
const MAX_MESSAGE: usize = 500;

/// A refusal as it came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The HTTP status, or the one that fits an error inside a stream.
    pub(crate) status: u16,
    pub(crate) retry_after: Option<Duration>,
    /// Where the server wants us to go instead.
    pub(crate) location: Option<String>,
    /// What was asked for.
    pub(crate) path: String,
    pub(crate) body: String,
}

impl Failure {
    /// An error a server reports in the middle of a reply, where no status can be sent any more.
    pub(crate) fn in_stream(event: &Value) -> Self {
        Self { status: status_of(event), body: event.to_string(), ..Self::default() }
    }

    /// When to ask again: seconds, milliseconds or a date.
    pub(crate) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let millis = text("retry-after-ms").and_then(|text| text.trim().parse().ok());
        if let Some(millis) = millis {
            return Some(Duration::from_millis(millis));
        }
        let text = text(RETRY_AFTER.as_str())?.trim();
        if let Ok(seconds) = text.parse::<f64>() {
            return Duration::try_from_secs_f64(seconds).ok();
        }
        let date = httpdate::parse_http_date(text).ok()?;
        Some(date.duration_since(now).unwrap_or_default())
    }

    /// What it means.
    pub(crate) fn error(&self, endpoint: &Endpoint) -> Error {
        let json: Value = serde_json::from_str(&self.body).unwrap_or_default();
        let message = self.message(&json, endpoint);
        let status = self.status;
        if let Some(numbers) = overflow::recognise(status, &self.body) {
            return Error::Overflow { numbers, message };
        }
        match status {
            401 | 403 => Error::Key { status, message },
            300..400 => Error::Settings(message),
            // No waiting brings the money back.
            429 | 500 if lacks_money(&json) => Error::Refused { status, message },
            501 | 505 => Error::Refused { status, message },
            408 | 409 | 425 | 429 | 500.. => {
                Error::Busy { status, message, retry_after: self.retry_after }
            }
            400..500 => Error::Refused { status, message },
            _ => Error::Protocol(format!("status {status}: {message}")),
        }
    }

    fn message(&self, json: &Value, endpoint: &Endpoint) -> String {
        let mut text = words(json).unwrap_or_else(|| self.body.clone());
        if (300..400).contains(&self.status) {
            let to = self.location.as_deref().unwrap_or("nowhere");
            // A query may repeat the one of our address, with a key in it.
            let to = to.split(['?', '#']).next().unwrap_or_default();
            text = format!("the server sends us elsewhere ({to}): give that address as base URL");
        }
        let mut text = tidy(&endpoint.hide(&text));
        if text.is_empty() {
            text = "it gives no reason".into();
        }
        if self.status == 404 {
            // Most often the version is missing in the base URL, and the server says nothing but this.
            let path = tidy(&endpoint.hide(&self.path));
            text = format!(
                "{text} (asked for {path}; is the model's name right, and the address up to /v1?)"
            );
        }
        text
    }
}

/// One line without control characters, of bounded length.
pub(crate) fn tidy(text: &str) -> String {
    // A bound before the work: a refusal may be long.
    let text: String = text.chars().take(8 * MAX_MESSAGE).collect();
    let text = text.split(|c: char| c.is_whitespace() || c.is_control());
    let text = text.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(MAX_MESSAGE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// The server's own words, wherever it puts them.
fn words(json: &Value) -> Option<String> {
    // Gemini answers with a list.
    let json = json.as_array().and_then(|items| items.first()).unwrap_or(json);
    let error = json.get("error").filter(|error| !error.is_null());
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let message = text(error.and_then(|error| error.get("message")));
    if let Some(message) = message {
        // A router's own words say little where it passes on another server's.
        let raw = text(error.and_then(|error| error.pointer("/metadata/raw")));
        return Some(raw.map_or(message.clone(), |raw| format!("{message}: {raw}")));
    }
    if let Some(message) = text(error) {
        return Some(message);
    }
    match json.get("detail") {
        Some(Value::String(detail)) => return Some(detail.clone()),
        Some(Value::Array(items)) => return Some(details(items)),
        _ => {}
    }
    text(json.get("message"))
}

/// The list of faults FastAPI servers give.
fn details(items: &[Value]) -> String {
    let fault = |item: &Value| {
        let place = item.get("loc").and_then(Value::as_array).cloned().unwrap_or_default();
        let place: Vec<_> = place.iter().filter_map(Value::as_str).collect();
        let message = item.get("msg").and_then(Value::as_str).unwrap_or_default();
        format!("{}: {message}", place.join("."))
    };
    items.iter().take(5).map(fault).collect::<Vec<_>>().join("; ")
}

fn lacks_money(json: &Value) -> bool {
    let error = json.get("error").unwrap_or(json);
    ["code", "type"].iter().any(|name| error.get(name) == Some(&json!("insufficient_quota")))
}

/// The status that fits an error inside a stream.
fn status_of(event: &Value) -> u16 {
    let error = event.get("error").filter(|error| error.is_object()).unwrap_or(event);
    let code = error.get("code").or_else(|| error.get("status"));
    let number = code.and_then(|code| code.as_u64().or_else(|| code.as_str()?.parse().ok()));
    if let Some(number @ 400..600) = number {
        return u16::try_from(number).unwrap_or(500);
    }
    let kind = error.get("type").and_then(Value::as_str).unwrap_or_default().to_lowercase();
    match kind.as_str() {
        "overloaded_error" => 529,
        "rate_limit_error" => 429,
        "authentication_error" => 401,
        "permission_error" => 403,
        "not_found_error" => 404,
        "invalid_request_error" | "badrequesterror" => 400,
        // Somebody who breaks off in the middle is broken, not offended.
        _ => 500,
    }
}

#[cfg(test)]
#[path = "failure_tests.rs"]
mod tests;
