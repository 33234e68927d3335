//! The sessions of all clients: opened by their first request, found by their ids, ended when their clients are gone.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use agent::tools::{Tools, Vision};
use mcp::{CreateError, Exchange, SandboxSource, Session};
use sandbox::{RemoteRuntime, Runtime, Spec};
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use crate::{
    app::Server, error::ApiError, quota::SandboxPermit, registry::Registry, registry::random,
    tokens::Caller,
};

/// Length of a session's id, in letters and digits: more than 200 random bits.
const ID_LENGTH: usize = 40;

/// Sessions by id.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    by_id: Arc<Mutex<HashMap<String, Arc<HttpSession>>>>,
    /// Cancelled when the server ends.
    closed: CancellationToken,
}

/// Why a session was not opened.
#[derive(Debug)]
pub(crate) enum OpenError {
    /// There are too many.
    TooMany,
    Failed(ApiError),
}

/// A session over HTTP.
pub(crate) struct HttpSession {
    pub(crate) id: String,
    owner: Arc<str>,
    pub(crate) exchange: Exchange,
    /// Ends it.
    pub(crate) stop: CancellationToken,
    /// Cancelled once its sandbox is gone.
    pub(crate) gone: CancellationToken,
    presence: Mutex<Presence>,
    /// The last connection was closed.
    detached: Notify,
}

impl fmt::Debug for HttpSession {
    /// Without the id, which is a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpSession").field("owner", &self.owner).finish_non_exhaustive()
    }
}

/// The connections of a session's client.
#[derive(Clone, Copy, Debug)]
struct Presence {
    /// Requests that are being answered.
    requests: usize,
    /// There is a stream besides.
    stream: bool,
    /// When the last connection was closed.
    alone_since: Instant,
    /// When the last request was answered.
    last_request: Instant,
}

impl Presence {
    /// How long the session lasts from now on, as things are; `None` while requests are being answered.
    fn time_left(&self, idle: Duration, longest: Duration) -> Option<Duration> {
        if self.requests > 0 {
            return None;
        }
        // A stream alone shows a client that is there, but does not keep a sandbox forever.
        let left = longest.saturating_sub(self.last_request.elapsed());
        match self.stream {
            true => Some(left),
            false => Some(left.min(idle.saturating_sub(self.alone_since.elapsed()))),
        }
    }
}

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<HttpSession>>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session of this id, if it is the caller's.
    pub(crate) fn find(&self, id: &str, owner: &Arc<str>) -> Option<Arc<HttpSession>> {
        let found = self.lock().get(id).cloned();
        found.filter(|session| session.owner == *owner && !session.stop.is_cancelled())
    }

    /// Opens a session, without a sandbox yet.
    pub(crate) fn open<R: RemoteRuntime>(
        &self,
        server: &Server<R>,
        caller: Caller,
    ) -> Result<Arc<HttpSession>, OpenError> {
        let id = random(ID_LENGTH).map_err(OpenError::Failed)?;
        let registry = &server.registry;
        let options = &registry.options.mcp;
        let (stop, gone) = (self.closed.child_token(), CancellationToken::new());
        let mut sessions = self.lock();
        let own = sessions.values().filter(|session| session.owner == caller.name).count();
        let share = registry.options.tokens.share_of(options.max_sessions);
        if sessions.len() >= options.max_sessions || own >= share {
            return Err(OpenError::TooMany);
        }
        let tools = Tools {
            workdir: registry.options.spec.workdir.clone(),
            timeout: options.command_timeout,
            vision: Vision::Images,
            ..Tools::default()
        };
        let (by_id, key, removed) = (Arc::clone(&self.by_id), id.clone(), gone.clone());
        let ended = move || {
            by_id.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
            removed.cancel();
        };
        let source = Source { registry: Arc::clone(registry), caller: caller.clone() };
        let exchange = Exchange::start(Session::new(source, tools), stop.clone(), ended);
        let now = Instant::now();
        let session = Arc::new(HttpSession {
            id: id.clone(),
            owner: Arc::clone(&caller.name),
            exchange,
            stop,
            gone,
            presence: Mutex::new(Presence {
                requests: 0,
                stream: false,
                alone_since: now,
                last_request: now,
            }),
            detached: Notify::new(),
        });
        sessions.insert(id, Arc::clone(&session));
        drop(sessions);
        tokio::spawn(expire(Arc::clone(registry), Arc::clone(&session)));
        Ok(session)
    }

    /// Ends all sessions, and those that are opened later.
    pub(crate) fn close(&self) {
        self.closed.cancel();
    }
}

