//! Several operations in one request: they run concurrently, and each has its own result.

use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
};

use axum::{
    body::Body,
    extract::{Extension, State},
    http::{Request, Response},
};
use futures_util::future::join_all;
use http_server::MemoryPermit;
use sandbox::RemoteRuntime;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};
use trajectory::count_values;

use super::{Answer, Answered, By, Client, Refusal, Shared, wire};
use crate::{
    answers::answer,
    bounded_json,
    error::{ApiError, Code},
};

/// Most bytes of the results of one request.
const MAX_RESULTS: usize = 32 << 20;
/// Most operations of one request.
const MAX_OPERATIONS: usize = 1024;
/// Most values of one request: more than of other bodies, as it has many of them.
const MAX_VALUES: usize = 4 * bounded_json::MAX_VALUES;
/// About the bytes that a value takes beside its text.
const VALUE: usize = 64;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Batch {
    operations: Vec<Operation>,
}

/// An operation: its name, what it is about, and the fields of its body.
#[derive(Debug, Deserialize)]
struct Operation {
    operation: String,
    task: Option<String>,
    session: Option<String>,
    #[serde(flatten)]
    fields: Map<String, Value>,
}

/// Runs the operations of a request.
pub(super) async fn run<R: RemoteRuntime>(
    State(server): Shared<R>,
    Extension(caller): By,
    request: Request<Body>,
) -> Result<Response<Body>, Refusal> {
    let client = Client::new(&server, caller)?;
    let (bytes, received) = server.receive(request).await?;
    // For the operations, which may take long: their client's and not that of all bodies.
    let held = bytes.len() + VALUE * count_values(&bytes, MAX_VALUES);
    let memory = server.registry.keep(&client.caller, held)?;
    let Batch { operations } = bounded_json::parse_at_most(&bytes, "body", MAX_VALUES)?;
    drop((bytes, received));
    if operations.len() > MAX_OPERATIONS {
        let count = operations.len();
        let message = format!("{count} operations are more than {MAX_OPERATIONS}");
        return Err(ApiError::invalid(message).into());
    }
    let mut sessions = HashSet::new();
    if let Some(twice) =
        operations.iter().filter_map(|one| one.session.as_ref()).find(|id| !sessions.insert(*id))
    {
        let id: String = twice.chars().take(100).collect();
        let message =
            format!("two operations are about the session `{id}`; they would run at once");
        return Err(ApiError::invalid(message).into());
    }
    let (client, room) = (&client, Mutex::new(Room { taken: 0, held, memory }));
    let to = &room;
    let running = operations.into_iter().enumerate().map(|(at, operation)| async move {
        // The first was counted as the request.
        let counted = if at == 0 { Ok(()) } else { client.caller.account().count_request() };
        let answered = match counted {
            Ok(()) => run_one(client, operation).await,
            Err(over) => Err(ApiError::from(over).into()),
        };
        let (status, body) = match answered.and_then(|answer| bounded(answer, to)) {
            Ok(answer) => (answer.status, answer.body),
            Err(refusal) => (refusal.status, refusal.body()),
        };
        json!({ "status": status.as_u16(), "body": body })
    });
    let results = join_all(running).await;
    let Room { memory, .. } = room.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(answer(&json!({ "results": results }), memory)?)
}

/// Room for the results of a request.
struct Room {
    /// Bytes of those that are there.
    taken: usize,
    /// Bytes of the request.
    held: usize,
    memory: MemoryPermit,
}

impl Room {
    /// Whether there is room for so many more bytes: as values, and as the text that is made of all of them.
    fn take(&mut self, size: usize) -> bool {
        let taken = self.taken + size;
        let fits = taken <= MAX_RESULTS && self.memory.grow(self.held + 2 * taken).is_some();
        if fits {
            self.taken = taken;
        }
        fits
    }
}

/// An answer, unless there is no room for it beside the others of the request.
fn bounded(answer: Answer, room: &Mutex<Room>) -> Answered {
    let size = size_of(&answer.body);
    match room.lock().unwrap_or_else(PoisonError::into_inner).take(size) {
        true => Ok(answer),
        false => {
            let message = "done, but the results of this request are too large together; get this session alone";
            Err(ApiError::new(Code::TooLarge, message).into())
        }
    }
}

/// About the bytes of a value.
fn size_of(value: &Value) -> usize {
    const EACH: usize = 16;
    EACH + match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(size_of).sum(),
        Value::Object(map) => map.iter().map(|(name, value)| name.len() + size_of(value)).sum(),
        _ => 0,
    }
}

async fn run_one<R: RemoteRuntime>(client: &Client<R>, operation: Operation) -> Answered {
    let Operation { operation, task, session, fields } = operation;
    if operation == "reset" {
        return client.reset(task, parsed(fields)?).await;
    }
    let id = session.ok_or_else(|| ApiError::invalid("field `session` is missing"))?;
    match operation.as_str() {
        "step" => client.step(&id, parsed(fields)?).await,
        "score" => client.score(&id, parsed(fields)?).await,
        "get" => client.show(&id, parsed::<wire::WaitBody>(fields)?.wait.duration()).await,
        "heartbeat" => client.heartbeat(&id),
        "close" => client.close(&id).await,
        _ => {
            let known = "reset, step, score, get, heartbeat and close";
            Err(ApiError::invalid(format!("unknown operation; known are {known}")).into())
        }
    }
}

fn parsed<T: DeserializeOwned>(fields: Map<String, Value>) -> Result<T, ApiError> {
    let parsed = serde_json::from_value(Value::Object(fields));
    parsed.map_err(|error| ApiError::invalid(format!("bad operation: {error}")))
}
