//! Episodes over HTTP: `/v1/episodes`. A client sees the episodes of its own token.
//!
//! What is done with episodes is in the crate `episodes`; this is its face. Errors have OpenAI's shape, as those of all paths
//! below `/v1`.

mod stream;
mod types;

use std::{sync::Arc, time::Duration};

use ::episodes::{
    Episode, EpisodeInfo, EpisodeRequest, Episodes, Error, FilesFrom, Fork, Resume,
    State as EpisodeState,
};
use axum::{
    Router,
    body::Body,
    extract::{Extension, Path, Query, State},
    http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header},
    response::IntoResponse,
    routing::{get, post},
};
use model::Permit;
use sandbox::{RemoteRuntime, Spec};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio_util::io::ReaderStream;

use self::types::{EventQuery, ForkEpisode, ListQuery, NewEpisode};
use crate::{
    answers::answer,
    app::Server,
    bounded_json,
    error::{ApiError, Code, respond},
    meter::ModelMeter,
    refusal::refuse,
    tokens::Caller,
};

/// The path that errors are shaped for.
const PATH: &str = "/v1/episodes";
/// Episodes of a page where a request does not say.
const PAGE: usize = 50;
/// How long a request to cancel waits for the end.
const CANCELLING: Duration = Duration::from_secs(10);

type Shared<R> = State<Arc<Server<R>>>;
type By = Extension<Caller>;
type Answer = Result<Response<Body>, Refused>;

/// An error in OpenAI's shape.
pub(crate) struct Refused(ApiError);

impl IntoResponse for Refused {
    fn into_response(self) -> Response<Body> {
        refuse(PATH, self.0)
    }
}

impl<E: Into<ApiError>> From<E> for Refused {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::NotFound(_) | Error::NoFile { .. } | Error::UnknownModel { .. } => {
                Code::NotFound
            }
            Error::Invalid(_) => Code::InvalidArgument,
            Error::State { .. } | Error::NotKept { .. } => Code::Conflict,
            Error::TooMany(_) => Code::TooMany,
            Error::Closing => Code::SandboxGone,
            error if error.is_full() => Code::DiskFull,
            _ => Code::Internal,
        };
        if code == Code::Internal {
            tracing::error!("{}", error.chain());
        }
        Self::new(code, error.chain())
    }
}

/// The routes.
pub(crate) fn routes<R: RemoteRuntime>(server: Arc<Server<R>>) -> Router {
    Router::new()
        .route("/v1/episodes", get(list::<R>).post(start::<R>))
        .route("/v1/episodes/{id}", get(info::<R>).delete(remove::<R>))
        .route("/v1/episodes/{id}/events", get(events::<R>))
        .route("/v1/episodes/{id}/cancel", post(cancel::<R>))
        .route("/v1/episodes/{id}/resume", post(resume::<R>))
        .route("/v1/episodes/{id}/fork", post(fork::<R>))
        .route("/v1/episodes/{id}/trajectory", get(trajectory::<R>))
        .route("/v1/episodes/{id}/files", get(files::<R>))
        .route("/v1/episodes/{id}/files/{*path}", get(file::<R>))
        .method_not_allowed_fallback(wrong_method)
        .with_state(server)
}

async fn wrong_method(request: Request<Body>) -> Refused {
    Refused(ApiError::wrong_method(request.method(), request.uri().path()))
}

impl<R: RemoteRuntime> Server<R> {
    fn episodes(&self) -> Result<&Arc<Episodes<R>>, ApiError> {
        self.episodes.as_ref().ok_or_else(|| self.no_model())
    }

    fn no_model(&self) -> ApiError {
        ApiError::new(Code::Unsupported, self.registry.options.no_model.clone())
    }

    /// An episode of this caller. Those of others do not exist for it.
    fn episode(&self, caller: &Caller, id: &str) -> Result<Episode, ApiError> {
        let unknown = || ApiError::from(Error::NotFound(id.to_owned()));
        let found = self.episodes()?.handle(id).map_err(|_| unknown())?;
        match found.owner() == *caller.name {
            true => Ok(found),
            false => Err(unknown()),
        }
    }

