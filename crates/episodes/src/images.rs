//! The saved files of episodes as images: none is removed while a sandbox of another episode is based on it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use sandbox::RemoteRuntime;

/// The images of all episodes.
pub(crate) struct Images<R> {
    runtime: Arc<R>,
    held: Mutex<HashMap<String, Held>>,
}

#[derive(Debug, Default)]
struct Held {
    /// Sandboxes that are based on it, or are about to be.
    holders: usize,
    /// It is removed as soon as nobody holds it.
    is_doomed: bool,
}

/// Keeps an image from being removed.
pub(crate) struct Hold<R: RemoteRuntime> {
    images: Arc<Images<R>>,
    name: String,
}

impl<R: RemoteRuntime> Images<R> {
    pub(crate) fn new(runtime: Arc<R>) -> Arc<Self> {
        Arc::new(Self { runtime, held: Mutex::default() })
    }

    fn held(&self) -> MutexGuard<'_, HashMap<String, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds an image; `None` if it does not exist or is being removed.
    pub(crate) async fn hold(self: &Arc<Self>, name: &str) -> Option<Hold<R>> {
        {
            let mut all = self.held();
            let held = all.entry(name.to_owned()).or_default();
            if held.is_doomed {
                return None;
            }
            held.holders += 1;
        }
        let hold = Hold { images: Arc::clone(self), name: name.to_owned() };
        // Held first: what exists then stays.
        self.runtime.has_image(name).await.unwrap_or(false).then_some(hold)
    }

    /// Removes an image, once nobody holds it.
    pub(crate) async fn remove(self: &Arc<Self>, name: &str) -> Result<(), sandbox::Error> {
        {
            let mut all = self.held();
            let held = all.entry(name.to_owned()).or_default();
            held.is_doomed = true;
            if held.holders > 0 {
                return Ok(());
            }
        }
        let _doomed = Doomed { images: self, name };
        self.runtime.remove_image(name).await.map(drop)
    }
}

/// An image that is being removed.
struct Doomed<'a, R: RemoteRuntime> {
    images: &'a Images<R>,
    name: &'a str,
}

impl<R: RemoteRuntime> Drop for Doomed<'_, R> {
    fn drop(&mut self) {
        self.images.held().remove(self.name);
    }
}

impl<R: RemoteRuntime> Drop for Hold<R> {
    fn drop(&mut self) {
        let is_doomed = {
            let mut all = self.images.held();
            let Some(held) = all.get_mut(&self.name) else { return };
            held.holders = held.holders.saturating_sub(1);
            if held.holders > 0 {
                return;
            }
            let is_doomed = held.is_doomed;
            if !is_doomed {
                all.remove(&self.name);
            }
            is_doomed
        };
        // Without a runtime the process is ending, and the image stays.
        if is_doomed && let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (images, name) = (Arc::clone(&self.images), std::mem::take(&mut self.name));
            runtime.spawn(async move {
                if let Err(error) = images.remove(&name).await {
                    tracing::warn!("removing saved files: {}", error.chain());
                }
            });
        }
    }
}
