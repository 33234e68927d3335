//! OpenAI's protocol: models, files, and chat completions by a model that works in a sandbox, or passed on to its server.

mod episode;
mod files;
mod gateway;
mod kept;
mod request;
mod steps;
mod store;
mod stream;
mod token_log;
mod usage_filter;

use std::{fmt, sync::Arc, time::Duration};

use ::episodes::Episodes;
use axum::{
    Extension, Router,
    body::Body,
    extract::{Path, State},
    http::{HeaderValue, Request, Response, StatusCode},
    response::IntoResponse,
    routing::{get, post},
};
use openai_wire::{ApiError, parameters::Delivery};
use sandbox::RemoteRuntime;
use serde_json::{Value, json};

pub(crate) use self::store::{MostBytes, Room};
use self::{episode::Playing, kept::KeptSandboxes, request::ChatRequest};
pub use self::{
    gateway::{Gateway, TokenRequest},
    store::{FileLimits, FileStore},
};
use crate::{app::Server, error::respond, meter::ModelRefusal, tokens::Caller};

/// How OpenAI's protocol is served.
#[derive(Clone)]
pub struct ChatOptions {
    /// The files.
    pub files: Arc<FileStore>,
    /// Passes requests on to a model's server in place of playing episodes.
    pub gateway: Option<Arc<Gateway>>,
    /// A stream without content for this long is kept alive with a comment.
    pub heartbeat: Duration,
    /// How long the sandbox of a conversation is kept after its last use.
    pub sandbox_lifetime: Duration,
}

impl ChatOptions {
    /// Serves these files, with defaults for the rest.
    pub fn new(files: Arc<FileStore>) -> Self {
        let (heartbeat, sandbox_lifetime) = (Duration::from_secs(15), Duration::from_secs(3600));
        Self { files, gateway: None, heartbeat, sandbox_lifetime }
    }
}

impl fmt::Debug for ChatOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatOptions").finish_non_exhaustive()
    }
}

/// The header with the id of the episode.
const EPISODE_HEADER: &str = "x-episode-id";
/// The header that names a kept sandbox, in requests and responses.
const SANDBOX_HEADER: &str = "x-sandbox-id";
/// How often it is looked for kept sandboxes whose time is over.
const SOON: Duration = Duration::from_millis(10);
const LATER: Duration = Duration::from_secs(60);
/// Most bytes of a request's body.
const MAX_BODY: usize = 32 << 20;

type Shared<R> = State<Arc<Chat<R>>>;
type Answer = Result<Response<Body>, ApiError>;

/// What all requests share.
struct Chat<R: RemoteRuntime> {
    server: Arc<Server<R>>,
    options: ChatOptions,
    kept: Arc<KeptSandboxes>,
    /// When the server started; reported as the models' creation time.
    created: u64,
}

impl<R: RemoteRuntime> Chat<R> {
    fn files(&self) -> &Arc<FileStore> {
        &self.options.files
    }

    /// Room for files of a caller.
    fn room(&self, caller: &Caller) -> Room {
        self.server.registry.file_room(caller, self.files().limits())
    }

    /// The episodes, where there is a model.
    fn episodes(&self) -> Result<Arc<Episodes<R>>, ApiError> {
        let played = self.server.episodes.as_ref().filter(|all| !all.options().models.is_empty());
        played.cloned().ok_or_else(|| {
            let message = self.server.registry.options.no_model.clone();
            ApiError::new(StatusCode::NOT_IMPLEMENTED, message).code("no_model")
        })
    }

    /// The names of the models that play episodes.
    fn model_names(&self) -> Vec<String> {
        let models = self.server.episodes.iter().flat_map(|all| &all.options().models);
        models.map(|model| model.name.clone()).collect()
    }

    /// Forgets kept sandboxes once their time is over and no request uses them, until the server ends.
    fn forget_old(self: &Arc<Self>) {
        let (chat, between) = (Arc::downgrade(self), (self.kept.lifetime() / 4).clamp(SOON, LATER));
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(between).await;
                let Some(chat) = chat.upgrade() else { return };
                let Some(episodes) = chat.server.episodes.clone() else { return };
                for episode in chat.kept.expire() {
                    episodes.forget_end(&episode).await;
                }
            }
        });
    }
}

/// The routes; none where this protocol is not served.
pub(crate) fn routes<R: RemoteRuntime>(server: Arc<Server<R>>) -> Router {
    let Some(options) = server.registry.options.chat.clone() else {
        return Router::new()
            .route("/v1/models", get(no_model::<R>))
            .route("/v1/models/{*name}", get(no_model::<R>))
            .route("/v1/files", get(no_model::<R>).post(no_model::<R>))
            .route("/v1/files/{id}", get(no_model::<R>).delete(no_model::<R>))
            .route("/v1/files/{id}/content", get(no_model::<R>))
            .route("/v1/chat/completions", post(no_model::<R>))
            .route("/v1/completions", post(no_model::<R>))
            .method_not_allowed_fallback(wrong_method)
            .with_state(server);
    };
    let file = options.files.beside("kept-sandboxes.json");
    let kept = Arc::new(KeptSandboxes::open(file, options.sandbox_lifetime));
    let chat = Arc::new(Chat { server, options, kept, created: openai_wire::now() });
    chat.forget_old();
    Router::new()
        .route("/v1/models", get(models::<R>))
        // Names may contain slashes.
        .route("/v1/models/{*name}", get(one_model::<R>))
        .route("/v1/files", get(files::list::<R>).post(files::upload::<R>))
        .route("/v1/files/{id}", get(files::describe::<R>).delete(files::delete::<R>))
        .route("/v1/files/{id}/content", get(files::content::<R>))
        .route("/v1/chat/completions", post(complete::<R>))
        .route("/v1/completions", post(gateway::completions::<R>))
        .method_not_allowed_fallback(wrong_method)
        .with_state(chat)
}

