//! Environments for reinforcement learning over HTTP: sessions at tasks, whose model is the client.
//!
//! Every operation is a function from JSON to an [`Answer`], so that single requests and batches run the same code. The
//! formats are in `wire.rs`; messages are written as in OpenAI's chat completions. `openenv.rs` serves the same sessions
//! to clients of OpenEnv.

mod batch;
mod message;
mod openenv;
mod openenv_schema;
mod refusal;
mod wire;

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::{Extension, Path, Query, State},
    http::{Request, Response, StatusCode},
    response::IntoResponse,
    routing::{get, post},
};
use environment::{Environments, GoneReason, Options, Served, Snapshot};
use sandbox::{RemoteRuntime, Runtime};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    app::Server,
    bounded_json,
    error::{ApiError, Code, respond},
    tokens::{Caller, Tokens},
};
use refusal::Refusal;

/// The longest a request waits for a result.
const MAX_WAIT: Duration = Duration::from_secs(600);

/// Tasks that are served as environments.
#[derive(Clone, Debug)]
pub struct EnvironmentOptions {
    /// The tasks, with different names.
    pub tasks: Vec<Served>,
    /// Limits of sessions.
    pub sessions: Options,
}

impl EnvironmentOptions {
    /// The sessions at these tasks. Each takes one of the server's permits for its sandbox.
    pub(crate) fn start<R: Runtime>(
        self,
        runtime: Arc<R>,
        permits: Arc<tokio::sync::Semaphore>,
    ) -> Arc<Environments<R>> {
        Arc::new(Environments::new(runtime, permits, self.tasks, self.sessions))
    }
}

type Shared<R> = State<Arc<Server<R>>>;
type By = Extension<Caller>;

/// What an operation came to.
pub(crate) struct Answer {
    status: StatusCode,
    body: Value,
}

impl Answer {
    fn of(snapshot: &Snapshot) -> Self {
        let status = if snapshot.is_pending() { StatusCode::ACCEPTED } else { StatusCode::OK };
        Self { status, body: wire::view(snapshot) }
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response<Body> {
        respond(self.status, &self.body)
    }
}

type Answered = Result<Answer, Refusal>;

/// The routes.
pub(crate) fn routes<R: RemoteRuntime>(server: Arc<Server<R>>) -> Router {
    Router::new()
        .route("/v1/environments", get(list::<R>))
        .route("/v1/environments/{task}/reset", post(reset::<R>))
        .route("/v1/sessions/batch", post(batch::run::<R>))
        .route("/v1/sessions/{id}", get(show::<R>).delete(close::<R>))
        .route("/v1/sessions/{id}/step", post(step::<R>))
        .route("/v1/sessions/{id}/score", post(score::<R>))
        .route("/v1/sessions/{id}/heartbeat", post(heartbeat::<R>))
        .route("/v1/sessions/{id}/close", post(close::<R>))
        .route("/ws", get(openenv::connect::<R>))
        .route("/metadata", get(openenv::metadata::<R>))
        .route("/schema", get(openenv::schema::<R>))
        .route("/openenv/{task}/ws", get(openenv::connect::<R>))
        .route("/openenv/{task}/metadata", get(openenv::metadata::<R>))
        .route("/openenv/{task}/schema", get(openenv::schema::<R>))
        .route("/openenv/{task}/health", get(openenv::health))
        .method_not_allowed_fallback(wrong_method)
        .with_state(server)
}

async fn wrong_method(request: Request<Body>) -> Refusal {
    ApiError::wrong_method(request.method(), request.uri().path()).into()
}

/// One client's access to the sessions.
pub(crate) struct Client<R: Runtime> {
    environments: Arc<Environments<R>>,
    caller: Caller,
    tokens: Tokens,
}

impl<R: RemoteRuntime> Client<R> {
    pub(crate) fn new(server: &Server<R>, caller: Caller) -> Result<Self, Refusal> {
        match &server.environments {
            Some(environments) => Ok(Self {
                environments: Arc::clone(environments),
                caller,
                tokens: server.registry.options.tokens.clone(),
            }),
            None => Err(ApiError::not_found("this server serves no tasks").into()),
        }
    }

    /// The reset of a session, which takes from the caller's quota until its sandbox is gone.
    async fn reset(&self, task: Option<String>, body: wire::ResetBody) -> Answered {
        let wait = body.wait.duration();
        let snapshot = self.start(task, body, wait).await?;
        Ok(Answer::of(&snapshot))
    }

