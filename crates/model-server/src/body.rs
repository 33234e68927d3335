//! Receives the body of a request: bounded in length, time and memory. Does not look inside.

use std::time::Duration;

use axum::{
    body::{Body, BodyDataStream, HttpBody},
    http::{HeaderMap, Request, StatusCode, header},
};
use futures_util::StreamExt;
use tokio::time::timeout;

use crate::{
    ServeOptions,
    admission::{Admission, Room},
    failure::Failure,
};

/// A client that is sending hears the refusal only once it has sent everything, or a good part of it.
const LISTENS_ON: Duration = Duration::from_secs(2);

/// Reads the whole body, and says how much room it takes.
pub(crate) async fn receive(
    request: Request<Body>,
    options: &ServeOptions,
    admission: &Admission,
) -> Result<(Vec<u8>, Room), Failure> {
    let (head, body) = request.into_parts();
    is_json(&head.headers)?;
    let announced = body.size_hint().lower();
    let mut stream = body.into_data_stream();
    let too_long = || {
        let message = format!("the body must not be longer than {} bytes", options.max_body);
        Failure::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    };
    if announced > options.max_body as u64 {
        // One that waits for permission to send needs nobody who listens.
        if !head.headers.contains_key(header::EXPECT) {
            discard(stream).await;
        }
        return Err(too_long());
    }
    let mut room = admission.room();
    let gathering = gather(&mut stream, options.max_body, &mut room);
    let received = timeout(options.body_timeout, gathering)
        .await
        .map_err(|_| Failure::new(StatusCode::REQUEST_TIMEOUT, "the body did not come in time"))?;
    match received {
        Ok(Some(body)) => Ok((body, room)),
        refused => {
            drop(room);
            discard(stream).await;
            Err(refused.err().unwrap_or_else(too_long))
        }
    }
}

/// The body, or nothing where it is too long.
async fn gather(
    stream: &mut BodyDataStream,
    most: usize,
    room: &mut Room,
) -> Result<Option<Vec<u8>>, Failure> {
    let mut body = Vec::new();
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|_| Failure::request("broke off"))?;
        let length = body.len() + chunk.len();
        if length > most {
            return Ok(None);
        }
        room.grow(length)?;
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}

async fn discard(mut stream: BodyDataStream) {
    let rest = async { while let Some(Ok(_)) = stream.next().await {} };
    let _ = timeout(LISTENS_ON, rest).await;
}

/// A page of a browser can send other types to anybody without asking first.
fn is_json(headers: &HeaderMap) -> Result<(), Failure> {
    let Some(kind) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let kind = kind.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if kind.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let message = "the content type must be application/json";
    Err(Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message))
}