/// Nothing of this is served.
async fn no_model<R: RemoteRuntime>(State(server): State<Arc<Server<R>>>) -> ApiError {
    let message = server.registry.options.no_model.clone();
    ApiError::new(StatusCode::NOT_IMPLEMENTED, message).code("no_model")
}

async fn wrong_method(method: axum::http::Method, uri: axum::http::Uri) -> ApiError {
    let message = format!("{} does not support {method}", uri.path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, message)
}

/// Answers a conversation.
async fn complete<R: RemoteRuntime>(
    State(chat): Shared<R>,
    Extension(caller): Extension<Caller>,
    request: Request<Body>,
) -> Answer {
    if let Some(gateway) = &chat.options.gateway {
        return gateway::chat(&chat, gateway, caller, request).await;
    }
    let named = request.headers().get(SANDBOX_HEADER).cloned();
    let (body, permit) = chat.server.body(MAX_BODY, request).await?;
    // Parsing a long body takes time and must not block the runtime.
    let parsing = tokio::task::spawn_blocking(move || (request::parse(&body), permit));
    let (parsed, permit) = parsing
        .await
        .map_err(|_| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the server failed"))?;
    let mut parsed = parsed?;
    if let Some(named) = named {
        choose(&mut parsed, &named)?;
    }
    let delivery = parsed.delivery;
    let heartbeat = chat.options.heartbeat;
    let mut playing = Playing::start(Arc::clone(&chat), caller, parsed).await?;
    drop(permit);
    let (id, mut sandbox) = (playing.id().to_owned(), playing.sandbox().map(str::to_owned));
    let answered = match delivery {
        Delivery::Whole => {
            let answered = whole(&mut playing).await;
            sandbox = sandbox.filter(|_| playing.is_kept());
            answered
        }
        Delivery::Stream(usage) => stream::respond(playing, usage, heartbeat).await,
    };
    let is_answered = answered.is_ok();
    let mut response = answered.unwrap_or_else(IntoResponse::into_response);
    let sandbox = sandbox.filter(|_| is_answered).map(|id| (SANDBOX_HEADER, id));
    for (name, value) in [(EPISODE_HEADER, id)].into_iter().chain(sandbox) {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(name, value);
        }
    }
    Ok(response)
}

/// The sandbox that a header names.
fn choose(request: &mut ChatRequest, named: &HeaderValue) -> Result<(), ApiError> {
    let text = named.to_str().unwrap_or_default();
    let choice = request::choice(text).map_err(|why| ApiError::field(SANDBOX_HEADER, why))?;
    if request.sandbox.as_ref().is_some_and(|other| *other != choice) {
        return Err(ApiError::field("sandbox", "is not what the header x-sandbox-id says"));
    }
    request.sandbox = Some(choice);
    Ok(())
}

/// The answer as one document.
async fn whole<R: RemoteRuntime>(playing: &mut Playing<R>) -> Answer {
    let answered = playing.answer().await?;
    let message = json!({ "role": "assistant", "content": answered.content, "refusal": null });
    let mut body = playing.header.whole(message, answered.finish_reason, &answered.usage);
    body["episode"] = answered.extension;
    Ok(respond(StatusCode::OK, &body))
}

/// The models' names and descriptions.
async fn listed<R: RemoteRuntime>(chat: &Chat<R>) -> Result<Vec<Value>, ApiError> {
    if let Some(gateway) = &chat.options.gateway {
        return gateway.models().await;
    }
    let model = |name: String| {
        json!({
            "id": name,
            "object": "model",
            "created": chat.created,
            "owned_by": "llm-in-sandbox",
        })
    };
    Ok(chat.model_names().into_iter().map(model).collect())
}

async fn models<R: RemoteRuntime>(State(chat): Shared<R>) -> Answer {
    let body = json!({ "object": "list", "data": listed(&chat).await? });
    Ok(respond(StatusCode::OK, &body))
}

async fn one_model<R: RemoteRuntime>(State(chat): Shared<R>, Path(name): Path<String>) -> Answer {
    let mut models = listed(&chat).await?.into_iter();
    let model = models.find(|model| model["id"] == name).ok_or_else(|| unknown(&name))?;
    Ok(respond(StatusCode::OK, &model))
}

/// The error for an unknown model.
fn unknown(name: &str) -> ApiError {
    let message = format!("unknown model {name:?}; GET /v1/models lists the available ones");
    ApiError::field("model", message).code("model_not_found").with_status(StatusCode::NOT_FOUND)
}

/// A caller may not call the model.
fn not_allowed(refusal: ModelRefusal) -> ApiError {
    let message = refusal.to_string();
    match refusal {
        ModelRefusal::OverQuota(over) => ApiError::new(StatusCode::TOO_MANY_REQUESTS, message)
            .code("insufficient_quota")
            .retry_after(over.retry_after),
        ModelRefusal::UnknownPrice { .. } => {
            ApiError::new(StatusCode::FORBIDDEN, message).code("unknown_price")
        }
    }
}

/// A refusal of another part of the server.
fn refused(error: crate::error::ApiError) -> ApiError {
    let failure = ApiError::new(error.code.status(), error.message);
    match error.retry_after {
        Some(wait) => failure.retry_after(wait),
        None => failure,
    }
}
