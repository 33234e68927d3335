//! A pool of sandboxes of one specification, created ahead of time so that taking one does not wait.

use std::sync::Arc;

use tokio::{
    sync::{Mutex, mpsc},
    task::JoinSet,
};

use crate::{Error, Runtime, Spec};

/// The maximum number of sandboxes that are created at once.
const AT_ONCE: usize = 8;

/// Keeps up to `size` sandboxes ready. Each is handed out once and never returned.
pub struct Pool<R: Runtime> {
    ready: Mutex<mpsc::Receiver<Result<R::Sandbox, Error>>>,
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
                    if sender.send(created).await.is_err() {
                        return;
                    }
                }
            });
        }
        Self { ready: Mutex::new(ready), fillers }
    }

    /// Takes a sandbox; waits for its creation if none is ready.
    pub async fn take(&self) -> Result<R::Sandbox, Error> {
        let next = self.ready.lock().await.recv().await;
        next.unwrap_or_else(|| Err(Error::Gone("the pool has stopped".into())))
    }

    /// Stops the pool and destroys the sandboxes that were not taken.
    pub async fn close(mut self) -> Result<(), Error> {
        self.fillers.shutdown().await;
        let mut ready = self.ready.lock().await;
        ready.close();
        while let Some(created) = ready.recv().await {
            if let Ok(unused) = created {
                crate::Sandbox::destroy(unused).await?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
