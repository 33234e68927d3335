//! The events of an episode as a stream of server-sent events. They are read from their file as the client reads them, so a
//! slow client costs the memory of one event.

use std::{io, time::Duration};

use ::episodes::{Episode, EventReader, NumberedEvent, Ready, State};
use axum::{
    body::Body,
    http::{HeaderValue, Response, StatusCode, header},
    response::IntoResponse,
};
use bytes::Bytes;
use futures_util::stream;

use crate::error::ApiError;

/// Time without an event after which a comment is sent, so that proxies keep the connection and a client notices its loss.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// The stream of the events after this number. It ends after the last event; where that one is known already, there is no
/// content, which tells a browser not to ask again.
pub(super) async fn events(episode: &Episode, after: u64) -> Result<Response<Body>, ApiError> {
    // Before the events: an episode that ends in between has written all.
    let is_running = episode.state() == State::Running;
    let mut reader = episode.events_from(after).await?;
    let mut first = None;
    if !is_running {
        let read = reader.next().await.map_err(|source| {
            ApiError::from(::episodes::Error::Storage {
                what: "cannot read the events".into(),
                source,
            })
        })?;
        match read {
            None => return Ok(StatusCode::NO_CONTENT.into_response()),
            read => first = read,
        }
    }
    let events = stream::try_unfold((reader, first), |(reader, first)| next(reader, first));
    let mut response = Response::new(Body::from_stream(events));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// What is left to send.
type Rest = (EventReader, Option<NumberedEvent>);

async fn next(
    mut reader: EventReader,
    first: Option<NumberedEvent>,
) -> io::Result<Option<(Bytes, Rest)>> {
    if let Some(event) = first {
        return Ok(Some((shown(&event), (reader, None))));
    }
    loop {
        if tokio::time::timeout(HEARTBEAT, reader.ready()).await.is_err() {
            return Ok(Some((Bytes::from_static(b": no event yet\n\n"), (reader, None))));
        }
        // Events that the client has are skipped one by one, so that each wait has its heartbeat.
        match reader.read_ready().await? {
            Ready::Skipped => {}
            Ready::Event(event) => return Ok(Some((shown(&event), (reader, None)))),
            Ready::End => return Ok(None),
        }
    }
}

/// An event on the wire. It is one line, so it needs no further encoding.
fn shown(event: &NumberedEvent) -> Bytes {
    format!("id: {}\ndata: {}\n\n", event.number, event.json).into()
}
