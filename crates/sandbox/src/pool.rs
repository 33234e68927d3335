//! A pool of sandboxes of one specification, created ahead of time so that taking one does not wait.

use std::{sync::Arc, time::Instant};

use tokio::{
    sync::{Mutex, mpsc},
    task::JoinSet,
};

use crate::{Error, Runtime, Spec};

/// The maximum number of sandboxes that are created at once.
const AT_ONCE: usize = 8;

/// A sandbox, or why there is none and since when that is known.
type Created<S> = Result<S, (Instant, Error)>;

/// Keeps up to `size` sandboxes ready. Each is handed out once and never returned.
pub struct Pool<R: Runtime> {
    ready: Mutex<mpsc::Receiver<Created<R::Sandbox>>>,
    /// Dropping these ends them.
    fillers: JoinSet<()>,
}

impl<R: Runtime> Pool<R> {
    /// Starts filling a pool.
    pub fn new(runtime: Arc<R>, spec: Spec, size: usize) -> Self {
        // When the channel is full, one more sandbox waits in each task.
        let tasks = size.saturating_sub(1).clamp(1, AT_ONCE);
        let (sender, ready) = mpsc::channel(size.saturating_sub(tasks).max(1));
        let mut fillers = JoinSet::new();
        for _ in 0..tasks {
            let (runtime, spec, sender) = (Arc::clone(&runtime), spec.clone(), sender.clone());
            fillers.spawn(async move {
                loop {
                    let created = runtime.create(&spec).await;
                    let created = created.map_err(|error| (Instant::now(), error));
                    if sender.send(created).await.is_err() {
                        return;
                    }
                }
            });
        }
        Self { ready: Mutex::new(ready), fillers }
    }

    /// Takes a sandbox; waits for its creation if none is ready.
    ///
    /// # Errors
    /// Creating one failed after the call. What failed before may have ended, so it is tried again.
    pub async fn take(&self) -> Result<R::Sandbox, Error> {
        let called = Instant::now();
        let mut ready = self.ready.lock().await;
        loop {
            match ready.recv().await {
                Some(Ok(sandbox)) => return Ok(sandbox),
                Some(Err((failed, _))) if failed < called => {}
                Some(Err((_, error))) => return Err(error),
                None => return Err(Error::Gone("the pool has stopped".into())),
            }
        }
    }

    /// Stops the pool and destroys the sandboxes that were not taken.
    ///
    /// # Errors
    /// The first failure, once all of them were tried. A sandbox that is gone already is none.
    pub async fn close(mut self) -> Result<(), Error> {
        self.fillers.shutdown().await;
        let mut ready = self.ready.lock().await;
        ready.close();
        let mut result = Ok(());
        while let Some(created) = ready.recv().await {
            let Ok(unused) = created else { continue };
            match crate::Sandbox::destroy(unused).await {
                Err(error) if !error.is_gone() => result = result.and(Err(error)),
                _ => {}
            }
        }
        result
    }
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
