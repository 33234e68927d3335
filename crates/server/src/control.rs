//! The control plane: creates, lists and ends sandboxes.

use std::{collections::BTreeMap, sync::Arc, time::SystemTime};

use axum::{
    Router,
    body::Body,
    extract::{Extension, Path, Query, State},
    http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header},
    response::IntoResponse,
    routing::{delete, get, post, put},
};
use http_server::KeyHash;
use sandbox::{Paused, RemoteRuntime, Runtime};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{
    answers::answer,
    app::Server,
    bounded_json, control_observe,
    control_types::{
        ConnectRequest, FIRST_TIMEOUT, ForkRequest, NewSandbox, PauseRequest, RefreshRequest,
        ResumeRequest, SECOND_TIMEOUT, SnapshotRequest, TimeoutRequest, created, detailed, domain,
        listed, size,
    },
    error::{ApiError, Code, respond},
    idempotency,
    live::{Extend, Live},
    observe::Made,
    openapi,
    refusal::refuse,
    snapshots::Snapshot,
    tokens::Caller,
};

pub(crate) type Shared<R> = State<Arc<Server<R>>>;
/// The caller, as the check of the key found it.
pub(crate) type By = Extension<Caller>;
pub(crate) type Answer = Result<Response<Body>, ApiError>;

/// The routes.
pub(crate) fn routes<R: RemoteRuntime>(server: Arc<Server<R>>) -> Router {
    Router::new()
        .route("/sandboxes", get(list_all::<R>).post(create::<R>))
        .route("/v2/sandboxes", get(list::<R>).post(create_second::<R>))
        .route("/sandboxes/{id}", get(info::<R>).delete(kill::<R>))
        .route("/sandboxes/{id}/timeout", post(set_timeout::<R>))
        .route("/sandboxes/{id}/refreshes", post(refresh::<R>))
        .route("/sandboxes/{id}/connect", post(connect::<R>))
        .route("/v2/sandboxes/{id}/connect", post(connect::<R>))
        .route("/sandboxes/{id}/fork", post(fork::<R>))
        .route("/sandboxes/{id}/snapshots", post(snapshot::<R>))
        .route("/sandboxes/{id}/pause", post(pause::<R>))
        .route("/sandboxes/{id}/resume", post(resume::<R>))
        .route("/sandboxes/metrics", get(control_observe::all_metrics::<R>))
        .route("/sandboxes/{id}/metrics", get(control_observe::metrics::<R>))
        .route("/sandboxes/{id}/logs", get(control_observe::logs::<R>))
        .route("/v2/sandboxes/{id}/logs", get(control_observe::logs_second::<R>))
        .route("/sandboxes/{id}/network", put(control_observe::set_network::<R>))
        .route("/templates/aliases/{alias}", get(control_observe::template_alias::<R>))
        .route("/snapshots", get(snapshots::<R>))
        .route("/templates/{id}", delete(remove_snapshot::<R>))
        .route("/openapi.json", get(document))
        .method_not_allowed_fallback(wrong_method)
        .fallback(unsupported)
        .with_state(server)
}