/// Ends a session when its client is gone, or its token.
async fn expire<R: RemoteRuntime>(registry: Arc<Registry<R>>, session: Arc<HttpSession>) {
    let (idle, longest) = (registry.options.mcp.idle_timeout, registry.options.max_lifetime);
    let mut tokens = registry.options.tokens.changes();
    loop {
        let detached = session.detached.notified();
        let left = session.presence().time_left(idle, longest);
        if left.is_some_and(|left| left.is_zero()) || !registry.options.tokens.has(&session.owner) {
            session.stop.cancel();
            return;
        }
        tokio::select! {
            () = sleep(left.unwrap_or(Duration::MAX)) => {}
            () = detached => {}
            Ok(()) = tokens.changed() => {}
            () = session.stop.cancelled() => return,
        }
    }
}

impl HttpSession {
    fn presence(&self) -> MutexGuard<'_, Presence> {
        self.presence.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request that is being answered.
    pub(crate) fn attach(self: &Arc<Self>) -> Attached {
        self.presence().requests += 1;
        Attached { session: Arc::clone(self), connection: Connection::Request }
    }

    /// Counts the stream; `None` where there is one.
    pub(crate) fn attach_stream(self: &Arc<Self>) -> Option<Attached> {
        let taken = std::mem::replace(&mut self.presence().stream, true);
        let connection = Connection::Stream;
        (!taken).then(|| Attached { session: Arc::clone(self), connection })
    }
}

/// A connection of a session's client, until it is dropped.
#[derive(Debug)]
pub(crate) struct Attached {
    session: Arc<HttpSession>,
    connection: Connection,
}

#[derive(Clone, Copy, Debug)]
enum Connection {
    Request,
    Stream,
}

impl Drop for Attached {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut presence = self.session.presence();
        presence.alone_since = now;
        match self.connection {
            Connection::Request => {
                presence.requests -= 1;
                presence.last_request = now;
            }
            Connection::Stream => presence.stream = false,
        }
        drop(presence);
        self.session.detached.notify_waiters();
    }
}

/// Sandboxes of one session, within the limits of the server and its caller.
struct Source<R: Runtime> {
    registry: Arc<Registry<R>>,
    caller: Caller,
}

impl<R: RemoteRuntime> SandboxSource for Source<R> {
    type Sandbox = R::Sandbox;
    type Permit = SandboxPermit;

    async fn create(&self) -> Result<(R::Sandbox, SandboxPermit), CreateError> {
        let options = &self.registry.options;
        let mut spec = Spec { image: options.base.clone(), ..options.spec.clone() };
        spec.limits = self.caller.limits(spec.limits);
        let permit = self.registry.permit(&self.caller, &spec);
        let permit = permit.map_err(|error| CreateError::Refused(error.message))?;
        Ok((self.registry.runtime.create(&spec).await?, permit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_session_outlasts_its_connections_for_a_while() {
        let now = Instant::now();
        let (idle, longest) = (Duration::from_secs(10), Duration::from_secs(100));
        let mut presence =
            Presence { requests: 1, stream: false, alone_since: now, last_request: now };
        tokio::time::advance(Duration::from_secs(4)).await;
        assert_eq!(presence.time_left(idle, longest), None);
        presence.requests = 0;
        assert_eq!(presence.time_left(idle, longest), Some(Duration::from_secs(6)));
        presence.stream = true;
        assert_eq!(presence.time_left(idle, longest), Some(Duration::from_secs(96)));
        tokio::time::advance(Duration::from_secs(200)).await;
        assert_eq!(presence.time_left(idle, longest), Some(Duration::ZERO));
    }
}
