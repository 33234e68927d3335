//! A pool of sandboxes of one specification, created ahead of time so that taking one does not wait.

use std::sync::Arc;

use tokio::{
    sync::{Mutex, mpsc},
    task::JoinHandle,
};

use crate::{Error, Runtime, Spec};

/// Keeps up to `size` sandboxes ready. Each is handed out once and never returned.
pub struct Pool<R: Runtime> {
    ready: Mutex<mpsc::Receiver<Result<R::Sandbox, Error>>>,
    filler: JoinHandle<()>,
}

impl<R: Runtime> Pool<R> {
    /// Starts filling a pool.
    pub fn new(runtime: Arc<R>, spec: Spec, size: usize) -> Self {
        // When the channel is full, one more sandbox waits in the task.
        let (sender, ready) = mpsc::channel(size.saturating_sub(1).max(1));
        let filler = tokio::spawn(async move {
            loop {
                let created = runtime.create(&spec).await;
                if sender.send(created).await.is_err() {
                    return;
                }
            }
        });
        Self { ready: Mutex::new(ready), filler }
    }

    /// Takes a sandbox; waits for its creation if none is ready.
    pub async fn take(&self) -> Result<R::Sandbox, Error> {
        let next = self.ready.lock().await.recv().await;
        next.unwrap_or_else(|| Err(Error::Gone("the pool has stopped".into())))
    }

    /// Stops the pool and destroys the sandboxes that were not taken.
    pub async fn close(self) -> Result<(), Error> {
        self.filler.abort();
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

impl<R: Runtime> Drop for Pool<R> {
    fn drop(&mut self) {
        self.filler.abort();
    }
}