    async fn start(
        &self,
        task: Option<String>,
        body: wire::ResetBody,
        wait: Duration,
    ) -> Result<Snapshot, Refusal> {
        let mut reset = body.into_reset(task)?;
        let usual = &self.environments.task(reset.task.as_deref())?.settings().sandbox.limits;
        let limits = self.caller.limits(usual.clone());
        let share = self.caller.account().take_sandbox(&limits).map_err(ApiError::from)?;
        reset.sandbox = Some(limits);
        reset.most_of_owner = Some(self.tokens.share_of(self.environments.options().max_sessions));
        let held = model::Permit::new(share);
        let resetting = self.environments.reset(&self.caller.name, reset, held, wait);
        let snapshot = tokio::select! {
            biased;
            snapshot = resetting => snapshot?,
            () = self.tokens.gone(&self.caller.name) => return Err(revoked()),
        };
        // Sessions of a token that is gone were ended, perhaps before this one was among them.
        if !self.tokens.has(&self.caller.name) {
            let _ = self.environments.close(&self.caller.name, &snapshot.id).await;
            return Err(revoked());
        }
        match Refusal::of_start(&snapshot) {
            None => Ok(snapshot),
            Some(refusal) => {
                // Nothing can be done with a session that never had a sandbox.
                let _ = self.environments.close(&self.caller.name, &snapshot.id).await;
                Err(refusal)
            }
        }
    }

    async fn step(&self, id: &str, body: wire::StepBody) -> Answered {
        let (number, wait) = (body.step, body.wait.duration());
        let given = body.into_given()?;
        let environments = &self.environments;
        let snapshot = environments.step(&self.caller.name, id, number, given, wait).await?;
        Ok(Answer::of(&snapshot))
    }

    async fn score(&self, id: &str, body: wire::WaitBody) -> Answered {
        let wait = body.wait.duration();
        Ok(Answer::of(&self.environments.score(&self.caller.name, id, wait).await?))
    }

    async fn show(&self, id: &str, wait: Duration) -> Answered {
        Ok(Answer::of(&self.environments.get(&self.caller.name, id, wait).await?))
    }

    fn heartbeat(&self, id: &str) -> Answered {
        let snapshot = self.environments.heartbeat(&self.caller.name, id)?;
        let left = snapshot.lease_left.as_secs_f64();
        let body = json!({ "session": id, "lease_seconds_left": left });
        Ok(Answer { status: StatusCode::OK, body })
    }

    async fn close(&self, id: &str) -> Answered {
        let reason: GoneReason = self.environments.close(&self.caller.name, id).await?;
        let body = json!({ "session": id, "state": "gone", "gone": reason.name() });
        Ok(Answer { status: StatusCode::OK, body })
    }
}

fn revoked() -> Refusal {
    ApiError::new(Code::Unauthenticated, "the token is not valid any more").into()
}

/// The parsed JSON body of a request; an absent one stands for an empty object.
async fn body<R: Runtime, T: DeserializeOwned>(
    server: &Server<R>,
    request: Request<Body>,
) -> Result<T, Refusal> {
    let (bytes, _permit) = server.receive(request).await?;
    Ok(bounded_json::parse(&bytes, "body")?)
}

async fn list<R: RemoteRuntime>(State(server): Shared<R>, Extension(caller): By) -> Answered {
    let client = Client::new(&server, caller)?;
    let tasks: Vec<Value> = client.environments.tasks().iter().map(wire::task).collect();
    Ok(Answer { status: StatusCode::OK, body: json!({ "environments": tasks }) })
}

async fn reset<R: RemoteRuntime>(
    State(server): Shared<R>,
    Extension(caller): By,
    Path(task): Path<String>,
    request: Request<Body>,
) -> Answered {
    let client = Client::new(&server, caller)?;
    client.reset(Some(task), body(&server, request).await?).await
}

async fn step<R: RemoteRuntime>(
    State(server): Shared<R>,
    Extension(caller): By,
    Path(id): Path<String>,
    request: Request<Body>,
) -> Answered {
    let client = Client::new(&server, caller)?;
    client.step(&id, body(&server, request).await?).await
}

async fn score<R: RemoteRuntime>(
    State(server): Shared<R>,
    Extension(caller): By,
    Path(id): Path<String>,
    request: Request<Body>,
) -> Answered {
    let client = Client::new(&server, caller)?;
    client.score(&id, body(&server, request).await?).await
}

/// How long a request for a session's state waits for a result.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ShowQuery {
    #[serde(default)]
    wait: f64,
}

async fn show<R: RemoteRuntime>(
    State(server): Shared<R>,
    Extension(caller): By,
    Path(id): Path<String>,
    request: Request<Body>,
) -> Answered {
    let query = Query::<ShowQuery>::try_from_uri(request.uri());
    let Query(query) = query.map_err(|error| ApiError::invalid(format!("bad query: {error}")))?;
    Client::new(&server, caller)?.show(&id, wire::seconds(query.wait)).await
}

async fn heartbeat<R: RemoteRuntime>(
    State(server): Shared<R>,
    Extension(caller): By,
    Path(id): Path<String>,
) -> Answered {
    Client::new(&server, caller)?.heartbeat(&id)
}

async fn close<R: RemoteRuntime>(
    State(server): Shared<R>,
    Extension(caller): By,
    Path(id): Path<String>,
) -> Answered {
    Client::new(&server, caller)?.close(&id).await
}
