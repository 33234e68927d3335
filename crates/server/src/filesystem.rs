//! The filesystem service: describes, lists, moves and removes files, and watches directories.

use std::{io, path::Path, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    http::{HeaderMap, Request, Response},
};
use futures_util::StreamExt;
use sandbox::{
    EntryKind, FileEvent, FileEventKind, FileInfo, FileOperation, RemoteRuntime, RemoteSandbox,
    WatchDepth,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{sync::mpsc, time::timeout};

use crate::{
    app::{DataRequest, Server},
    connect,
    error::{ApiError, Code, respond_with},
    live::{Live, LiveEnd, Watcher, Watchers},
    running::no_memory,
    users::{User, Users},
};

/// The fields of all requests; each procedure reads its own.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct FileRequest {
    path: String,
    source: String,
    destination: String,
    depth: u32,
    recursive: bool,
    include_entry: bool,
    watcher_id: String,
}

/// Most watchers of one sandbox that clients poll.
const MAX_WATCHERS: usize = 64;
/// Most events of one poll.
const MAX_EVENTS: usize = 4096;

/// Answers a procedure of the service.
pub(crate) async fn call<R: RemoteRuntime>(
    server: &Arc<Server<R>>,
    to: DataRequest<R::Sandbox>,
    procedure: &str,
    request: Request<Body>,
) -> Response<Body> {
    let headers = request.headers().clone();
    if procedure == "WatchDir" {
        let watching = watch_stream(server, &to, &headers, request).await;
        return watching.unwrap_or_else(|error| connect::failed_stream(&error));
    }
    if procedure == "ListDir" {
        let listing = list(server, &to, request).await;
        return listing.unwrap_or_else(ApiError::into_connect_response);
    }
    connect::unary(operate(server, &to, procedure, request).await)
}

/// Memory that a list is expected to take at most while it is read; longer ones need more.
const LIST_MEMORY: usize = 4 << 20;

