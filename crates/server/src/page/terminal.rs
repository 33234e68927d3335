//! Terminals of sandboxes in the page: a sandbox, a shell in it, and a WebSocket with the bytes of both directions.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::{
    Router,
    body::Body,
    extract::{
        Extension, Path, State,
        ws::{Message, WebSocket, WebSocketUpgrade, rejection::WebSocketUpgradeRejection},
    },
    http::{Request, Response, StatusCode},
    response::IntoResponse,
    routing::{delete, get},
};
use bytes::Bytes;
use futures_util::{FutureExt, future::FusedFuture};
use sandbox::{RemoteRuntime, RemoteSandbox, TerminalSize};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::mpsc;

use super::MAX_BODY;
use crate::{
    app::Server,
    control::{found, no_content},
    control_types::NewSandbox,
    error::{ApiError, Code, respond},
    live::Live,
    output_log::Piece,
    process_types::ProcessConfig,
    running::{End, Running, Start},
    tokens::Caller,
};

/// How long a sandbox of the page lives, in seconds.
const LIFETIME: u64 = 3600;
/// Most bytes of a message of the browser: a paste is sent in several.
const MAX_MESSAGE: usize = 256 << 10;
/// Pieces of output that wait for the browser.
const WAITING: usize = 8;
/// How long a browser may take for a piece.
const STALLED: Duration = Duration::from_secs(60);
/// How often a browser is asked whether it is there while a program does not read, and so nobody reads what it sends.
const PING: Duration = Duration::from_secs(2);
/// A terminal was hung up.
const SIGHUP: i32 = 1;
const SIGKILL: i32 = 9;

type Shared<R> = State<Arc<Server<R>>>;
type By = Extension<Caller>;

/// An error as the page reads it.
pub(super) struct Refused(ApiError);

impl<E: Into<ApiError>> From<E> for Refused {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response<Body> {
        let status = self.0.code.status();
        let code = match status {
            StatusCode::BAD_REQUEST => "invalid",
            StatusCode::NOT_FOUND => "not_found",
            StatusCode::TOO_MANY_REQUESTS => "too_many",
            StatusCode::CONFLICT => "conflict",
            _ => "unavailable",
        };
        super::refused(status, code, &self.0.message)
    }
}

type Answer = Result<Response<Body>, Refused>;

/// The routes. Requests have their caller as an extension.
pub(super) fn routes<R: RemoteRuntime>(server: Arc<Server<R>>) -> Router {
    Router::new()
        .route("/page/api/sandboxes", get(list::<R>).post(create::<R>))
        .route("/page/api/sandboxes/{id}", delete(remove::<R>))
        .route("/page/api/sandboxes/{id}/terminal", get(terminal::<R>))
        .with_state(server)
}

async fn list<R: RemoteRuntime>(State(server): Shared<R>, Extension(caller): By) -> Answer {
    let millis = |time: SystemTime| {
        time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
    };
    let row = |live: Arc<Live<R::Sandbox>>| {
        let lifetime = *live.lifetime.borrow();
        let state = if lifetime.is_paused() { "paused" } else { "running" };
        json!({ "id": live.id, "template": live.template, "started": millis(live.started),
            "ends": millis(lifetime.ends_at()), "state": state })
    };
    let all: Vec<_> = server.registry.all_of(&caller).into_iter().map(row).collect();
    Ok(respond(StatusCode::OK, &json!({ "sandboxes": all })))
}

async fn create<R: RemoteRuntime>(
    State(server): Shared<R>,
    Extension(caller): By,
    request: Request<Body>,
) -> Answer {
    // It says nothing yet.
    server.receive_at_most(MAX_BODY, request).await?;
    let new = json!({ "templateID": "base", "timeout": LIFETIME });
    let new: NewSandbox =
        serde_json::from_value(new).map_err(|error| ApiError::invalid(error.to_string()))?;
    // In a task of its own: a browser that disconnects meanwhile must not leave a sandbox that nobody knows.
    let registry = Arc::clone(&server.registry);
    let creating = tokio::spawn(async move { registry.create(&caller, new).await });
    let live = creating.await.map_err(ApiError::from)??;
    Ok(respond(StatusCode::CREATED, &json!({ "id": live.id })))
}

