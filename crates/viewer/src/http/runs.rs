//! Runs: the table, one of them, its attempts and its training.

use axum::{
    Router,
    body::Body,
    extract::{Path, State},
    http::{Request, Response},
    routing::get,
};
use serde::Deserialize;

use super::{
    Page,
    reply::{Refused, query},
    scope,
};
use crate::{
    RunQuery,
    compare::{self, CompareQuery},
    formats,
    table::AttemptQuery,
};

pub(super) fn routes() -> Router<Page> {
    Router::new()
        .route("/runs", get(runs))
        .route("/runs/{run}", get(run))
        .route("/runs/{run}/attempts", get(attempts))
        .route("/runs/{run}/metrics", get(metrics))
        .route("/compare", get(compared))
        .route("/compare/problems", get(problems))
        .route("/runs/{run}/steps", get(steps))
        .route("/runs/{run}/groups", get(groups))
}

async fn runs(State(page): State<Page>, request: Request<Body>) -> Result<Response<Body>, Refused> {
    let (wanted, scope) = (query::<RunQuery>(request.uri())?, scope(&request));
    page.answer(move |page| Ok(page.library.runs(&wanted, &scope))).await
}

async fn run(
    State(page): State<Page>,
    Path(id): Path<String>,
    request: Request<Body>,
) -> Result<Response<Body>, Refused> {
    let scope = scope(&request);
    page.answer(move |page| page.library.run_detail(&id, &page.options, &scope)).await
}

async fn attempts(
    State(page): State<Page>,
    Path(id): Path<String>,
    request: Request<Body>,
) -> Result<Response<Body>, Refused> {
    let (wanted, scope) = (query::<AttemptQuery>(request.uri())?, scope(&request));
    page.answer(move |page| {
        let (_, loaded) = page.library.run(&id)?;
        // Rows are borrowed: they become JSON here.
        serde_json::to_value(loaded.table.page(&wanted, &scope))
            .map_err(|error| crate::ViewError::new(crate::Code::Internal, error.to_string()))
    })
    .await
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PartQuery {
    step: Option<u64>,
    set: Option<String>,
    offset: usize,
    limit: Option<usize>,
}

async fn steps(
    State(page): State<Page>,
    Path(id): Path<String>,
    request: Request<Body>,
) -> Result<Response<Body>, Refused> {
    let (part, scope) = (query::<PartQuery>(request.uri())?, scope(&request));
    page.answer(move |page| {
        let (_, loaded) = page.library.run(&id)?;
        let limit = part.limit.unwrap_or(200).clamp(1, 10_000);
        Ok(formats::steps(&loaded.table, &scope, part.offset, limit))
    })
    .await
}

async fn groups(
    State(page): State<Page>,
    Path(id): Path<String>,
    request: Request<Body>,
) -> Result<Response<Body>, Refused> {
    let (part, scope) = (query::<PartQuery>(request.uri())?, scope(&request));
    page.answer(move |page| {
        let (_, loaded) = page.library.run(&id)?;
        let limit = part.limit.unwrap_or(50).clamp(1, 1000);
        let set = part.set.as_deref().unwrap_or("train");
        Ok(formats::groups(&loaded.table, &scope, (part.step, set), (part.offset, limit)))
    })
    .await
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct MetricsQuery {
    names: Option<String>,
}

async fn metrics(
    State(page): State<Page>,
    Path(id): Path<String>,
    request: Request<Body>,
) -> Result<Response<Body>, Refused> {
    let wanted: MetricsQuery = query(request.uri())?;
    page.answer(move |page| {
        let found = page.library.found(&id)?;
        compare::metrics(&found.path, wanted.names.as_deref())
    })
    .await
}

async fn compared(
    State(page): State<Page>,
    request: Request<Body>,
) -> Result<Response<Body>, Refused> {
    let wanted: CompareQuery = query(request.uri())?;
    page.answer(move |page| page.library.compare(&wanted)).await
}

async fn problems(
    State(page): State<Page>,
    request: Request<Body>,
) -> Result<Response<Body>, Refused> {
    let (wanted, scope) = (query::<CompareQuery>(request.uri())?, scope(&request));
    page.answer(move |page| page.library.compare_problems(&wanted, &scope)).await
}
