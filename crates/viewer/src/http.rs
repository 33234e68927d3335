//! The page and its data over HTTP. [`routes`] checks nobody's rights; [`app`] does, for one user of this machine.

mod access;
mod archive;
mod attempts;
mod content;
mod exports;
mod live;
mod reply;
mod runs;

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    extract::{Path, State},
    http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header},
    middleware::{self, Next},
    routing::get,
};
use serde_json::json;

pub use self::access::{Access, app};
use self::reply::{Refused, json_reply};
use crate::{
    Library, PageOptions, Scope, ViewError,
    assets::{self, Asset},
};

/// The policy of the page: everything comes from this server, and no script or style is inline.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; \
    font-src 'self'; media-src 'self' blob:; connect-src 'self'; frame-src 'self' blob:; object-src 'none'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What all requests share.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub(crate) library: Arc<Library>,
    pub(crate) options: Arc<PageOptions>,
}

impl Page {
    /// Computes an answer on a thread that may block.
    async fn answer<T, F>(self, compute: F) -> Result<Response<Body>, Refused>
    where
        T: serde::Serialize,
        F: FnOnce(&Self) -> Result<T, ViewError> + Send + 'static,
    {
        let computed = tokio::task::spawn_blocking(move || {
            let value = compute(&self)?;
            serde_json::to_vec(&value)
                .map_err(|error| ViewError::new(crate::Code::Internal, error.to_string()))
        });
        Ok(json_reply(StatusCode::OK, computed.await??))
    }
}

/// The page and its data, for whoever reaches it. The extension [`Scope`] of a request says whose episodes it sees.
pub fn routes(library: Arc<Library>, options: PageOptions) -> Router {
    let page = Page { library, options: Arc::new(options) };
    let api = runs::routes()
        .merge(attempts::routes())
        .merge(archive::routes())
        .merge(live::routes())
        .merge(exports::routes());
    Router::new()
        .route("/", get(index))
        .route("/page/assets/{hash}/{name}", get(asset))
        .route("/page/api/info", get(info))
        .nest("/page/api", api)
        .route("/page/api/{*path}", axum::routing::any(unknown))
        .layer(middleware::from_fn(safe_headers))
        .with_state(page)
}

/// Headers of every answer. Routes that need others set them themselves.
async fn safe_headers(request: Request<Body>, next: Next) -> Response<Body> {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    // Other sites cannot embed answers.
    headers
        .entry("cross-origin-resource-policy")
        .or_insert(HeaderValue::from_static("same-origin"));
    response
}

async fn unknown(Path(path): Path<String>) -> Refused {
    ViewError::not_found("address", &path).into()
}

async fn index(headers: HeaderMap) -> Response<Body> {
    let mut response = of_asset(assets::index(), &headers);
    let answer = response.headers_mut();
    answer.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    answer.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    answer.insert("cross-origin-opener-policy", HeaderValue::from_static("same-origin"));
    response
}

async fn asset(
    Path((hash, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response<Body>, Refused> {
    let asset = assets::file(&hash, &name)
        .ok_or_else(|| ViewError::not_found("file of the page", &name))?;
    let mut response = of_asset(asset, &headers);
    let forever = HeaderValue::from_static("public, max-age=31536000, immutable");
    response.headers_mut().insert(header::CACHE_CONTROL, forever);
    Ok(response)
}

fn of_asset(asset: Asset, request: &HeaderMap) -> Response<Body> {
    let text = |name| request.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.media_type));
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    headers.insert(header::ETAG, HeaderValue::from_static(asset.etag));
    if text(header::IF_NONE_MATCH).is_some_and(|known| known.contains(asset.etag)) {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return response;
    }
    let gzip = text(header::ACCEPT_ENCODING).is_some_and(|known| known.contains("gzip"));
    let bytes: &'static [u8] = match gzip && !asset.compressed.is_empty() {
        true => {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            asset.compressed
        }
        false => asset.plain,
    };
    *response.body_mut() = Body::from(bytes);
    response
}

async fn info(State(page): State<Page>) -> Result<Response<Body>, Refused> {
    page.answer(|page| Ok(info_value(page))).await
}

/// What the page is told about where it runs.
pub(crate) fn info_value(page: &Page) -> serde_json::Value {
    let options = &page.options;
    let root = page.library.roots().first().map(|root| root.to_string_lossy().into_owned());
    json!({
        "program": options.program,
        "mode": options.mode,
        "title": options.title,
        "root": root,
        "read_only": options.can == crate::Abilities::default(),
        "can": options.can,
        "models": options.models,
        "limits": options.limits,
    })
}

/// Whose episodes a request sees.
pub(crate) fn scope<B>(request: &Request<B>) -> Scope {
    request.extensions().get::<Scope>().cloned().unwrap_or_default()
}