/// Lists a directory. The list is in memory once, as the text that is sent.
async fn list<R: RemoteRuntime>(
    server: &Arc<Server<R>>,
    to: &DataRequest<R::Sandbox>,
    request: Request<Body>,
) -> Result<Response<Body>, ApiError> {
    let (body, _permit) = server.receive(request).await?;
    let asked: FileRequest = connect::parse(&body)?;
    let user = to.live.user(to.user.as_deref()).await?;
    let mut permit = to.live.memory.permit();
    permit.grow(LIST_MEMORY).ok_or_else(no_memory)?;
    let operation =
        FileOperation::List { path: user.resolve(&asked.path), depth: asked.depth.max(1) };
    let infos = to.live.file_operation(&user.identity, &operation).await?;
    let users = to.live.users().await;
    let mut text = String::from(r#"{"entries":["#);
    for (number, info) in infos.iter().enumerate() {
        if number > 0 {
            text.push(',');
        }
        text.push_str(&entry(info, &users).to_string());
        // Beside the entries themselves.
        permit.grow(2 * text.len()).ok_or_else(no_memory)?;
    }
    text.push_str("]}");
    drop(infos);
    permit.shrink(text.len());
    Ok(respond_with(text.into(), permit))
}

async fn operate<R: RemoteRuntime>(
    server: &Arc<Server<R>>,
    to: &DataRequest<R::Sandbox>,
    procedure: &str,
    request: Request<Body>,
) -> Result<Value, ApiError> {
    let (body, _permit) = server.receive(request).await?;
    let asked: FileRequest = connect::parse(&body)?;
    let (live, user) = (&to.live, to.live.user(to.user.as_deref()).await?);
    let operation = match procedure {
        "Stat" => FileOperation::Describe(user.resolve(&asked.path)),
        "MakeDir" => FileOperation::CreateDirectory(user.resolve(&asked.path)),
        "Move" => FileOperation::Move {
            from: user.resolve(&asked.source),
            to: user.resolve(&asked.destination),
        },
        "Remove" => FileOperation::Remove(user.resolve(&asked.path)),
        "CreateWatcher" => return create_watcher(live, &user, &asked).await,
        "GetWatcherEvents" => return watcher_events(live, &asked).await,
        "RemoveWatcher" => {
            lock(live).remove(&asked.watcher_id);
            return Ok(json!({}));
        }
        other => {
            let message = format!("the filesystem service has no procedure {other}");
            return Err(ApiError::new(Code::Unsupported, message));
        }
    };
    let mut infos = live.file_operation(&user.identity, &operation).await?;
    let users = live.users().await;
    Ok(match procedure {
        "Remove" => json!({}),
        _ => {
            let info = infos.pop().ok_or_else(|| live.gone())?;
            json!({ "entry": entry(&info, &users) })
        }
    })
}

/// A file as the protocol describes it.
fn entry(info: &FileInfo, users: &Users) -> Value {
    let name = info.path.file_name().unwrap_or(info.path.as_os_str());
    let (seconds, nanos) = info.modified;
    let modified = jiff::Timestamp::new(seconds, i32::try_from(nanos).unwrap_or(0));
    let mut value = json!({
        "name": name.to_string_lossy(),
        "type": match info.kind {
            EntryKind::File => "FILE_TYPE_FILE",
            EntryKind::Directory => "FILE_TYPE_DIRECTORY",
            EntryKind::Link => "FILE_TYPE_SYMLINK",
            EntryKind::Other => "FILE_TYPE_UNSPECIFIED",
        },
        "path": info.path.to_string_lossy(),
        "size": info.size.to_string(),
        "mode": info.mode,
        "permissions": permissions(info),
        "owner": users.user_name(info.uid),
        "group": users.group_name(info.gid),
    });
    if let Ok(modified) = modified {
        value["modifiedTime"] = json!(modified.to_string());
    }
    if let Some(target) = &info.target {
        value["symlinkTarget"] = json!(target.to_string_lossy());
    }
    if !info.attributes.is_empty() {
        let map: serde_json::Map<_, _> =
            info.attributes.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
        value["metadata"] = Value::Object(map);
    }
    value
}

/// Permissions as `ls` writes them.
fn permissions(info: &FileInfo) -> String {
    let kind = match info.kind {
        EntryKind::Directory => 'd',
        EntryKind::Link => 'L',
        EntryKind::File | EntryKind::Other => '-',
    };
    let bits = "rwxrwxrwx".chars().enumerate();
    let bits = bits.map(|(at, letter)| if info.mode & (0o400 >> at) != 0 { letter } else { '-' });
    std::iter::once(kind).chain(bits).collect()
}

fn depth(asked: &FileRequest) -> WatchDepth {
    if asked.recursive { WatchDepth::Recursive } else { WatchDepth::Directory }
}

async fn watch<S: RemoteSandbox>(
    live: &Live<S>,
    user: &User,
    asked: &FileRequest,
) -> Result<mpsc::Receiver<FileEvent>, ApiError> {
    let path = user.resolve(&asked.path);
    live.unless_ended(live.sandbox.watch(&user.identity, &path, depth(asked))).await
}

/// An event as the protocol describes it.
async fn event<S: RemoteSandbox>(
    live: &Live<S>,
    user: &User,
    (top, include_entry): (&Path, bool),
    event: &FileEvent,
) -> Value {
    let kind = match event.kind {
        FileEventKind::Created => "EVENT_TYPE_CREATE",
        FileEventKind::Written => "EVENT_TYPE_WRITE",
        FileEventKind::Removed => "EVENT_TYPE_REMOVE",
        FileEventKind::Renamed => "EVENT_TYPE_RENAME",
        FileEventKind::AttributesChanged => "EVENT_TYPE_CHMOD",
    };
    let mut value = json!({ "name": event.name.to_string_lossy(), "type": kind });
    let exists = !matches!(event.kind, FileEventKind::Removed | FileEventKind::Renamed);
    if include_entry && exists {
        let operation = FileOperation::Describe(top.join(&event.name));
        if let Ok(mut infos) = live.file_operation(&user.identity, &operation).await
            && let Some(info) = infos.pop()
        {
            let users = live.users().await;
            value["entry"] = entry(&info, &users);
        }
    }
    value
}

async fn watch_stream<R: RemoteRuntime>(
    server: &Arc<Server<R>>,
    to: &DataRequest<R::Sandbox>,
    headers: &HeaderMap,
    request: Request<Body>,
) -> Result<Response<Body>, ApiError> {
    let deadline = connect::deadline(headers)?;
    let keepalive = connect::keepalive(headers);
    let (body, _permit) = server.receive_any(request).await?;
    let asked: FileRequest = connect::parse_first(&body)?;
    let user = to.live.user(to.user.as_deref()).await?;
    let events = watch(&to.live, &user, &asked).await?;
    let until = deadline.map(|limit| tokio::time::Instant::now() + limit);
    let first = connect::message(&json!({ "start": {} }));
    let watched = Watched {
        top: user.resolve(&asked.path),
        include_entry: asked.include_entry,
        live: Arc::downgrade(&to.live),
        end: to.live.end(),
        user,
        events,
    };
    let rest = futures_util::stream::unfold(Some(watched), move |watched| async move {
        let mut watched = watched?;
        tokio::select! {
            next = timeout(keepalive, watched.next()) => match next {
                Ok(Ok(bytes)) => Some((Ok(bytes), Some(watched))),
                Ok(Err(error)) => Some((connect::cut(&watched.end, error), None)),
                Err(_) => {
                    let alive = connect::message(&json!({ "keepalive": {} }));
                    Some((Ok(alive), Some(watched)))
                }
            },
            over = connect::reached(until) => Some((Ok(over), None)),
        }
    });
    let first = futures_util::stream::once(async move { Ok(first) });
    Ok(connect::stream(first.chain(rest)))
}

/// A directory that a client watches.
struct Watched<S> {
    top: std::path::PathBuf,
    include_entry: bool,
    live: std::sync::Weak<Live<S>>,
    end: LiveEnd,
    user: User,
    events: mpsc::Receiver<FileEvent>,
}

impl<S: RemoteSandbox> Watched<S> {
    /// The next event. An error once the sandbox has ended.
    async fn next(&mut self) -> io::Result<Bytes> {
        let gone = || io::Error::other("the sandbox has ended");
        let next = self.events.recv().await.ok_or_else(gone)?;
        let live = self.live.upgrade().ok_or_else(gone)?;
        let how = (self.top.as_path(), self.include_entry);
        let event = event(&live, &self.user, how, &next).await;
        Ok(connect::message(&json!({ "filesystem": event })))
    }
}

fn lock<S>(live: &Live<S>) -> std::sync::MutexGuard<'_, Watchers> {
    live.watchers.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

async fn create_watcher<S: RemoteSandbox>(
    live: &Live<S>,
    user: &User,
    asked: &FileRequest,
) -> Result<Value, ApiError> {
    let too_many = || {
        let message = format!("a sandbox has at most {MAX_WATCHERS} watchers");
        Err(ApiError::new(Code::TooMany, message))
    };
    if lock(live).len() >= MAX_WATCHERS {
        return too_many();
    }
    let watcher = Watcher {
        top: user.resolve(&asked.path),
        user: user.clone(),
        include_entry: asked.include_entry,
        events: watch(live, user, asked).await?,
        pending: Vec::new(),
        permit: live.memory.permit(),
    };
    let id = format!("{:016x}", fastrand::u64(..));
    let mut watchers = lock(live);
    if watchers.len() >= MAX_WATCHERS {
        return too_many();
    }
    watchers.insert(id.clone(), Arc::new(tokio::sync::Mutex::new(watcher)));
    Ok(json!({ "watcherId": id }))
}

/// Memory of the longest event.
const MAX_EVENT: usize = 8 << 10;

/// Memory of an event, and of the text that describes it.
fn event_size(event: &FileEvent) -> usize {
    512 + 2 * event.name.as_os_str().len()
}

/// How long a poll waits for what may be on its way.
const POLL_WAIT: Duration = Duration::from_millis(50);

async fn watcher_events<S: RemoteSandbox>(
    live: &Live<S>,
    asked: &FileRequest,
) -> Result<Value, ApiError> {
    let unknown = || ApiError::not_found(format!("watcher {} not found", asked.watcher_id));
    let watcher = lock(live).get(&asked.watcher_id).cloned().ok_or_else(unknown)?;
    let mut watcher = watcher.lock().await;
    let mut wait = POLL_WAIT;
    let mut size: usize = watcher.pending.iter().map(event_size).sum();
    while watcher.pending.len() < MAX_EVENTS
        // What is not read yet waits, and is not lost.
        && watcher.permit.grow(size + MAX_EVENT).is_some()
        && let Ok(Some(event)) = timeout(wait, watcher.events.recv()).await
    {
        size += event_size(&event);
        watcher.pending.push(event);
        wait = wait.min(POLL_WAIT / 10);
    }
    let mut list = Vec::with_capacity(watcher.pending.len());
    for next in &watcher.pending {
        let how = (watcher.top.as_path(), watcher.include_entry);
        list.push(event(live, &watcher.user, how, next).await);
    }
    // Only now: until here the client may have left, and the next one gets them.
    watcher.pending.clear();
    watcher.permit.shrink(0);
    Ok(json!({ "events": list }))
}
