//! OpenEnv's protocol over the same sessions: one WebSocket is one environment, which is reset, stepped and read.
//!
//! A step whose episode ends is scored at once: its reward is the score. Where the score is not valid the client gets an
//! error instead of a reward, so that a failure of the infrastructure is never taken for a 0.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::{
        Extension, Path, State,
        ws::{
            Message, Utf8Bytes, WebSocket, WebSocketUpgrade, rejection::WebSocketUpgradeRejection,
        },
    },
    http::{Response, StatusCode},
    response::IntoResponse,
};
use environment::Snapshot;
use http_server::{MemoryBudget, MemoryPermit};
use sandbox::{RemoteRuntime, Runtime};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Answer, Answered, By, Client, MAX_WAIT, Shared,
    message::{SentCall, SentMessage},
    openenv_schema,
    refusal::Refusal,
    wire::{self, ResetBody, SentLimits, SentRow, SentUsage, Wait},
};
use crate::{bounded_json, error::ApiError};

/// Most bytes of a message. Fewer than of a body: those that are not yet complete are outside the memory of bodies.
const MAX_MESSAGE: usize = 1 << 20;
/// Messages that a client may send ahead of their answers.
const MAX_QUEUED: usize = 2;
/// Longest name that a client may give an episode.
const MAX_EPISODE_ID: usize = 255;
/// How long an answer may take to be sent.
const SEND: Duration = Duration::from_secs(60);

/// `/ws`: upgrades a request to a connection.
pub(super) async fn connect<R: RemoteRuntime>(
    State(server): Shared<R>,
    Extension(caller): By,
    task: Option<Path<String>>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response<Body>, Refusal> {
    let client = Client::new(&server, caller)?;
    let task = task.map(|Path(task)| task);
    if let Some(task) = &task {
        client.environments.task(Some(task))?;
    }
    let upgrade = upgrade.map_err(|why| ApiError::invalid(why.body_text()))?;
    let tokens = server.registry.options.tokens.clone();
    let Some(place) = server.openenv.take(&client.caller.name, &tokens) else {
        let error = ApiError::new(crate::error::Code::TooMany, "too many connections");
        return Err(error.into());
    };
    let memory = server.body_memory(Some(&client.caller));
    let upgrade = upgrade.max_message_size(MAX_MESSAGE).max_frame_size(MAX_MESSAGE);
    Ok(upgrade.on_upgrade(async move |socket| {
        let name = Arc::clone(&client.caller.name);
        let mut connection = Connection { client, task, session: None, episode_id: None, memory };
        tokio::select! {
            biased;
            () = tokens.gone(&name) => {}
            () = connection.serve(socket) => {}
        }
        connection.close().await;
        drop(place);
    }))
}

/// `/metadata`.
pub(super) async fn metadata<R: RemoteRuntime>(
    State(server): Shared<R>,
    Extension(caller): By,
    task: Option<Path<String>>,
) -> Answered {
    let client = Client::new(&server, caller)?;
    let (name, description) = match task {
        Some(Path(task)) => {
            let served = client.environments.task(Some(&task))?;
            let rows = served.rows();
            (task, format!("a model solves one of {rows} problems in a sandbox, with tools"))
        }
        None => {
            let tasks = client.environments.tasks().iter();
            let names: Vec<&str> = tasks.map(|served| served.task().name.as_str()).collect();
            let description = "a model solves a problem in a sandbox, with tools; tasks: ";
            ("llm-in-sandbox".to_owned(), description.to_owned() + &names.join(", "))
        }
    };
    let version = env!("CARGO_PKG_VERSION");
    let body = json!({ "name": name, "description": description, "version": version });
    Ok(Answer { status: StatusCode::OK, body })
}

/// `/schema`.
pub(super) async fn schema<R: RemoteRuntime>(
    State(server): Shared<R>,
    Extension(caller): By,
) -> Answered {
    Client::new(&server, caller)?;
    Ok(Answer { status: StatusCode::OK, body: openenv_schema::schemas() })
}

/// `/health`, by which containers are found ready.
pub(super) async fn health() -> Response<Body> {
    Answer { status: StatusCode::OK, body: json!({ "status": "healthy" }) }.into_response()
}

/// A message of a client.
#[derive(Debug, Deserialize)]
struct Incoming {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    data: Value,
}

/// What a client may pass to `reset`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ResetData {
    seed: Option<u64>,
    episode_id: Option<String>,
    task: Option<String>,
    row: Option<SentRow>,
    tool_format: Option<String>,
    limits: SentLimits,
}

/// An action: the response of the model in one of several forms.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Action {
    message: Option<SentMessage>,
    text: Option<String>,
    tool_calls: Option<Vec<SentCall>>,
    tool_name: Option<String>,
    arguments: Value,
    #[serde(rename = "type")]
    kind: Option<String>,
    finish_reason: Option<String>,
    usage: Option<SentUsage>,
    #[serde(rename = "metadata")]
    _metadata: Value,
}

