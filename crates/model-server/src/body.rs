//! Receives the body of a request: bounded in length, time and memory. Does not parse it.

use std::time::Duration;

use axum::{
    body::{Body, BodyDataStream, HttpBody},
    http::{HeaderMap, Request, StatusCode, header},
};
use futures_util::StreamExt;
use tokio::time::timeout;

use crate::{
    ServeOptions,
    admission::{Admission, MemoryPermit},
    api_error::ApiError,
};

/// How long a rejected body is read and discarded: clients read the error only after they have sent (much of) it.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(2);

/// Reads the whole body, with a permit for its memory.
pub(crate) async fn receive(
    request: Request<Body>,
    options: &ServeOptions,
    admission: &Admission,
) -> Result<(Vec<u8>, MemoryPermit), ApiError> {
    let (head, body) = request.into_parts();
    is_json(&head.headers)?;
    let announced = body.size_hint().lower();
    let mut stream = body.into_data_stream();
    let too_long = || {
        let message = format!("the body must not be longer than {} bytes", options.max_body);
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    };
    if announced > options.max_body as u64 {
        // A client that waits for `100 Continue` sends nothing.
        if !head.headers.contains_key(header::EXPECT) {
            discard(stream).await;
        }
        return Err(too_long());
    }
    let mut permit = admission.memory();
    let reading = read(&mut stream, options.max_body, &mut permit);
    let received = timeout(options.body_timeout, reading)
        .await
        .map_err(|_| ApiError::new(StatusCode::REQUEST_TIMEOUT, "timed out receiving the body"))?;
    match received {
        Ok(Some(body)) => Ok((body, permit)),
        refused => {
            drop(permit);
            discard(stream).await;
            Err(refused.err().unwrap_or_else(too_long))
        }
    }
}

/// The body, or `None` where it is too long.
async fn read(
    stream: &mut BodyDataStream,
    most: usize,
    permit: &mut MemoryPermit,
) -> Result<Option<Vec<u8>>, ApiError> {
    let mut body = Vec::new();
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|_| ApiError::request("was cut off"))?;
        let length = body.len() + chunk.len();
        if length > most {
            return Ok(None);
        }
        permit.grow(length)?;
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}

async fn discard(mut stream: BodyDataStream) {
    let rest = async { while let Some(Ok(_)) = stream.next().await {} };
    let _ = timeout(DISCARD_TIMEOUT, rest).await;
}

/// A web page can send other content types to any origin without a preflight request.
fn is_json(headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(kind) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let kind = kind.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if kind.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let message = "the content type must be application/json";
    Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message))
}
