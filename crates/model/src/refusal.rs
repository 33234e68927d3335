//! What a server's refusal means, and its message in a form fit to be shown.
//!
//! Everything in a refusal is untrusted: it is shortened, put on one line and cleared of secrets.

use std::time::{Duration, SystemTime};

use lis_http::header::{HeaderMap, RETRY_AFTER};
use serde_json::{Value, json};

use crate::{Endpoint, Error, overflow};

/// The longest message shown, in characters.
const MAX_MESSAGE: usize = 500;

/// A refusal as received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The HTTP status, or the matching one for an error inside a stream.
    pub(crate) status: u16,
    pub(crate) retry_after: Option<Duration>,
    /// The target of a redirect.
    pub(crate) location: Option<String>,
    /// The requested path.
    pub(crate) path: String,
    pub(crate) body: String,
}

impl Refusal {
    /// An error reported inside a stream, where the status can no longer be sent.
    pub(crate) fn in_stream(event: &Value) -> Self {
        Self { status: status_of(event), body: event.to_string(), ..Self::default() }
    }

    /// The requested wait: given in seconds, milliseconds or as a date.
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

    /// The error it means.
    pub(crate) fn error(&self, endpoint: &Endpoint) -> Error {
        let json: Value = serde_json::from_str(&self.body).unwrap_or_default();
        let message = self.message(&json, endpoint);
        let status = self.status;
        if let Some(numbers) = overflow::recognize(status, &self.body) {
            return Error::Overflow { numbers, message };
        }
        match status {
            401 if !endpoint.has_key() => Error::NoKey { status, message },
            401 | 403 => Error::Key { status, message },
            300..400 => Error::Settings(message),
            // Waiting does not restore the quota.
            429 | 500 if is_out_of_quota(&json) => Error::Refused { status, message },
            501 | 505 => Error::Refused { status, message },
            408 | 409 | 425 | 429 | 500.. => {
                Error::Busy { status, message, retry_after: self.retry_after }
            }
            400..500 => Error::Refused { status, message },
            _ => Error::Protocol(format!("status {status}: {message}")),
        }
    }

    fn message(&self, json: &Value, endpoint: &Endpoint) -> String {
        let mut text = message_of(json).unwrap_or_else(|| self.body.clone());
        if (300..400).contains(&self.status) {
            let to = self.location.as_deref().unwrap_or("nowhere");
            // The query may repeat that of our address, with a key in it.
            let to = to.split(['?', '#']).next().unwrap_or_default();
            text = format!("the server redirects to {to}: use that address as the base URL");
        }
        let mut text = one_line(&endpoint.hide(&text));
        if text.is_empty() {
            text = "it gives no reason".into();
        }
        if self.status == 404 {
            // Most often the version is missing in the base URL, and the server gives no other hint.
            let path = one_line(&endpoint.hide(&self.path));
            text = format!(
                "{text} (asked for {path}; is the model's name right, and the address up to /v1?)"
            );
        }
        text
    }
}

/// One line without control characters, of bounded length.
pub(crate) fn one_line(text: &str) -> String {
    // Bounded first: a refusal may be long.
    let text: String = text.chars().take(8 * MAX_MESSAGE).collect();
    let text = text.split(|c: char| c.is_whitespace() || c.is_control());
    let text = text.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(MAX_MESSAGE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// The server's message, wherever it puts it.
fn message_of(json: &Value) -> Option<String> {
    // Gemini sends a list.
    let json = json.as_array().and_then(|items| items.first()).unwrap_or(json);
    let error = json.get("error").filter(|error| !error.is_null());
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let message = text(error.and_then(|error| error.get("message")));
    if let Some(message) = message {
        // A router's own message says little where it forwards another server's.
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

/// The list of errors FastAPI servers send.
fn details(items: &[Value]) -> String {
    let fault = |item: &Value| {
        let path = item.get("loc").and_then(Value::as_array).cloned().unwrap_or_default();
        let path: Vec<_> = path.iter().filter_map(Value::as_str).collect();
        let message = item.get("msg").and_then(Value::as_str).unwrap_or_default();
        format!("{}: {message}", path.join("."))
    };
    items.iter().take(5).map(fault).collect::<Vec<_>>().join("; ")
}

fn is_out_of_quota(json: &Value) -> bool {
    let error = json.get("error").unwrap_or(json);
    ["code", "type"].iter().any(|name| error.get(name) == Some(&json!("insufficient_quota")))
}

/// The status that matches an error inside a stream.
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
        // A server that stops in the middle has failed; the request was accepted.
        _ => 500,
    }
}

#[cfg(test)]
#[path = "refusal_tests.rs"]
mod tests;
