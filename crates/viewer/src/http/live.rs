//! What changes while the page is open, as server-sent events: rows of runs, and the events of an episode that is being played.

use std::{collections::HashMap, convert::Infallible, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::{Path, State},
    http::{HeaderValue, Request, Response, header},
    routing::get,
};
use bytes::Bytes;
use futures_util::{Stream, stream};
use serde::Deserialize;
use serde_json::json;
use tokio::task::JoinError;

use super::{
    Page,
    attempts::Of,
    reply::{Refused, query},
    scope,
};
use crate::{RunQuery, RunRow, Scope, ViewError, events::EventsPage};

/// How often runs are looked at.
const RUNS: Duration = Duration::from_secs(2);
/// How often events are looked for.
const EVENTS: Duration = Duration::from_millis(300);
/// Looks without a change after which a comment is sent, so that a lost connection is noticed.
const QUIET: u32 = 30;

pub(super) fn routes() -> Router<Page> {
    Router::new()
        .route("/changes", get(changes))
        .route("/runs/{run}/attempts/{attempt}/events/stream", get(events))
}

fn sse(events: impl Stream<Item = Bytes> + Send + 'static) -> Response<Body> {
    use futures_util::StreamExt;
    let mut response = Response::new(Body::from_stream(events.map(Ok::<_, Infallible>)));
    let kind = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn comment() -> Bytes {
    Bytes::from_static(b": nothing new\n\n")
}

/// What a client of `changes` knows.
struct Known {
    page: Page,
    scope: Scope,
    rows: Rows,
    version: u64,
}

type Rows = HashMap<String, RunRow>;

async fn changes(
    State(page): State<Page>,
    request: Request<Body>,
) -> Result<Response<Body>, Refused> {
    let scope = scope(&request);
    // Before the answer begins: a client that reads the runs once it has begun misses nothing.
    let rows = look(&page, &scope).await?;
    let known = Known { page, scope, rows, version: 0 };
    Ok(sse(stream::unfold(known, async |mut known| {
        for _ in 0..QUIET {
            tokio::time::sleep(RUNS).await;
            let rows = look(&known.page, &known.scope).await.ok()?;
            if let Some(event) = known.update(rows) {
                return Some((event, known));
            }
        }
        Some((comment(), known))
    })))
}

/// The rows of all runs, by their ids.
async fn look(page: &Page, scope: &Scope) -> Result<Rows, JoinError> {
    let (page, scope) = (page.clone(), scope.clone());
    tokio::task::spawn_blocking(move || {
        let all = RunQuery { limit: Some(usize::MAX), ..RunQuery::default() };
        let rows = page.library.runs(&all, &scope).runs;
        rows.into_iter().map(|row| (row.id.clone(), row)).collect()
    })
    .await
}

impl Known {
    /// The changes as an event; none where there are none.
    fn update(&mut self, now: Rows) -> Option<Bytes> {
        let changed: Vec<&RunRow> =
            now.values().filter(|row| self.rows.get(&row.id) != Some(*row)).collect();
        let removed: Vec<&String> = self.rows.keys().filter(|id| !now.contains_key(*id)).collect();
        let event = (!changed.is_empty() || !removed.is_empty()).then(|| {
            self.version += 1;
            let data = json!({ "version": self.version, "runs": changed, "removed": removed });
            Bytes::from(format!("event: runs\ndata: {data}\n\n"))
        });
        self.rows = now;
        event
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct From {
    from: Option<u64>,
}

/// How far a client has read.
struct Reader {
    page: Page,
    of: Of,
    scope: Scope,
    next: u64,
    over: bool,
    /// What the model was last seen to have said.
    partial: String,
}

async fn events(
    State(page): State<Page>,
    Path(of): Path<Of>,
    request: Request<Body>,
) -> Result<Response<Body>, Refused> {
    let from: From = query(request.uri())?;
    let last = request.headers().get("last-event-id");
    let last: Option<u64> = match last {
        None => None,
        Some(sent) => {
            let number = sent.to_str().ok().and_then(|text| text.trim().parse().ok());
            let wrong = || ViewError::invalid("Last-Event-ID must be the number of an event");
            Some(number.ok_or_else(wrong)?)
        }
    };
    let next = last.map_or(from.from.unwrap_or(1), |last| last.saturating_add(1)).max(1);
    let reader =
        Reader { page, of, scope: scope(&request), next, over: false, partial: String::new() };
    // What cannot be read is an error now, not in the middle of a stream.
    let (page, of, scope) = (reader.page.clone(), reader.of.clone(), reader.scope.clone());
    tokio::task::spawn_blocking(move || page.index(&of, &scope).map(drop)).await??;
    Ok(sse(stream::unfold(reader, async |mut reader| {
        for _ in 0..QUIET {
            if reader.over {
                return None;
            }
            let (now, events) = reader.look().await.ok()?;
            reader = now;
            if let Some(events) = events {
                return Some((events, reader));
            }
            tokio::time::sleep(EVENTS).await;
        }
        Some((comment(), reader))
    })))
}

impl Reader {
    /// What is new, as events on the wire.
    async fn look(self) -> Result<(Self, Option<Bytes>), Refused> {
        let Self { page, of, scope, next, partial, .. } = self;
        let looked = tokio::task::spawn_blocking(move || {
            // Before the events: what they have is not said twice.
            let now = page.library.partial(&of.attempt);
            let found = page.index(&of, &scope)?.page(next, 200)?;
            Ok::<_, ViewError>((page, of, scope, found, now))
        });
        let (page, of, scope, found, now) = looked.await??;
        let EventsPage { total, complete, events, .. } = found;
        let mut text = String::new();
        for event in &events {
            let data = json!(event);
            text.push_str(&format!("id: {}\nevent: event\ndata: {data}\n\n", event.n));
        }
        let next = next + events.len() as u64;
        let over = complete && next > total;
        let now = if events.is_empty() && !over { now } else { String::new() };
        if now != partial {
            text.push_str(&format!("event: partial\ndata: {}\n\n", json!({ "text": now })));
        }
        if over {
            text.push_str(&format!("event: end\ndata: {{\"total\":{total}}}\n\n"));
        }
        let reader = Self { page, of, scope, next, over, partial: now };
        Ok((reader, (!text.is_empty()).then(|| text.into())))
    }
}
