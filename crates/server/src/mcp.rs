//! `/mcp`: the Model Context Protocol over streamable HTTP. The tools and the protocol itself are in the crate `mcp`.
//!
//! A client's `initialize` opens a session, whose id it sends from then on. A request is answered with JSON where the answer
//! is there soon, otherwise with a stream of events, which keeps the connection alive and carries progress. Streams cannot be
//! resumed: a client that loses its connection asks again, in the same session.

mod sessions;
mod sse;

use std::{sync::Arc, time::Duration};

use axum::{
    Extension, Router,
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header},
    response::IntoResponse,
    routing::post,
};
use mcp::{Incoming, Malformed, Refusal, ServerJsonRpcMessage};
use sandbox::RemoteRuntime;
use serde_json::{Value, json};
use tokio::{sync::mpsc, time::timeout};

pub(crate) use self::sessions::Sessions;
use self::sessions::{Attached, HttpSession, OpenError};
use crate::{
    app::Server,
    error::{ApiError, Code, respond},
    refusal::refuse,
    tokens::Caller,
};

/// Options of `/mcp`.
#[derive(Clone, Debug)]
pub struct McpOptions {
    /// Most sessions at once. One without a tool call has no sandbox.
    pub max_sessions: usize,
    /// How long a session lasts whose client has no connection.
    pub idle_timeout: Duration,
    /// Time limit of a command.
    pub command_timeout: Duration,
}

impl Default for McpOptions {
    fn default() -> Self {
        Self {
            max_sessions: 1000,
            idle_timeout: Duration::from_secs(600),
            command_timeout: Duration::from_secs(120),
        }
    }
}

/// The response to a request that is refused.
type Refused = Box<Response<Body>>;

/// The header with the id of a session.
const SESSION: &str = "mcp-session-id";
/// The header with the version of the protocol.
const VERSION: &str = "mcp-protocol-version";
const EVENTS: &str = "text/event-stream";
/// Answers that take longer are streams.
const SOON: Duration = Duration::from_secs(2);
/// How long a client waits for the end of its session.
const LONGEST_END: Duration = Duration::from_secs(30);

/// The routes.
pub(crate) fn routes<R: RemoteRuntime>(server: Arc<Server<R>>) -> Router {
    Router::new()
        .route("/mcp", post(message::<R>).get(stream::<R>).delete(end::<R>))
        .with_state(server)
}

