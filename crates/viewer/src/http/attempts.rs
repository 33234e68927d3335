//! One attempt: all about it, its events and turns by range, what it changed, and its files.

use axum::{
    Router,
    body::Body,
    extract::{Path, State},
    http::{Request, Response},
    routing::get,
};
use serde::Deserialize;
use serde_json::json;

use super::{
    Page, content,
    reply::{Refused, query},
    scope,
};
use crate::{
    Code, Scope, ViewError, changes,
    events::TurnsPage,
    files::{self, Places},
};

pub(super) fn routes() -> Router<Page> {
    let at = |rest: &str| format!("/runs/{{run}}/attempts/{{attempt}}{rest}");
    Router::new()
        .route(&at(""), get(attempt))
        .route(&at("/events"), get(events))
        .route(&at("/events/{n}"), get(event))
        .route(&at("/turns"), get(turns))
        .route(&at("/turns/{turn}/changes"), get(turn_changes))
        .route(&at("/changes"), get(all_changes))
        .route(&at("/files"), get(listed))
        .route(&at("/files/{area}/{*path}"), get(file))
}

/// Which attempt.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Of {
    pub(super) run: String,
    pub(super) attempt: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Range {
    from: Option<u64>,
    limit: Option<usize>,
}

impl Page {
    /// The index of an attempt's events.
    pub(super) fn index(
        &self,
        of: &Of,
        scope: &Scope,
    ) -> Result<std::sync::Arc<crate::events::EventIndex>, ViewError> {
        let (found, loaded) = self.library.run_of(&of.run, &of.attempt)?;
        let (_, attempt) = loaded.table.find(&of.attempt, scope)?;
        self.library.events(&found.id, attempt)
    }

    pub(super) fn places(&self, of: &Of, scope: &Scope) -> Result<Places, ViewError> {
        let (found, loaded) = self.library.run_of(&of.run, &of.attempt)?;
        let (_, attempt) = loaded.table.find(&of.attempt, scope)?;
        Ok(Places::of(&found, attempt))
    }
}

async fn attempt(
    State(page): State<Page>,
    Path(of): Path<Of>,
    request: Request<Body>,
) -> Result<Response<Body>, Refused> {
    let scope = scope(&request);
    page.answer(move |page| {
        page.library.attempt_detail(&of.run, &of.attempt, &page.options, &scope)
    })
    .await
}

async fn events(
    State(page): State<Page>,
    Path(of): Path<Of>,
    request: Request<Body>,
) -> Result<Response<Body>, Refused> {
    let (range, scope) = (query::<Range>(request.uri())?, scope(&request));
    page.answer(move |page| {
        let limit = range.limit.unwrap_or(200);
        page.index(&of, &scope)?.page(range.from.unwrap_or(1), limit)
    })
    .await
}

async fn event(
    State(page): State<Page>,
    Path((run, attempt, n)): Path<(String, String, u64)>,
    request: Request<Body>,
) -> Result<Response<Body>, Refused> {
    let scope = scope(&request);
    page.answer(move |page| {
        let index = page.index(&Of { run, attempt }, &scope)?;
        Ok(json!({ "n": n, "event": index.event(n)? }))
    })
    .await
}

async fn turns(
    State(page): State<Page>,
    Path(of): Path<Of>,
    request: Request<Body>,
) -> Result<Response<Body>, Refused> {
    let (range, scope) = (query::<Range>(request.uri())?, scope(&request));
    page.answer(move |page| {
        let index = page.index(&of, &scope)?;
        let from = usize::try_from(range.from.unwrap_or(0)).unwrap_or(usize::MAX);
        let turns = TurnsPage::of(index.turns(), from, range.limit.unwrap_or(5000));
        serde_json::to_value(turns)
            .map_err(|error| ViewError::new(Code::Internal, error.to_string()))
    })
    .await
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ChangesQuery {
    /// The response of the turn, where several turns have its number.
    event: Option<u64>,
}

async fn turn_changes(
    State(page): State<Page>,
    Path((run, attempt, turn)): Path<(String, String, u32)>,
    request: Request<Body>,
) -> Result<Response<Body>, Refused> {
    let (wanted, scope) = (query::<ChangesQuery>(request.uri())?, scope(&request));
    page.answer(move |page| {
        changes::of_turn(&*page.index(&Of { run, attempt }, &scope)?, turn, wanted.event)
    })
    .await
}

async fn all_changes(
    State(page): State<Page>,
    Path(of): Path<Of>,
    request: Request<Body>,
) -> Result<Response<Body>, Refused> {
    let scope = scope(&request);
    page.answer(move |page| Ok(changes::all(&*page.index(&of, &scope)?))).await
}

async fn listed(
    State(page): State<Page>,
    Path(of): Path<Of>,
    request: Request<Body>,
) -> Result<Response<Body>, Refused> {
    let scope = scope(&request);
    page.answer(move |page| Ok(files::list(&page.places(&of, &scope)?))).await
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct FileQuery {
    text: Option<String>,
    download: Option<String>,
    from: u64,
    limit: Option<usize>,
}

async fn file(
    State(page): State<Page>,
    Path((run, attempt, area, path)): Path<(String, String, String, String)>,
    request: Request<Body>,
) -> Result<Response<Body>, Refused> {
    let (wanted, scope) = (query::<FileQuery>(request.uri())?, scope(&request));
    let opening = page.clone();
    let name = path.clone();
    let opened = tokio::task::spawn_blocking(move || {
        opening.places(&Of { run, attempt }, &scope)?.open(&area, &path)
    });
    let file = opened.await??;
    if wanted.text.is_some() {
        return page
            .answer(move |_| {
                let limit = wanted.limit.unwrap_or(256 << 10);
                files::text(&file, wanted.from, limit)
                    .map_err(|error| ViewError::read(std::path::Path::new(&name), &error))
            })
            .await;
    }
    Ok(content::send(file, &name, wanted.download.is_some(), request.headers())?)
}
