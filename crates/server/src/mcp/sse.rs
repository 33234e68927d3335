//! Streams of events: the answers to a request, with signs of life between them.

use std::{convert::Infallible, time::Duration};

use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, Response, header},
};
use futures_util::stream::unfold;
use mcp::ServerJsonRpcMessage;
use serde_json::Value;
use tokio::{sync::mpsc, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{EVENTS, sessions::Attached};

/// How often a silent stream shows that it is alive. Writing to a client that is gone fails, and ends the stream.
const ALIVE: Duration = Duration::from_secs(15);
/// A comment, which clients ignore.
const COMMENT: &[u8] = b":\n\n";

/// An event with a message. JSON has no line breaks.
fn event(message: &Value) -> Bytes {
    format!("event: message\ndata: {message}\n\n").into()
}

fn response(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(EVENTS));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Proxies of this kind would hold events back.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// The answers to a request, until the last.
pub(crate) fn answers(
    first: Option<&Value>,
    answers: mpsc::Receiver<ServerJsonRpcMessage>,
    attached: Attached,
) -> Response<Body> {
    // At once, so that the client gets the head.
    let first = first.map_or_else(|| Bytes::from_static(COMMENT), event);
    let stream =
        unfold((Some(first), answers, attached), async |(first, mut answers, attached)| {
            if let Some(first) = first {
                return Some((Ok::<_, Infallible>(first), (None, answers, attached)));
            }
            let next = match timeout(ALIVE, answers.recv()).await {
                Ok(Some(message)) => event(&serde_json::json!(message)),
                Ok(None) => return None,
                Err(_) => Bytes::from_static(COMMENT),
            };
            Some((Ok(next), (None, answers, attached)))
        });
    response(Body::from_stream(stream))
}

/// A stream without messages, until the session ends.
pub(crate) fn idle(ended: CancellationToken, attached: Attached) -> Response<Body> {
    let start = Duration::ZERO;
    let stream = unfold((start, ended, attached), async |(wait, ended, attached)| {
        match timeout(wait, ended.cancelled()).await {
            Ok(()) => None,
            Err(_) => {
                let comment = Bytes::from_static(COMMENT);
                Some((Ok::<_, Infallible>(comment), (ALIVE, ended, attached)))
            }
        }
    });
    response(Body::from_stream(stream))
}