/// A JSON-RPC error without a request of its own.
fn fail(status: StatusCode, message: &str) -> Response<Body> {
    respond(status, &Malformed::refused(Value::Null, message).reply())
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Whether the client accepts a media type.
fn accepts(headers: &HeaderMap, wanted: &str) -> bool {
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut types = values.flat_map(|value| value.split(','));
    let family = wanted.split('/').next().unwrap_or_default();
    types.any(|kind| {
        let kind = kind.split(';').next().unwrap_or_default().trim();
        kind.eq_ignore_ascii_case(wanted)
            || kind == "*/*"
            || kind.strip_suffix("/*") == Some(family)
    })
}

/// Checks the version that a request names, if it does.
fn check_version(headers: &HeaderMap) -> Result<(), Refused> {
    let Some(version) = headers.get(VERSION) else { return Ok(()) };
    if version.to_str().is_ok_and(mcp::is_supported) {
        return Ok(());
    }
    let known: Vec<&str> = mcp::VERSIONS.iter().map(|version| version.as_str()).collect();
    let message = format!("unsupported protocol version; this server has {}", known.join(", "));
    Err(fail(StatusCode::BAD_REQUEST, &message).into())
}

/// The session that a request names.
fn named<R: RemoteRuntime>(
    server: &Server<R>,
    caller: &Caller,
    headers: &HeaderMap,
) -> Result<Arc<HttpSession>, Refused> {
    let Some(id) = text(headers, SESSION) else {
        let message =
            "missing session; send `initialize` first, and then the header Mcp-Session-Id";
        return Err(fail(StatusCode::BAD_REQUEST, message).into());
    };
    let found = server.mcp.find(id, &caller.name);
    // The status tells clients to open a new session.
    found
        .ok_or_else(|| fail(StatusCode::NOT_FOUND, "this session has ended; open a new one").into())
}

/// A message of a client.
async fn message<R: RemoteRuntime>(
    State(server): State<Arc<Server<R>>>,
    Extension(caller): Extension<Caller>,
    request: Request<Body>,
) -> Response<Body> {
    receive(&server, caller, request).await.unwrap_or_else(|refused| *refused)
}

async fn receive<R: RemoteRuntime>(
    server: &Arc<Server<R>>,
    caller: Caller,
    request: Request<Body>,
) -> Result<Response<Body>, Refused> {
    let headers = request.headers().clone();
    if !accepts(&headers, "application/json") || !accepts(&headers, EVENTS) {
        let message = "the client must accept application/json and text/event-stream";
        return Err(fail(StatusCode::NOT_ACCEPTABLE, message).into());
    }
    check_version(&headers)?;
    let (bytes, _memory) =
        server.receive(request).await.map_err(|error| Box::new(refuse("/mcp", error)))?;
    let incoming = mcp::parse(&bytes)
        .map_err(|malformed| Box::new(respond(StatusCode::BAD_REQUEST, &malformed.reply())))?;
    drop(bytes);
    if !incoming.is_initialize() || headers.contains_key(SESSION) {
        let session = named(server, &caller, &headers)?;
        let attached = session.attach();
        return answer(incoming, &session, attached).await;
    }
    let session = server.mcp.open(server, caller).map_err(|error| match error {
        OpenError::TooMany => {
            let message = "this server has too many sessions";
            Box::new(refuse("/mcp", ApiError::new(Code::TooMany, message)))
        }
        OpenError::Failed(error) => Box::new(refuse("/mcp", error)),
    })?;
    let attached = session.attach();
    let mut response = answer(incoming, &session, attached).await?;
    if let Ok(id) = HeaderValue::from_str(&session.id) {
        response.headers_mut().insert(SESSION, id);
    }
    Ok(response)
}

/// Passes a message on, and answers it if it is a request.
async fn answer(
    incoming: Incoming,
    session: &Arc<HttpSession>,
    attached: Attached,
) -> Result<Response<Body>, Refused> {
    let (is_initialize, id) = (incoming.is_initialize(), incoming.id());
    let refused = |refusal: Refusal| {
        let status = match refusal {
            Refusal::Ended => StatusCode::NOT_FOUND,
            Refusal::DuplicateId => StatusCode::BAD_REQUEST,
            Refusal::TooMany => StatusCode::TOO_MANY_REQUESTS,
        };
        Box::new(respond(status, &Malformed::refused(id.clone(), refusal.to_string()).reply()))
    };
    let mut answers = match incoming {
        Incoming::Other(message) => {
            session.exchange.notify(*message).await.map_err(refused)?;
            return Ok(StatusCode::ACCEPTED.into_response());
        }
        Incoming::Request(message) => session.exchange.request(*message).await.map_err(refused)?,
    };
    match timeout(SOON, answers.recv()).await {
        Ok(Some(ServerJsonRpcMessage::Notification(first))) => {
            let first = json!(ServerJsonRpcMessage::Notification(first));
            Ok(sse::answers(Some(&first), answers, attached))
        }
        Ok(Some(answer)) => {
            if is_initialize && matches!(answer, ServerJsonRpcMessage::Error(_)) {
                session.stop.cancel();
            }
            Ok(respond(StatusCode::OK, &json!(answer)))
        }
        // It was cancelled, or the session ended: there is no answer.
        Ok(None) => Ok(sse::answers(None, mpsc::channel(1).1, attached)),
        Err(_) => Ok(sse::answers(None, answers, attached)),
    }
}

/// The stream of what belongs to no request. Nothing does; it shows that the client is there.
async fn stream<R: RemoteRuntime>(
    State(server): State<Arc<Server<R>>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Response<Body> {
    if !accepts(&headers, EVENTS) {
        return fail(StatusCode::NOT_ACCEPTABLE, "the client must accept text/event-stream");
    }
    let session = match check_version(&headers).and_then(|()| named(&server, &caller, &headers)) {
        Ok(session) => session,
        Err(refused) => return *refused,
    };
    match session.attach_stream() {
        Some(attached) => sse::idle(session.stop.clone(), attached),
        None => fail(StatusCode::CONFLICT, "this session has such a stream already"),
    }
}

/// Ends a session; answers once its sandbox is gone.
async fn end<R: RemoteRuntime>(
    State(server): State<Arc<Server<R>>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Response<Body> {
    let session = match named(&server, &caller, &headers) {
        Ok(session) => session,
        Err(refused) => return *refused,
    };
    session.stop.cancel();
    let _ = timeout(LONGEST_END, session.gone.cancelled()).await;
    StatusCode::NO_CONTENT.into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepted_types_are_lists_with_ranges() {
        let accepts = |value: &str, kind: &str| {
            let headers = HeaderMap::from_iter([(header::ACCEPT, value.parse().unwrap())]);
            super::accepts(&headers, kind)
        };
        for value in
            ["application/json, text/event-stream", "*/*", "text/*;q=1,x/y", "Text/Event-Stream"]
        {
            assert!(accepts(value, EVENTS), "{value}");
        }
        for value in ["", "application/json", "text/event-streams", "text"] {
            assert!(!accepts(value, EVENTS), "{value}");
        }
        assert!(!super::accepts(&HeaderMap::new(), EVENTS));
    }
}
