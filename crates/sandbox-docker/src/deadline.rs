//! Deadlines of requests to the daemon: one that makes no progress fails, and its container is removed.

use std::{future::Future, sync::Arc, time::Duration};

use bollard::Docker;
use sandbox::{Error, Progress};

use crate::sandbox_impl::Inner;

/// Time limit of a request whose progress cannot be seen and which may take long: uploading a tree, saving a file system.
pub(crate) const LONGEST: Duration = Duration::from_secs(900);

/// How often the patience of a sandbox a single request may take: a daemon has many clients.
pub(crate) const DAEMON_SHARE: u32 = 4;

impl Inner {
    /// How long a request may make no progress.
    pub(crate) fn patience(&self) -> Duration {
        self.spec.stall_timeout
    }

    /// The client for requests that may take long.
    pub(crate) fn patient(&self) -> Docker {
        self.docker.clone().with_timeout(LONGEST)
    }

    /// Awaits an operation; gives up once it has made no progress for as long as `limit`.
    pub(crate) async fn watched<T>(
        self: &Arc<Self>,
        waiting_for: &str,
        (progress, limit): (&Progress, Duration),
        operation: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        tokio::select! {
            done = operation => done,
            () = progress.stalled(limit) => {
                self.give_up();
                Err(Error::Stalled { waiting_for: waiting_for.to_owned(), limit })
            }
        }
    }

    /// The same for one whose progress cannot be seen.
    pub(crate) async fn within<T>(
        self: &Arc<Self>,
        waiting_for: &str,
        limit: Duration,
        operation: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        self.watched(waiting_for, (&Progress::default(), limit), operation).await
    }

    /// Removes a container that is broken, without waiting.
    fn give_up(self: &Arc<Self>) {
        let inner = Arc::clone(self);
        self.tokio.spawn(async move {
            let _ = inner.remove().await;
        });
    }
}
