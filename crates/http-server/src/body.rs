//! Receives the body of a request: bounded in length, time and memory. Does not parse it.

use std::time::Duration;

use axum::{
    body::{Body, BodyDataStream, HttpBody},
    http::{HeaderMap, Request, StatusCode, header},
};
use futures_util::StreamExt;
use tokio::time::timeout;

use crate::{MemoryBudget, MemoryPermit};

/// Limits of one body.
#[derive(Clone, Copy, Debug)]
pub struct BodyLimits {
    /// Maximum bytes.
    pub max_bytes: usize,
    /// Time limit for receiving it.
    pub timeout: Duration,
}

/// Why a body was not received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// It is not JSON.
    #[error("the content type must be application/json")]
    ContentType,
    /// It is longer than this many bytes.
    #[error("the body must not be longer than {0} bytes")]
    TooLong(usize),
    /// It did not arrive in time.
    #[error("timed out receiving the body")]
    TimedOut,
    /// The connection was closed.
    #[error("the body was cut off")]
    CutOff,
    /// Other bodies take all memory.
    #[error("too many large requests at once")]
    OutOfMemory,
}

impl BodyError {
    /// The status of the response.
    pub fn status(self) -> StatusCode {
        match self {
            Self::ContentType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooLong(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TimedOut => StatusCode::REQUEST_TIMEOUT,
            Self::CutOff => StatusCode::BAD_REQUEST,
            Self::OutOfMemory => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// How long a rejected body is read and discarded: clients read the error only after they have sent (much of) it.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(2);

/// Reads the whole JSON body of a request, with a permit for its memory.
///
/// # Errors
/// If it is not JSON by its content type, exceeds a limit, or is cut off.
pub async fn receive(
    request: Request<Body>,
    limits: BodyLimits,
    memory: &MemoryBudget,
) -> Result<(Vec<u8>, MemoryPermit), BodyError> {
    let (head, body) = request.into_parts();
    is_json(&head.headers)?;
    let announced = body.size_hint().lower();
    let mut stream = body.into_data_stream();
    let too_long = BodyError::TooLong(limits.max_bytes);
    if announced > limits.max_bytes as u64 {
        // A client that waits for `100 Continue` sends nothing.
        if !head.headers.contains_key(header::EXPECT) {
            discard(stream).await;
        }
        return Err(too_long);
    }
    let mut permit = memory.permit();
    let reading = read(&mut stream, limits.max_bytes, &mut permit);
    let received = timeout(limits.timeout, reading).await.map_err(|_| BodyError::TimedOut)?;
    match received {
        Ok(Some(body)) => Ok((body, permit)),
        refused => {
            drop(permit);
            discard(stream).await;
            Err(refused.err().unwrap_or(too_long))
        }
    }
}

/// The body, or `None` where it is too long.
async fn read(
    stream: &mut BodyDataStream,
    most: usize,
    permit: &mut MemoryPermit,
) -> Result<Option<Vec<u8>>, BodyError> {
    let mut body = Vec::new();
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|_| BodyError::CutOff)?;
        let length = body.len() + chunk.len();
        if length > most {
            return Ok(None);
        }
        permit.grow(length).ok_or(BodyError::OutOfMemory)?;
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}

async fn discard(mut stream: BodyDataStream) {
    let rest = async { while let Some(Ok(_)) = stream.next().await {} };
    let _ = timeout(DISCARD_TIMEOUT, rest).await;
}

/// A web page can send other content types to any origin without a preflight request.
fn is_json(headers: &HeaderMap) -> Result<(), BodyError> {
    let Some(kind) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let kind = kind.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if kind.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(BodyError::ContentType)
}