/// Describes all routes.
async fn document() -> Response<Body> {
    let mut response = Response::new(Body::from(openapi::DOCUMENT.as_str()));
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

async fn wrong_method(request: Request<Body>) -> ApiError {
    ApiError::wrong_method(request.method(), request.uri().path())
}

async fn unsupported(request: Request<Body>) -> Response<Body> {
    let path = request.uri().path();
    let message = format!("this server has no {} {path}", request.method());
    refuse(path, ApiError::new(Code::Unsupported, message))
}

/// The parsed JSON body of a request; an absent one stands for an empty object.
pub(crate) async fn body<R: Runtime, T: DeserializeOwned>(
    server: &Server<R>,
    request: Request<Body>,
) -> Result<T, ApiError> {
    let (bytes, _permit) = server.receive(request).await?;
    bounded_json::parse(&bytes, "body")
}

fn no_sandbox<R: RemoteRuntime>(server: &Server<R>, id: &str) -> ApiError {
    let reason = server.registry.missing(id).reason();
    ApiError::not_found(format!("sandbox {id} not found{reason}"))
}

pub(crate) fn found<R: RemoteRuntime>(
    server: &Server<R>,
    caller: &Caller,
    id: &str,
) -> Result<Arc<Live<R::Sandbox>>, ApiError> {
    server.registry.find_of(caller, id).ok_or_else(|| no_sandbox(server, id))
}

pub(crate) fn no_content() -> Response<Body> {
    StatusCode::NO_CONTENT.into_response()
}

/// The first version of the request, whose sandboxes live shorter.
async fn create<R: RemoteRuntime>(
    State(server): Shared<R>,
    Extension(caller): By,
    request: Request<Body>,
) -> Answer {
    create_new(&server, caller, request, FIRST_TIMEOUT).await
}

async fn create_second<R: RemoteRuntime>(
    State(server): Shared<R>,
    Extension(caller): By,
    request: Request<Body>,
) -> Answer {
    create_new(&server, caller, request, SECOND_TIMEOUT).await
}

async fn create_new<R: RemoteRuntime>(
    server: &Arc<Server<R>>,
    caller: Caller,
    request: Request<Body>,
    timeout: u64,
) -> Answer {
    let key = idempotency::key(request.headers())?;
    let domain = domain(request.headers());
    let (bytes, _permit) = server.receive(request).await?;
    let mut new: NewSandbox = bounded_json::parse(&bytes, "body")?;
    new.timeout.get_or_insert(timeout);
    new.check()?;
    let registry = Arc::clone(&server.registry);
    let repeat = match key {
        None => None,
        Some(key) => {
            let content = [&timeout.to_le_bytes(), &bytes[..]].concat();
            Some(registry.repeats.of(&caller.name, key, KeyHash::of(&content))?)
        }
    };
    // In a task of its own: a client that disconnects meanwhile must not leave a sandbox that nobody knows.
    let creating = tokio::spawn(async move {
        let create = async { Ok(created(&*registry.create(&caller, new).await?, &domain)) };
        match repeat {
            None => create.await,
            Some(repeat) => repeat.answer(create).await,
        }
    });
    let answer = creating.await??;
    let mut response = respond(StatusCode::CREATED, &answer);
    let id = answer["sandboxID"].as_str().unwrap_or_default().to_owned();
    response.extensions_mut().insert(Made(id));
    Ok(response)
}

async fn info<R: RemoteRuntime>(
    State(server): Shared<R>,
    Extension(caller): By,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Answer {
    let live = found(&server, &caller, &id)?;
    Ok(respond(StatusCode::OK, &detailed(&live, &domain(&headers))))
}

async fn kill<R: RemoteRuntime>(
    State(server): Shared<R>,
    Extension(caller): By,
    Path(id): Path<String>,
) -> Answer {
    found(&server, &caller, &id)?;
    match server.registry.kill(&id) {
        true => Ok(no_content()),
        false => Err(no_sandbox(&server, &id)),
    }
}

async fn set_timeout<R: RemoteRuntime>(
    State(server): Shared<R>,
    Extension(caller): By,
    Path(id): Path<String>,
    request: Request<Body>,
) -> Answer {
    let asked: TimeoutRequest = body(&server, request).await?;
    let time = server.registry.lifetime(asked.timeout);
    found(&server, &caller, &id)?.extend(time, Extend::Exactly);
    Ok(no_content())
}

async fn refresh<R: RemoteRuntime>(
    State(server): Shared<R>,
    Extension(caller): By,
    Path(id): Path<String>,
    request: Request<Body>,
) -> Answer {
    let asked: RefreshRequest = body(&server, request).await?;
    let time = server.registry.lifetime(asked.duration.unwrap_or(60));
    found(&server, &caller, &id)?.extend(time, Extend::AtLeast);
    Ok(no_content())
}

async fn connect<R: RemoteRuntime>(
    State(server): Shared<R>,
    Extension(caller): By,
    Path(id): Path<String>,
    request: Request<Body>,
) -> Answer {
    let domain = domain(request.headers());
    let asked: ConnectRequest = body(&server, request).await?;
    let live = found(&server, &caller, &id)?;
    let status = match live.is_paused() {
        true => StatusCode::CREATED,
        false => StatusCode::OK,
    };
    wake(&server, &live, asked, SECOND_TIMEOUT).await?;
    Ok(respond(status, &created(&live, &domain)))
}

/// Lets a sandbox continue if it is paused, and live for the time that was asked for.
async fn wake<R: RemoteRuntime>(
    server: &Server<R>,
    live: &Arc<Live<R::Sandbox>>,
    asked: ConnectRequest,
    default: u64,
) -> Result<(), ApiError> {
    let time = server.registry.lifetime(asked.timeout.unwrap_or(default));
    if live.is_paused() {
        needs_memory(asked.memory)?;
        // Before it continues: its time may be over.
        live.extend(time, Extend::Exactly);
        live.set_paused(Paused::No).await?;
    } else {
        live.extend(time, Extend::AtLeast);
    }
    Ok(())
}

/// Processes keep their memory while a sandbox is paused; without it there would be nothing to continue.
fn needs_memory(memory: Option<bool>) -> Result<(), ApiError> {
    match memory {
        Some(false) => {
            let message =
                "this server pauses processes with their memory; it has no `memory: false`";
            Err(ApiError::new(Code::Unsupported, message))
        }
        _ => Ok(()),
    }
}

async fn pause<R: RemoteRuntime>(
    State(server): Shared<R>,
    Extension(caller): By,
    Path(id): Path<String>,
    request: Request<Body>,
) -> Answer {
    let asked: PauseRequest = body(&server, request).await?;
    needs_memory(asked.memory)?;
    match found(&server, &caller, &id)?.set_paused(Paused::Yes).await? {
        true => Ok(no_content()),
        false => Err(ApiError::new(Code::Conflict, format!("sandbox {id} is already paused"))),
    }
}

async fn resume<R: RemoteRuntime>(
    State(server): Shared<R>,
    Extension(caller): By,
    Path(id): Path<String>,
    request: Request<Body>,
) -> Answer {
    let domain = domain(request.headers());
    let ResumeRequest { with, auto_pause } = body(&server, request).await?;
    let live = found(&server, &caller, &id)?;
    if auto_pause.is_some_and(|wanted| wanted != live.auto_pause) {
        let message = "this server cannot change `autoPause` of a sandbox; set it when creating it";
        return Err(ApiError::new(Code::Unsupported, message));
    }
    if !live.is_paused() {
        return Err(ApiError::new(Code::Conflict, format!("sandbox {id} is already running")));
    }
    wake(&server, &live, with, FIRST_TIMEOUT).await?;
    Ok(respond(StatusCode::CREATED, &created(&live, &domain)))
}

/// Most copies of one request.
const MAX_COPIES: u64 = 100;

async fn fork<R: RemoteRuntime>(
    State(server): Shared<R>,
    Extension(caller): By,
    Path(id): Path<String>,
    request: Request<Body>,
) -> Answer {
    let domain = domain(request.headers());
    let asked: ForkRequest = body(&server, request).await?;
    if !(1..=MAX_COPIES).contains(&asked.count) {
        return Err(ApiError::invalid(format!("`count` must lie between 1 and {MAX_COPIES}")));
    }
    let live = found(&server, &caller, &id)?;
    let registry = Arc::clone(&server.registry);
    let forking = tokio::spawn(async move {
        let mut results = Vec::new();
        for _ in 0..asked.count {
            results.push(match registry.fork(&live, asked.timeout).await {
                Ok(copy) => json!({ "sandbox": created(&copy, &domain) }),
                Err(error) => {
                    let code = error.code.status().as_u16();
                    json!({ "error": { "code": code, "message": error.message } })
                }
            });
        }
        results
    });
    let results = forking.await?;
    Ok(respond(StatusCode::CREATED, &Value::Array(results)))
}

async fn snapshot<R: RemoteRuntime>(
    State(server): Shared<R>,
    Extension(caller): By,
    Path(id): Path<String>,
    request: Request<Body>,
) -> Answer {
    let asked: SnapshotRequest = body(&server, request).await?;
    if asked.memory == Some(true) {
        let message = "this server saves the files of a sandbox; it has no snapshots of memory";
        return Err(ApiError::new(Code::Unsupported, message));
    }
    let live = found(&server, &caller, &id)?;
    // In a task of its own: a client that disconnects meanwhile must not leave an image whose owner nobody knows.
    let registry = Arc::clone(&server.registry);
    let saving = tokio::spawn(async move { registry.snapshot(&live, asked.name).await });
    let snapshot = saving.await??;
    Ok(respond(StatusCode::CREATED, &described(&snapshot)))
}

fn described(snapshot: &Snapshot) -> Value {
    json!({ "snapshotID": snapshot.name, "names": [snapshot.name] })
}

async fn snapshots<R: RemoteRuntime>(
    State(server): Shared<R>,
    Extension(caller): By,
    Query(query): Query<Vec<(String, String)>>,
) -> Answer {
    let value = |name: &str| query.iter().find(|(key, _)| key == name).map(|(_, value)| value);
    let (sandbox, name, after) = (value("sandboxID"), value("name"), value("nextToken"));
    let limit = value("limit").map_or(Ok(MAX_PAGE), |limit| page_limit(limit))?;
    let mut list = server.registry.snapshots(&caller);
    list.retain(|snapshot| {
        sandbox.is_none_or(|id| *id == snapshot.sandbox)
            && name.is_none_or(|name| *name == snapshot.name)
            && after.is_none_or(|after| snapshot.name > *after)
    });
    list.sort_by(|a, b| a.name.cmp(&b.name));
    let page = list.iter().take(limit);
    let mut response = respond(StatusCode::OK, &Value::Array(page.map(described).collect()));
    if list.len() > limit
        && let Some(last) = list.get(limit - 1)
        && let Ok(token) = HeaderValue::from_str(&last.name)
    {
        response.headers_mut().insert(NEXT_TOKEN, token);
    }
    Ok(response)
}

async fn remove_snapshot<R: RemoteRuntime>(
    State(server): Shared<R>,
    Extension(caller): By,
    Path(id): Path<String>,
) -> Answer {
    // In a task of its own: what was begun has to be settled.
    let registry = Arc::clone(&server.registry);
    tokio::spawn(async move { registry.remove_snapshot(&caller, &id).await }).await??;
    Ok(no_content())
}

async fn list_all<R: RemoteRuntime>(
    State(server): Shared<R>,
    Extension(caller): By,
    Query(query): Query<Vec<(String, String)>>,
) -> Answer {
    let filter = Filter::parse(&query)?;
    let found = filter.apply(server.registry.all_of(&caller));
    let mut bytes = 0;
    let fits = |live: &&Arc<Live<R::Sandbox>>| {
        bytes += size(&live.metadata);
        bytes <= MAX_LIST
    };
    let listed_now: Vec<_> = found.iter().take_while(fits).collect();
    listing(&server, &caller, &listed_now, found.len())
}

async fn list<R: RemoteRuntime>(
    State(server): Shared<R>,
    Extension(caller): By,
    Query(query): Query<Vec<(String, String)>>,
) -> Answer {
    let filter = Filter::parse(&query)?;
    let mut found = filter.apply(server.registry.all_of(&caller));
    if let Some(last) = &filter.next {
        // By comparison: the last sandbox of the page before may be gone.
        found.retain(|live| match filter.oldest_first {
            true => PageKey::of(live) > *last,
            false => PageKey::of(live) < *last,
        });
    }
    let page: Vec<_> = found.iter().take(filter.limit).collect();
    listing(&server, &caller, &page, found.len())
}

/// A list of sandboxes, and by which token the rest is found where there are more.
fn listing<R: RemoteRuntime>(
    server: &Server<R>,
    caller: &Caller,
    page: &[&Arc<Live<R::Sandbox>>],
    count: usize,
) -> Answer {
    // The list is in memory twice, as values and as text.
    let bytes = page.iter().map(|live| LISTED + size(&live.metadata)).sum::<usize>();
    let permit = server.registry.keep(caller, 2 * bytes)?;
    let list: Vec<Value> = page.iter().map(|live| Value::Object(listed(&***live))).collect();
    let mut response = answer(&list, permit)?;
    if count > page.len()
        && let Some(last) = page.last()
        && let Ok(token) = HeaderValue::from_str(&PageKey::of(last).token())
    {
        response.headers_mut().insert(NEXT_TOKEN, token);
    }
    Ok(response)
}

/// About the bytes of a listed sandbox without its metadata.
const LISTED: usize = 1 << 10;

/// Where a page ends: start in nanoseconds, and id.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PageKey(u128, String);

impl PageKey {
    fn of<S>(live: &Live<S>) -> Self {
        let started = live.started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self(started.as_nanos(), live.id.clone())
    }

    fn token(&self) -> String {
        format!("{}-{}", self.0, self.1)
    }

    fn parse(token: &str) -> Result<Self, ApiError> {
        let parts = token
            .split_once('-')
            .and_then(|(started, id)| Some(Self(started.parse().ok()?, id.to_owned())));
        parts.ok_or_else(|| ApiError::invalid("`nextToken` is not a token of this server"))
    }
}

/// Which sandboxes are listed.
#[derive(Debug)]
struct Filter {
    metadata: BTreeMap<String, String>,
    running: bool,
    paused: bool,
    oldest_first: bool,
    started_after: Option<jiff::Timestamp>,
    template: Option<String>,
    limit: usize,
    next: Option<PageKey>,
}

/// Most sandboxes of one page.
const MAX_PAGE: usize = 100;
/// The header that says where the next page begins.
const NEXT_TOKEN: &str = "x-next-token";

fn page_limit(text: &str) -> Result<usize, ApiError> {
    let limit = text.parse().ok().filter(|limit| (1..=MAX_PAGE).contains(limit));
    limit.ok_or_else(|| ApiError::invalid(format!("`limit` must lie between 1 and {MAX_PAGE}")))
}

/// Most bytes of metadata in a list without pages.
const MAX_LIST: usize = 16 << 20;

impl Filter {
    fn parse(query: &[(String, String)]) -> Result<Self, ApiError> {
        let mut filter = Self {
            metadata: BTreeMap::new(),
            running: true,
            paused: true,
            oldest_first: false,
            started_after: None,
            template: None,
            limit: MAX_PAGE,
            next: None,
        };
        let mut states = Vec::new();
        for (name, value) in query {
            match name.as_str() {
                "metadata" => filter.metadata = metadata(value),
                "state" => states.extend(value.split(',').map(str::to_owned)),
                "order" => {
                    filter.oldest_first = match value.as_str() {
                        "asc" => true,
                        "desc" => false,
                        _ => return Err(ApiError::invalid("`order` must be asc or desc")),
                    };
                }
                "startedAfter" => {
                    let time = value.parse().map_err(|_| {
                        ApiError::invalid(
                            "`startedAfter` is not a time such as 2026-01-01T00:00:00Z",
                        )
                    });
                    filter.started_after = Some(time?);
                }
                "template" => filter.template = Some(value.clone()),
                "limit" => filter.limit = page_limit(value)?,
                "nextToken" => filter.next = Some(PageKey::parse(value)?),
                _ => {}
            }
        }
        if states.iter().any(|state| !["running", "paused", ""].contains(&state.as_str())) {
            return Err(ApiError::invalid("`state` must be running or paused, or both"));
        }
        let has = |name: &str| states.is_empty() || states.iter().any(|state| state == name);
        (filter.running, filter.paused) = (has("running"), has("paused"));
        Ok(filter)
    }

    /// The sandboxes it selects, in order.
    fn apply<S>(&self, all: Vec<Arc<Live<S>>>) -> Vec<Arc<Live<S>>> {
        let fits = |live: &Arc<Live<S>>| {
            let has = |(name, value): (&String, &String)| live.metadata.get(name) == Some(value);
            let started = jiff::Timestamp::try_from(live.started).ok();
            let state = if live.is_paused() { self.paused } else { self.running };
            state
                && self.metadata.iter().all(has)
                && self.template.as_ref().is_none_or(|template| *template == live.template)
                && self.started_after.is_none_or(|after| started.is_some_and(|at| at > after))
        };
        let mut found: Vec<_> = all.into_iter().filter(fits).collect();
        found.sort_by_cached_key(|live| PageKey::of(live));
        if !self.oldest_first {
            found.reverse();
        }
        found
    }
}

/// Pairs, encoded twice: as a query, and each name and value by itself.
fn metadata(text: &str) -> BTreeMap<String, String> {
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(&decoded(name)), decoded(&decoded(value)))
        })
        .collect()
}

/// Percent-decoded text.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        let hex = more.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        let byte = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (first, byte) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &more[2..];
            }
            (b'+', _) => {
                bytes.push(b' ');
                rest = more;
            }
            _ => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of sandboxes whose clock was set back in between, or that started at the same moment.
    #[test]
    fn pages_continue_where_they_ended_whatever_the_clock_said() {
        let started = [900, 901, 300, 300, 950];
        let mut keys: Vec<PageKey> =
            (0..).zip(started).map(|(id, at)| PageKey(at, format!("id-{id}"))).collect();
        keys.sort();
        for (at, key) in keys.iter().enumerate() {
            let next = PageKey::parse(&key.token()).unwrap();
            assert_eq!(keys.iter().filter(|key| **key > next).count(), keys.len() - at - 1);
            assert_eq!(keys.iter().filter(|key| **key < next).count(), at);
        }
        assert!(PageKey::parse("x-y").is_err() && PageKey::parse("1").is_err());
    }
}
