//! The Connect protocol with JSON: unary procedures, and streams of length-prefixed messages.

use std::{io, time::Duration};

use axum::{
    body::{Body, Bytes},
    http::{HeaderMap, HeaderValue, Response, StatusCode, header},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use crate::{
    bounded_json,
    error::{ApiError, Code, respond},
    live::LiveEnd,
};

/// Length of a message's prefix: flags and length.
const PREFIX: usize = 5;
/// The flag of the last message of a stream.
const END: u8 = 2;

/// The response of a unary procedure.
pub(crate) fn unary(answer: Result<Value, ApiError>) -> Response<Body> {
    match answer {
        Ok(value) => respond(StatusCode::OK, &value),
        Err(error) => error.into_connect_response(),
    }
}

/// Parses the message of a unary request.
pub(crate) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    bounded_json::parse(body, "message")
}

/// Parses the only message of a request for a server stream.
pub(crate) fn parse_first<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    let (message, _) = split(body)?.ok_or_else(|| ApiError::invalid("there is no message"))?;
    parse(message)
}

/// A message, and what follows it.
type Split<'a> = (&'a [u8], &'a [u8]);

/// Splits the first message off; `None` where it is incomplete.
pub(crate) fn split(body: &[u8]) -> Result<Option<Split<'_>>, ApiError> {
    let Some((prefix, rest)) = body.split_first_chunk::<PREFIX>() else { return Ok(None) };
    let [flags, a, b, c, d] = *prefix;
    if flags & 1 != 0 {
        return Err(ApiError::invalid("compressed messages are not supported"));
    }
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    Ok(rest.split_at_checked(length))
}

/// A message of a stream.
pub(crate) fn message(value: &Value) -> Bytes {
    envelope(0, value)
}

/// The last message of a stream.
pub(crate) fn end(error: Option<&ApiError>) -> Bytes {
    let value = match error {
        None => json!({}),
        Some(error) => json!({ "error": error.connect_body() }),
    };
    envelope(END, &value)
}

fn envelope(flags: u8, value: &Value) -> Bytes {
    let body = value.to_string();
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes();
    let mut bytes = Vec::with_capacity(PREFIX + body.len());
    bytes.push(flags);
    bytes.extend_from_slice(&length);
    bytes.extend_from_slice(body.as_bytes());
    bytes.into()
}

/// The response of a streaming procedure. An error of the stream cuts the connection.
pub(crate) fn stream(
    messages: impl futures_util::Stream<Item = io::Result<Bytes>> + Send + 'static,
) -> Response<Body> {
    let mut response = Response::new(Body::from_stream(messages));
    let kind = HeaderValue::from_static("application/connect+json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// The response of a streaming procedure that failed before it began.
pub(crate) fn failed_stream(error: &ApiError) -> Response<Body> {
    let end = end(Some(error));
    stream(futures_util::stream::once(async move { Ok(end) }))
}

/// How long the client waits for the whole procedure.
pub(crate) fn deadline(headers: &HeaderMap) -> Result<Option<Duration>, ApiError> {
    let Some(value) = headers.get("connect-timeout-ms") else { return Ok(None) };
    let millis = value.to_str().ok().and_then(|text| text.parse().ok());
    let millis = millis.filter(|millis: &u64| *millis < 10_000_000_000);
    let error = || ApiError::invalid("the header Connect-Timeout-Ms has no number of milliseconds");
    millis.map(|millis| Some(Duration::from_millis(millis))).ok_or_else(error)
}

/// Completes at the client's deadline, with the last message of a stream that has reached it; never without one.
pub(crate) async fn reached(deadline: Option<Instant>) -> Bytes {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
    let message = "the time limit of the request was reached";
    end(Some(&ApiError::new(Code::DeadlineExceeded, message)))
}

/// The end of a stream whose sandbox is gone: said where the server ends, else the connection is cut.
pub(crate) fn cut(of: &LiveEnd, why: io::Error) -> io::Result<Bytes> {
    match of.why() {
        Some(error) => Ok(self::end(Some(&error))),
        None => Err(why),
    }
}

/// How often a stream without messages sends a sign of life.
pub(crate) fn keepalive(headers: &HeaderMap) -> Duration {
    const DEFAULT: Duration = Duration::from_secs(90);
    let value = headers.get("keepalive-ping-interval").and_then(|value| value.to_str().ok());
    let seconds = value.and_then(|text| text.parse().ok()).filter(|seconds| *seconds > 0);
    seconds.map_or(DEFAULT, Duration::from_secs).min(DEFAULT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_split_as_they_were_joined() {
        let one = message(&json!({ "a": 1 }));
        let both = [one.as_ref(), end(None).as_ref()].concat();
        let (first, rest) = split(&both).unwrap().unwrap();
        assert_eq!(parse::<Value>(first).unwrap(), json!({ "a": 1 }));
        assert_eq!(rest[0], END);
        for cut in 0..one.len() {
            assert_eq!(split(&one[..cut]).unwrap(), None);
        }
        assert!(split(&[1, 0, 0, 0, 0]).is_err());
        assert!(parse_first::<Value>(&[0, 255, 255, 255, 255, 1]).is_err());
    }
}
