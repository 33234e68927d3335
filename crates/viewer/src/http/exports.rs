//! Downloads of attempts and runs in other formats.

use axum::{
    Router,
    body::Body,
    extract::{Path, State},
    http::{HeaderValue, Request, Response, header},
    routing::get,
};
use bytes::Bytes;
use futures_util::stream;

use super::{Page, reply::Refused, scope};
use crate::{
    ViewError,
    export::{ExportFormat, of_run},
    table::AttemptQuery,
    text::file_name,
};

pub(super) fn routes() -> Router<Page> {
    Router::new()
        .route("/runs/{run}/export/{format}", get(of_all))
        .route("/runs/{run}/attempts/{attempt}/export/{format}", get(of_attempt))
}

pub(super) fn download(body: Body, name: &str, media_type: &'static str) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    let text = format!("attachment; filename=\"{name}\"");
    if let Ok(value) = HeaderValue::from_str(&text) {
        headers.insert(header::CONTENT_DISPOSITION, value);
    }
    response
}

async fn of_attempt(
    State(page): State<Page>,
    Path((run, attempt, format)): Path<(String, String, String)>,
    request: Request<Body>,
) -> Result<Response<Body>, Refused> {
    let (format, scope) = (ExportFormat::of_name(&format)?, scope(&request));
    let (extension, media_type) = format.file(false);
    let name = format!("{}.{extension}", file_name(&format!("{run}-{attempt}"), 120));
    let exported = tokio::task::spawn_blocking(move || match format {
        ExportFormat::Html => of_run(&page, &run, Some(&attempt), &scope),
        format => page.library.export_attempt(&run, &attempt, format, &scope),
    });
    Ok(download(Body::from(exported.await??), &name, media_type))
}

async fn of_all(
    State(page): State<Page>,
    Path((run, format)): Path<(String, String)>,
    request: Request<Body>,
) -> Result<Response<Body>, Refused> {
    let (format, scope) = (ExportFormat::of_name(&format)?, scope(&request));
    let (extension, media_type) = format.file(true);
    let name = format!("{}.{extension}", file_name(&run, 120));
    match format {
        ExportFormat::Html => {
            let exported = tokio::task::spawn_blocking(move || of_run(&page, &run, None, &scope));
            Ok(download(Body::from(exported.await??), &name, media_type))
        }
        ExportFormat::Events => Err(ViewError::not_found("format", "events").into()),
        format => {
            let (library, id, mine) = (page.library.clone(), run.clone(), scope.clone());
            let listed = tokio::task::spawn_blocking(move || {
                let (_, loaded) = library.run(&id)?;
                let (selected, _) = loaded.table.select(&AttemptQuery::default(), &mine);
                let attempts = selected.into_iter().filter_map(|at| loaded.table.attempts.get(at));
                let attempts = attempts.filter(|attempt| attempt.row.has_events);
                Ok::<_, ViewError>(attempts.map(|it| it.row.id.clone()).collect::<Vec<_>>())
            });
            let ids = listed.await??.into_iter();
            // One after the other, so that a run of any size fits into memory.
            let lines = stream::unfold((page, ids), move |(page, mut ids)| {
                let (run, scope) = (run.clone(), scope.clone());
                async move {
                    let id = ids.next()?;
                    let library = page.library.clone();
                    let exporting = tokio::task::spawn_blocking(move || {
                        library.export_attempt(&run, &id, format, &scope)
                    });
                    // One that cannot be read is left out.
                    let line = exporting.await.ok()?.unwrap_or_default();
                    let line = match line.trim_end() {
                        "" => Bytes::new(),
                        line => Bytes::from(format!("{line}\n")),
                    };
                    Some((Ok::<_, std::convert::Infallible>(line), (page, ids)))
                }
            });
            Ok(download(Body::from_stream(lines), &name, media_type))
        }
    }
}
