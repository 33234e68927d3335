//! A warm pool: sandboxes of one specification made ahead of time, so that taking one costs nothing.

use std::sync::Arc;

use tokio::{
    sync::{Mutex, mpsc},
    task::JoinHandle,
};

use crate::{Error, Runtime, Spec};

/// Keeps up to `size` sandboxes ready. Each is handed out once and never comes back.
pub struct Pool<R: Runtime> {
    ready: Mutex<mpsc::Receiver<Result<R::Sandbox, Error>>>,
    filler: JoinHandle<()>,
}

impl<R: Runtime> Pool<R> {
    /// Starts filling a pool.
    pub fn new(runtime: Arc<R>, spec: Spec, size: usize) -> Self {
        // One sandbox waits in the filler's hand when the channel is full.
        let (sender, ready) = mpsc::channel(size.saturating_sub(1).max(1));
        let filler = tokio::spawn(async move {
            loop {
                let made = runtime.create(&spec).await;
                if sender.send(made).await.is_err() {
                    return;
                }
            }
        });
        Self { ready: Mutex::new(ready), filler }
    }

    /// The next sandbox: at once when the pool is warm, else as soon as one is made.
    pub async fn take(&self) -> Result<R::Sandbox, Error> {
        let next = self.ready.lock().await.recv().await;
        next.unwrap_or_else(|| Err(Error::Gone("the pool has stopped".into())))
    }

    /// Stops filling and destroys what was never taken.
    pub async fn close(self) -> Result<(), Error> {
        self.filler.abort();
        let mut ready = self.ready.lock().await;
        ready.close();
        while let Some(made) = ready.recv().await {
            if let Ok(unused) = made {
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