impl Action {
    fn into_given(self) -> Result<environment::Given, Failed> {
        if self.kind.as_deref().is_some_and(|kind| kind != "call_tool") {
            return Err(Failed::invalid("the type of an action can only be `call_tool`"));
        }
        let message = match (self.message, self.text, self.tool_calls, self.tool_name) {
            (Some(message), None, None, None) => message,
            (None, Some(text), None, None) => SentMessage::text(text),
            (None, None, Some(calls), None) => SentMessage::calls(calls),
            (None, None, None, Some(name)) => {
                SentMessage::calls(vec![SentCall::new(name, self.arguments)])
            }
            _ => {
                let message =
                    "an action has one of `message`, `text`, `tool_calls` and `tool_name`";
                return Err(Failed::invalid(message));
            }
        };
        let tokens = self.usage.map(SentUsage::counts);
        Ok(message.into_given(self.finish_reason.as_deref() == Some("length"), tokens))
    }
}

/// Why a message has no other answer, with OpenEnv's code.
#[derive(Debug)]
struct Failed {
    code: &'static str,
    message: String,
}

impl Failed {
    fn invalid(message: impl Into<String>) -> Self {
        Self { code: "VALIDATION_ERROR", message: message.into() }
    }
}

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Self {
        let code = match refusal.status {
            StatusCode::TOO_MANY_REQUESTS => "CAPACITY_REACHED",
            StatusCode::GONE => "SESSION_ERROR",
            status if status.is_server_error() => "SESSION_ERROR",
            _ => "VALIDATION_ERROR",
        };
        Self { code, message: refusal.message }
    }
}

impl From<environment::Error> for Failed {
    fn from(error: environment::Error) -> Self {
        Refusal::from(error).into()
    }
}

/// One client's environment.
struct Connection<R: Runtime> {
    client: Client<R>,
    task: Option<String>,
    session: Option<String>,
    episode_id: Option<String>,
    /// For messages.
    memory: MemoryBudget,
}

/// A message of a client, and the memory it takes.
struct Received {
    text: Utf8Bytes,
    _permit: MemoryPermit,
}

impl Received {
    /// `None` where there is no memory for it.
    fn new(text: Utf8Bytes, memory: &MemoryBudget) -> Option<Self> {
        let mut permit = memory.permit();
        permit.grow(text.len())?;
        Some(Self { text, _permit: permit })
    }
}

/// What to do after a message.
enum Then {
    Answer(Value),
    Close,
}

impl<R: RemoteRuntime> Connection<R> {
    /// Answers messages until the client is gone, silent for the time of a lease, or the server shuts down.
    async fn serve(&mut self, mut socket: WebSocket) {
        let environments = Arc::clone(&self.client.environments);
        let mut queue = VecDeque::new();
        loop {
            let received = match queue.pop_front() {
                Some(received) => received,
                None => {
                    let lease = environments.options().lease;
                    let next = tokio::select! {
                        () = environments.shutting_down() => return,
                        next = tokio::time::timeout(lease, socket.recv()) => next,
                    };
                    match next {
                        Ok(Some(Ok(Message::Text(text)))) => {
                            match Received::new(text, &self.memory) {
                                Some(received) => received,
                                None => return,
                            }
                        }
                        // The client is alive.
                        Ok(Some(Ok(Message::Ping(_) | Message::Pong(_)))) => {
                            self.renew();
                            continue;
                        }
                        _ => return,
                    }
                }
            };
            let answering = self.answer_while_listening(&received.text, &mut socket, &mut queue);
            let Some(then) = answering.await else { return };
            drop(received);
            let answer = match then {
                Then::Answer(answer) => Message::Text(answer.to_string().into()),
                Then::Close => Message::Close(None),
            };
            let is_last = matches!(answer, Message::Close(_));
            let sending = socket.send(answer);
            if !matches!(tokio::time::timeout(SEND, sending).await, Ok(Ok(()))) || is_last {
                return;
            }
        }
    }

    /// Answers a message, while pings are answered and the client's end is noticed; then there is no answer.
    async fn answer_while_listening(
        &mut self,
        text: &str,
        socket: &mut WebSocket,
        queue: &mut VecDeque<Received>,
    ) -> Option<Then> {
        let (environments, memory) = (Arc::clone(&self.client.environments), self.memory.clone());
        let mut answering = std::pin::pin!(self.answer(text));
        loop {
            tokio::select! {
                then = &mut answering => return Some(then),
                () = environments.shutting_down() => return None,
                next = socket.recv() => match next {
                    Some(Ok(Message::Text(text))) if queue.len() < MAX_QUEUED => {
                        queue.push_back(Received::new(text, &memory)?);
                    }
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                    _ => return None,
                },
            }
        }
    }

