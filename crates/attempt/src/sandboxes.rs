//! Sandboxes for attempts: a bounded number at once, some created ahead where many are alike.
//!
//! Knows no model and no problem. Every wait has a limit.

use std::{fmt, io, sync::Arc, time::Duration};

use sandbox::{Error, Feature, Pool, Runtime, Sandbox, Spec};
use tokio::sync::{Mutex, Semaphore, SemaphorePermit};

/// The time limit for creating, filling, reading or removing a sandbox. Images may have to be unpacked first.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);

/// Creates sandboxes for attempts.
pub struct Sandboxes<R: Runtime> {
    runtime: Option<Arc<R>>,
    permits: Semaphore,
    /// Sandboxes created ahead for each specification.
    warm: usize,
    pools: Mutex<Vec<(Spec, Arc<Pool<R>>)>>,
}

/// Whether a sandbox is one of many alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// Others like it will be wanted: it may come from a warm pool.
    Many,
    /// It is created on demand.
    Once,
}

impl<R: Runtime> Sandboxes<R> {
    /// Allows `limit` sandboxes at once, besides `warm` ones created ahead for each specification. Without a runtime
    /// every creation fails, which is right where only plain calls are made.
    pub fn new(runtime: Option<Arc<R>>, limit: usize, warm: usize) -> Self {
        let permits = Semaphore::new(limit.clamp(1, Semaphore::MAX_PERMITS));
        Self { runtime, permits, warm, pools: Mutex::default() }
    }

    /// Whether sandboxes can be created at all.
    pub fn has_runtime(&self) -> bool {
        self.runtime.is_some()
    }

    /// Waits until one more sandbox is allowed. Dropping the permit allows the next.
    pub async fn permit(&self) -> Option<SemaphorePermit<'_>> {
        self.permits.acquire().await.ok()
    }

    /// Creates a sandbox, or takes one from the warm pool of its specification.
    pub async fn create(&self, spec: &Spec, reuse: Reuse) -> Result<R::Sandbox, Error> {
        let runtime = self.runtime.as_ref().ok_or_else(|| Error::Unsupported {
            feature: Feature::Sandbox,
            reason: "no runtime was configured".into(),
            remedy: "choose a runtime".into(),
        })?;
        let created = async {
            match reuse {
                Reuse::Many if self.warm > 0 => self.pool(runtime, spec).await.take().await,
                _ => runtime.create(spec).await,
            }
        };
        within(PATIENCE, "creating a sandbox", created).await
    }

    async fn pool(&self, runtime: &Arc<R>, spec: &Spec) -> Arc<Pool<R>> {
        let mut pools = self.pools.lock().await;
        if let Some((_, pool)) = pools.iter().find(|(known, _)| known == spec) {
            return Arc::clone(pool);
        }
        let pool = Arc::new(Pool::new(Arc::clone(runtime), spec.clone(), self.warm));
        pools.push((spec.clone(), Arc::clone(&pool)));
        pool
    }

    /// Removes the sandboxes that were created ahead and never used.
    pub async fn close(&self) -> Result<(), Error> {
        let pools = std::mem::take(&mut *self.pools.lock().await);
        for (_, pool) in pools {
            if let Some(pool) = Arc::into_inner(pool) {
                within(PATIENCE, "removing sandboxes", pool.close()).await?;
            }
        }
        Ok(())
    }
}

impl<R: Runtime> fmt::Debug for Sandboxes<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sandboxes")
            .field("available", &self.permits.available_permits())
            .field("warm", &self.warm)
            .finish_non_exhaustive()
    }
}

/// Removes a sandbox.
pub(crate) async fn destroy<S: Sandbox>(sandbox: S) -> Result<(), Error> {
    within(PATIENCE, "removing a sandbox", sandbox.destroy()).await
}

/// Awaits an operation on a sandbox, and fails with a timeout after `limit`.
pub async fn within<T>(
    limit: Duration,
    operation: &str,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
        Err(Error::Io { what: operation.to_owned(), source: io::ErrorKind::TimedOut.into() })
    })
}