    /// What an episode needs to be played: a model, a permit for its sandbox, and a caller to charge.
    fn allowance(&self, caller: &Caller, model: Option<&str>) -> Result<Resume, ApiError> {
        let episodes = self.episodes()?;
        let options = episodes.options();
        if options.models.is_empty() {
            return Err(self.no_model());
        }
        let model = episodes.model(model)?;
        let meter = ModelMeter::new(caller, &model.name, model.price);
        meter.allow()?;
        let limits = caller.limits(options.spec.limits.clone());
        let spec = Spec { limits: limits.clone(), ..options.spec.clone() };
        let permit = Permit::new(self.registry.permit(caller, &spec)?);
        Ok(Resume { sandbox: Some(limits), permit, meter: Some(Arc::new(meter)) })
    }
}

/// The JSON body of a request; an empty one is an empty object.
async fn body<T: DeserializeOwned, R: RemoteRuntime>(
    server: &Server<R>,
    request: Request<Body>,
) -> Result<T, ApiError> {
    let (bytes, _memory) = server.receive(request).await?;
    bounded_json::parse(&bytes, "body")
}

fn shown(status: StatusCode, info: &EpisodeInfo) -> Response<Body> {
    respond(status, &json!(info))
}

async fn start<R: RemoteRuntime>(
    State(server): Shared<R>,
    Extension(caller): By,
    request: Request<Body>,
) -> Answer {
    let episodes = server.episodes()?;
    let new: NewEpisode = body(&server, request).await?;
    if let Some(id) = &new.files_from {
        server.episode(&caller, id)?;
    }
    let Resume { sandbox, permit, meter } = server.allowance(&caller, new.model.as_deref())?;
    let options = episodes.options();
    let sampling = new.sampling(options)?;
    let request = EpisodeRequest {
        input: new.input()?,
        limits: new.limits.as_ref().map(|limits| limits.over(&options.limits)).transpose()?,
        task: new.task()?,
        model: new.model,
        sampling,
        system_prompt: new.system_prompt,
        files: new.files_from.map_or(FilesFrom::Image, FilesFrom::EndOf),
        keep: new.keep,
        metadata: new.metadata,
        owner: caller.name.to_string(),
        sandbox,
        permit,
        meter,
    };
    let started = episodes.start(request).await?;
    let mut response = shown(StatusCode::CREATED, &started.info()?);
    if let Ok(location) = HeaderValue::from_str(&format!("{PATH}/{}", started.id())) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

async fn list<R: RemoteRuntime>(
    State(server): Shared<R>,
    Extension(caller): By,
    request: Request<Body>,
) -> Answer {
    let query: ListQuery = query(&request)?;
    let state = match query.state.as_deref() {
        None => None,
        Some(name) => Some(EpisodeState::of_name(name).ok_or_else(|| {
            ApiError::invalid("`state` must be running, interrupted, finished, cancelled or failed")
        })?),
    };
    let limit = query.limit.unwrap_or(PAGE);
    let (episodes, by) = (Arc::clone(server.episodes()?), caller.clone());
    // Their files are read.
    let listing = tokio::task::spawn_blocking(move || {
        episodes.list(&caller.name, state, query.after.as_deref(), limit)
    });
    let page = listing.await?;
    Ok(server.answer(&by, &page)?)
}

fn query<T: DeserializeOwned>(request: &Request<Body>) -> Result<T, ApiError> {
    let Query(query) = Query::try_from_uri(request.uri())
        .map_err(|error| ApiError::invalid(format!("bad query: {error}")))?;
    Ok(query)
}

async fn info<R: RemoteRuntime>(
    State(server): Shared<R>,
    Extension(caller): By,
    Path(id): Path<String>,
) -> Answer {
    let episode = server.episode(&caller, &id)?;
    // Its files are read.
    let info = tokio::task::spawn_blocking(move || episode.info()).await??;
    Ok(server.answer(&caller, &info)?)
}

async fn remove<R: RemoteRuntime>(
    State(server): Shared<R>,
    Extension(caller): By,
    Path(id): Path<String>,
) -> Answer {
    server.episode(&caller, &id)?;
    server.episodes()?.remove(&id).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn events<R: RemoteRuntime>(
    State(server): Shared<R>,
    Extension(caller): By,
    Path(id): Path<String>,
    request: Request<Body>,
) -> Answer {
    let episode = server.episode(&caller, &id)?;
    let query: EventQuery = query(&request)?;
    let after = match (query.after, last_event_id(request.headers())?) {
        // A browser that reconnects sends both: the address of the start, and the number it has come to.
        (_, Some(last)) => last,
        (Some(after), None) => after,
        (None, None) => 0,
    };
    Ok(stream::events(&episode, after).await?)
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, ApiError> {
    let Some(sent) = headers.get("last-event-id") else { return Ok(None) };
    let number = sent.to_str().ok().and_then(|text| text.trim().parse().ok());
    number
        .map(Some)
        .ok_or_else(|| ApiError::invalid("Last-Event-ID must be the number of an event"))
}

async fn cancel<R: RemoteRuntime>(
    State(server): Shared<R>,
    Extension(caller): By,
    Path(id): Path<String>,
) -> Answer {
    let episode = server.episode(&caller, &id)?;
    episode.cancel()?;
    match tokio::time::timeout(CANCELLING, episode.wait()).await {
        Ok(info) => Ok(shown(StatusCode::OK, &info?)),
        // It ends, but not yet.
        Err(_) => Ok(shown(StatusCode::ACCEPTED, &episode.info()?)),
    }
}

async fn resume<R: RemoteRuntime>(
    State(server): Shared<R>,
    Extension(caller): By,
    Path(id): Path<String>,
) -> Answer {
    let episode = server.episode(&caller, &id)?;
    // Its files are read.
    let info = tokio::task::spawn_blocking(move || episode.info()).await??;
    let with = server.allowance(&caller, Some(&info.record.model))?;
    let resumed = server.episodes()?.resume(&id, with).await?;
    Ok(shown(StatusCode::ACCEPTED, &resumed.info()?))
}

async fn fork<R: RemoteRuntime>(
    State(server): Shared<R>,
    Extension(caller): By,
    Path(id): Path<String>,
    request: Request<Body>,
) -> Answer {
    let parent = server.episode(&caller, &id)?;
    let new: ForkEpisode = body(&server, request).await?;
    // Its files are read.
    let info = tokio::task::spawn_blocking(move || parent.info()).await??;
    let model = new.model.as_ref().unwrap_or(&info.record.model);
    let Resume { sandbox, permit, meter } = server.allowance(&caller, Some(model))?;
    let limits = new.limits.map(|limits| limits.over(&info.record.limits)).transpose()?;
    let fork = Fork {
        turn: new.turn,
        model: new.model,
        limits,
        keep: new.keep,
        metadata: new.metadata,
        owner: caller.name.to_string(),
        sandbox,
        permit,
        meter,
    };
    let forked = server.episodes()?.fork(&id, fork).await?;
    Ok(shown(StatusCode::CREATED, &forked.info()?))
}

async fn trajectory<R: RemoteRuntime>(
    State(server): Shared<R>,
    Extension(caller): By,
    Path(id): Path<String>,
) -> Answer {
    server.episode(&caller, &id)?;
    let episodes = Arc::clone(server.episodes()?);
    // A trajectory is held in memory several times: as text, as events, as JSON.
    let mut memory = server.registry.memory_of(&caller).permit();
    let size = usize::try_from(episodes.events_size(&id)?).unwrap_or(usize::MAX);
    if memory.grow(size.saturating_mul(3)).is_none() {
        let message = "the trajectory is too large to be sent now; read its events instead";
        return Err(ApiError::new(Code::TooMany, message).into());
    }
    let answering = tokio::task::spawn_blocking(move || {
        let trajectory = episodes.trajectory(&id)?;
        answer(&trajectory, memory)
    });
    Ok(answering.await??)
}

async fn files<R: RemoteRuntime>(
    State(server): Shared<R>,
    Extension(caller): By,
    Path(id): Path<String>,
) -> Answer {
    server.episode(&caller, &id)?;
    let episodes = Arc::clone(server.episodes()?);
    let files = tokio::task::spawn_blocking(move || episodes.files(&id)).await??;
    Ok(server.answer(&caller, &json!({ "files": files }))?)
}

async fn file<R: RemoteRuntime>(
    State(server): Shared<R>,
    Extension(caller): By,
    Path((id, path)): Path<(String, String)>,
) -> Answer {
    server.episode(&caller, &id)?;
    let file = server.episodes()?.file(&id, &path)?;
    let size = file.metadata().map_err(|error| ApiError::new(Code::Internal, error.to_string()))?;
    let reader = tokio::fs::File::from_std(file).take(size.len());
    let mut response = Response::new(Body::from_stream(ReaderStream::new(reader)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, size.len().into());
    // A model wrote it: a browser must not take it for a page of this server.
    for (name, value) in [
        (header::CONTENT_TYPE, "application/octet-stream"),
        (header::CONTENT_DISPOSITION, "attachment"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    Ok(response)
}