    async fn answer(&mut self, text: &str) -> Then {
        let error = |failed: Failed| {
            let data = json!({ "message": failed.message, "code": failed.code });
            Then::Answer(json!({ "type": "error", "data": data }))
        };
        if let Err(over) = self.client.caller.account().count_request() {
            return error(Refusal::from(ApiError::from(over)).into());
        }
        let Incoming { kind, data } = match bounded_json::parse(text.as_bytes(), "message") {
            Ok(incoming) => incoming,
            Err(why) => return error(Failed { code: "INVALID_JSON", message: why.message }),
        };
        let answered = match kind.as_str() {
            "reset" => self.reset(data).await.map(|data| ("observation", data)),
            "step" => self.step(data).await.map(|data| ("observation", data)),
            "state" => self.state().await.map(|data| ("state", data)),
            "close" => return Then::Close,
            _ => {
                let message = "unknown message type; known are reset, step, state and close";
                Err(Failed { code: "UNKNOWN_TYPE", message: message.into() })
            }
        };
        match answered {
            Ok((kind, data)) => Then::Answer(json!({ "type": kind, "data": data })),
            Err(failed) => error(failed),
        }
    }

    async fn reset(&mut self, data: Value) -> Result<Value, Failed> {
        let data: ResetData = match data {
            Value::Null => ResetData::default(),
            data => parsed(data)?,
        };
        if data.episode_id.as_ref().is_some_and(|id| id.len() > MAX_EPISODE_ID) {
            return Err(Failed::invalid("the `episode_id` is too long"));
        }
        let task = match (&self.task, data.task) {
            (Some(own), Some(other)) if *own != other => {
                return Err(Failed::invalid(format!("this address is for the task `{own}`")));
            }
            (own, other) => own.clone().or(other),
        };
        self.close().await;
        let body = ResetBody {
            row: data.row,
            seed: data.seed,
            tool_format: data.tool_format,
            limits: data.limits,
            wait: Wait::default(),
        };
        let snapshot = self.client.start(task, body, MAX_WAIT).await?;
        self.session = Some(snapshot.id.clone());
        self.episode_id = Some(data.episode_id.unwrap_or_else(|| snapshot.id.clone()));
        if snapshot.is_pending() {
            self.close().await;
            let message = "no sandbox became free in time";
            return Err(Failed { code: "CAPACITY_REACHED", message: message.into() });
        }
        Ok(observation(&snapshot))
    }

    async fn step(&mut self, data: Value) -> Result<Value, Failed> {
        let given = parsed::<Action>(data)?.into_given()?;
        let id = self.session.clone().ok_or_else(|| Failed::invalid("call reset first"))?;
        let (environments, owner) = (&self.client.environments, &self.client.caller.name);
        let mut snapshot = environments.step(owner, &id, None, given, MAX_WAIT).await?;
        if snapshot.outcome.is_some() {
            snapshot = environments.score(owner, &id, MAX_WAIT).await?;
        }
        if snapshot.is_pending() {
            let message = "the step takes too long; reset to start again";
            return Err(Failed { code: "EXECUTION_ERROR", message: message.into() });
        }
        let failure = snapshot.score.as_ref().and_then(|score| score.failure.as_ref());
        if let Some(failure) = failure {
            let message = format!(
                "the episode has no valid score, through no fault of the model; reset to play again: {}",
                failure.cause
            );
            return Err(Failed { code: "SESSION_ERROR", message });
        }
        Ok(observation(&snapshot))
    }

    async fn state(&self) -> Result<Value, Failed> {
        let Some(id) = &self.session else {
            return Ok(json!({ "episode_id": null, "step_count": 0, "session": null }));
        };
        let owner = &self.client.caller.name;
        let snapshot = self.client.environments.get(owner, id, Duration::ZERO).await?;
        let mut state = wire::view(&snapshot);
        if let Some(state) = state.as_object_mut() {
            state.remove("observation");
            state.remove("message");
            state.insert("episode_id".into(), json!(self.episode_id));
            state.insert("step_count".into(), json!(snapshot.step));
        }
        Ok(state)
    }

    fn renew(&self) {
        if let Some(id) = &self.session {
            // Where it is gone, the next message says so.
            let _ = self.client.environments.heartbeat(&self.client.caller.name, id);
        }
    }

    /// Ends the session, so that its sandbox is free.
    async fn close(&mut self) {
        if let Some(id) = self.session.take() {
            let _ = self.client.environments.close(&self.client.caller.name, &id).await;
        }
    }
}

fn parsed<T: serde::de::DeserializeOwned>(data: Value) -> Result<T, Failed> {
    serde_json::from_value(data).map_err(|error| Failed::invalid(format!("bad data: {error}")))
}

/// A result as OpenEnv has it.
fn observation(snapshot: &Snapshot) -> Value {
    let mut view = wire::view(snapshot);
    let mut take = |key: &str| view.as_object_mut().and_then(|view| view.remove(key));
    let observation = take("observation").unwrap_or_else(|| json!({ "messages": [] }));
    json!({
        "observation": observation,
        "reward": snapshot.score.as_ref().and_then(|score| score.score),
        "done": snapshot.outcome.is_some(),
        "metadata": view,
    })
}
