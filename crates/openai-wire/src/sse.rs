//! Event streams.

use axum::{
    body::Body,
    http::{HeaderValue, Response, header},
};
use serde_json::Value;

/// The last event of a stream.
pub const DONE: &str = "data: [DONE]\n\n";

/// A response of server-sent events.
pub fn event_stream(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// Appends an event. Line breaks are escaped in JSON, so it is one line.
pub fn push_event(out: &mut String, json: &Value) {
    out.push_str("data: ");
    out.push_str(&json.to_string());
    out.push_str("\n\n");
}

/// Appends a comment as a keep-alive.
pub fn push_comment(out: &mut String) {
    out.push_str(": still writing\n\n");
}
