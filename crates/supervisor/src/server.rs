//! The supervisor: owns the sandboxes, serves clients, ends when there is nothing left to keep.

mod connection;
mod exec;
mod registry;
mod requests;

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use sandbox::Runtime;
use tokio::{
    net::UnixListener,
    sync::Semaphore,
    time::{Instant, sleep, sleep_until, timeout},
};

use self::registry::Registry;
use crate::{Claim, Error, directory::Lost};

/// Requests that are served at once; more clients wait.
const MAX_REQUESTS: usize = 512;
/// Connections at once, those that wait included. A client is welcomed at once, and so knows that the supervisor runs.
const MAX_CONNECTIONS: usize = 4096;
/// How long clients get to read their last answer when the supervisor ends.
const LAST_ANSWERS: Duration = Duration::from_secs(1);
/// How often to check that clients can still find the socket.
const CHECK_INTERVAL: Duration = Duration::from_secs(20);
/// Pause after a failure to accept a connection, which may repeat at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Settings of a supervisor.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long to stay without sandboxes and clients before ending.
    pub linger: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { linger: Duration::from_secs(2) }
    }
}

/// State of a supervisor.
pub(crate) struct Server<R: Runtime> {
    pub(crate) runtime: R,
    pub(crate) registry: Registry<R::Sandbox>,
    pub(crate) claim: Claim,
    /// Held while the names of the sandboxes are stored, so that newer ones are not replaced by older ones.
    recording: Mutex<()>,
    linger: Duration,
    /// One for each request that is served.
    requests: Semaphore,
}

/// Serves until a client asks to stop, `stop` completes, or no sandbox and no client was there for a while. Calls `ready`
/// once clients can connect. All sandboxes are gone when this returns.
///
/// # Errors
/// If the socket cannot be opened.
pub async fn serve<R: Runtime>(
    runtime: R,
    claim: Claim,
    options: Options,
    ready: impl FnOnce(),
    stop: impl Future<Output = ()>,
) -> Result<(), Error> {
    let listener = claim.listen().map_err(Error::io("opening the supervisor's socket"))?;
    claim.note(&format!("serving, version {}", env!("CARGO_PKG_VERSION")));
    let (registry, linger) = (Registry::new(), options.linger);
    let recording = Mutex::new(());
    let requests = Semaphore::new(MAX_REQUESTS);
    let server = Arc::new(Server { runtime, registry, claim, recording, linger, requests });
    ready();
    let accepting = tokio::spawn(accept(listener, Arc::clone(&server)));
    tokio::select! {
        () = server.keep() => {}
        () = stop => server.registry.begin_to_end(),
    }
    server.claim.close();
    // Clients that were not accepted see the connection close, and know that their request was not read.
    accepting.abort();
    server.remove_all().await;
    let _ = timeout(LAST_ANSWERS, server.registry.until_no_connections()).await;
    server.record();
    server.claim.note("ended");
    Ok(())
}

async fn accept<R: Runtime>(listener: UnixListener, server: Arc<Server<R>>) {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let own = rustix::process::geteuid().as_raw();
    loop {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                server.claim.note(&format!("cannot accept a connection: {error}"));
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // The directory keeps others out already.
        match stream.peer_cred() {
            Ok(peer) if peer.uid() == own => {}
            other => {
                server.claim.note(&format!("refused a connection of another user: {other:?}"));
                continue;
            }
        }
        let Some(guard) = server.registry.connected() else { continue };
        let server = Arc::clone(&server);
        tokio::spawn(async move {
            let serving = Arc::clone(&server);
            // A task of its own: a panic must not go unnoticed, nor leave the connection counted.
            let ended =
                tokio::spawn(async move { connection::serve(stream, &serving).await }).await;
            match ended {
                Ok(Err(error)) if !is_hang_up(&error) => {
                    server.claim.note(&format!("a connection failed: {error}"));
                }
                Err(panic) => server.claim.note(&format!("a bug: {panic}")),
                Ok(_) => {}
            }
            drop((guard, permit));
        });
    }
}

/// Whether a client has just gone away, which it may at any time.
fn is_hang_up(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

impl<R: Runtime> Server<R> {
    /// Removes idle sandboxes as they fall due; returns when it is time to end.
    async fn keep(&self) {
        loop {
            let changed = self.registry.changed();
            for entry in self.registry.take_expired() {
                self.claim.note(&format!("removing `{}`: idle for too long", entry.name));
                self.destroy(&entry).await;
            }
            if self.registry.should_end(self.linger) {
                return;
            }
            let check = Instant::now() + CHECK_INTERVAL;
            let next = self.registry.next_deadline(self.linger);
            tokio::select! {
                () = changed => {}
                () = sleep_until(next.map_or(check, |next| next.min(check))) => {}
            }
            if !self.claim.can_be_found() {
                // The state directory was removed. Nobody could ever use or remove the sandboxes.
                return self.registry.begin_to_end();
            }
        }
    }

    /// Destroys a sandbox that is no longer registered. Operations on it are cancelled first.
    async fn destroy(&self, entry: &registry::Entry<R::Sandbox>) {
        self.record();
        entry.removed.cancel();
        let sandbox = entry.sandbox.write().await.take();
        if let Some(sandbox) = sandbox
            && let Err(error) = sandbox::Sandbox::destroy(sandbox).await
        {
            self.claim.note(&format!("destroying `{}`: {}", entry.name, error.chain()));
        }
    }

    async fn remove_all(&self) {
        let entries = self.registry.take_all();
        futures_util::future::join_all(entries.iter().map(|entry| self.destroy(entry))).await;
    }

    /// Stores the names of the sandboxes, so that they can be reported if this process is killed.
    fn record(&self) {
        let _recording = self.recording.lock().unwrap_or_else(PoisonError::into_inner);
        if self.registry.is_broken() {
            return;
        }
        let lost = |entry: &registry::Entry<R::Sandbox>| Lost {
            name: entry.name.clone(),
            image: entry.traits.image.clone(),
            created: entry.created,
        };
        let names: Vec<_> = self.registry.all().iter().map(|entry| lost(entry)).collect();
        self.claim.record(&names);
    }
}