async fn remove<R: RemoteRuntime>(
    State(server): Shared<R>,
    Extension(caller): By,
    Path(id): Path<String>,
) -> Answer {
    found(&server, &caller, &id)?;
    server.registry.kill(&id);
    Ok(no_content())
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct Size {
    cols: u16,
    rows: u16,
}

impl From<Size> for TerminalSize {
    fn from(size: Size) -> Self {
        let or = |value: u16, default| if value == 0 { default } else { value.min(1000) };
        Self { rows: or(size.rows, 24), cols: or(size.cols, 80) }
    }
}

/// What the browser says besides input.
#[derive(Debug, Deserialize)]
struct Control {
    resize: Size,
}

async fn terminal<R: RemoteRuntime>(
    State(server): Shared<R>,
    Extension(caller): By,
    Path(id): Path<String>,
    axum::extract::Query(size): axum::extract::Query<Size>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Answer {
    let live = found(&server, &caller, &id)?;
    let upgrade = upgrade.map_err(|why| ApiError::invalid(why.body_text()))?;
    live.awake().await?;
    let start = Start {
        config: ProcessConfig {
            cmd: "/bin/bash".into(),
            args: vec!["-l".into()],
            envs: [("TERM".to_owned(), "xterm-256color".to_owned())].into(),
            cwd: None,
        },
        tag: None,
        terminal: Some(size.into()),
        stdin: true,
        timeout: None,
        user: live.user(None).await?,
    };
    let tokens = server.registry.options.tokens.clone();
    let Some(place) = server.terminals.take(&caller.name, &tokens) else {
        return Err(ApiError::new(Code::TooMany, "too many terminals").into());
    };
    let upgrade = upgrade.max_message_size(MAX_MESSAGE).max_frame_size(MAX_MESSAGE);
    Ok(upgrade.on_upgrade(async move |socket| {
        let (name, _place) = (Arc::clone(&caller.name), place);
        tokio::select! {
            biased;
            () = tokens.gone(&name) => {}
            () = live.ended() => {}
            () = connect(socket, &live, start) => {}
        }
    }))
}

/// Passes bytes between a browser and a shell until one of them ends.
async fn connect<S: RemoteSandbox>(mut socket: WebSocket, live: &Arc<Live<S>>, start: Start) {
    let (running, mut reader) = match Running::start(live, start).await {
        Ok(started) => started,
        Err(error) => {
            let _ = socket
                .send(Message::Text(json!({ "error": error.message }).to_string().into()))
                .await;
            return;
        }
    };
    let (sender, mut pieces) = mpsc::channel(WAITING);
    let reading = tokio::spawn(async move {
        while let Some(piece) = reader.next().await {
            if sender.send(piece).await.is_err() {
                break;
            }
        }
    });
    // Input on its way to the program. Until it arrives no more is received, but output and the end of the browser are noticed.
    let mut sending = std::pin::pin!(futures_util::future::Fuse::terminated());
    let mut ping = tokio::time::interval(PING);
    ping.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let is_sending = !sending.is_terminated();
        tokio::select! {
            () = &mut sending, if is_sending => {}
            piece = pieces.recv() => {
                let message = match piece {
                    None => break,
                    Some(Piece::Output(_, bytes)) => Message::Binary(bytes),
                    Some(Piece::End(end)) => Message::Text(exit(&end).into()),
                };
                if !send(&mut socket, message).await {
                    break;
                }
            }
            _ = ping.tick(), if is_sending => {
                if !send(&mut socket, Message::Ping(Bytes::new())).await {
                    break;
                }
            }
            message = socket.recv(), if !is_sending => match message {
                Some(Ok(message)) => sending.set(take(&running, message).fuse()),
                _ => break,
            }
        }
    }
    reading.abort();
    if running.log.ended().is_none() {
        running.signal(SIGHUP).await;
        running.signal(SIGKILL).await;
    }
}

/// Whether a message was sent in time.
async fn send(socket: &mut WebSocket, message: Message) -> bool {
    matches!(tokio::time::timeout(STALLED, socket.send(message)).await, Ok(Ok(())))
}

async fn take(running: &Running, message: Message) {
    match message {
        Message::Binary(bytes) => {
            let _ = running.send(bytes).await;
        }
        Message::Text(text) => {
            if let Ok(Control { resize }) = serde_json::from_str(&text) {
                let _ = running.resize(resize.into());
            }
        }
        _ => {}
    }
}

fn exit(end: &End) -> String {
    match end {
        Ok(exit) => json!({ "exit": exit.status.code() }).to_string(),
        Err(why) => json!({ "exit": -1, "error": why }).to_string(),
    }
}
