//! The sandboxes of all clients: creation, lookup, end.

use std::{
    collections::HashMap,
    io::Read,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use sandbox::{ImageRef, Network, Paused, RemoteRuntime, RemoteSandbox, Runtime, Sandbox, Spec};

use crate::{
    ServeOptions,
    control_types::{NewSandbox, SECOND_TIMEOUT},
    error::{ApiError, Code},
    live::{LONGEST, Live, NewLive},
};

/// The sandboxes by id.
pub(crate) struct Registry<R: Runtime> {
    runtime: Arc<R>,
    pub(crate) options: ServeOptions,
    live: Mutex<Sandboxes<R::Sandbox>>,
    snapshots: Mutex<Vec<Snapshot>>,
    /// Sandboxes that exist or are being created.
    places: Arc<tokio::sync::Semaphore>,
}

/// Sandboxes by id.
struct Sandboxes<S> {
    by_id: HashMap<String, Arc<Live<S>>>,
    /// The server ends; a sandbox whose creation was under way ends at once.
    closing: bool,
}

impl<S> Default for Sandboxes<S> {
    fn default() -> Self {
        Self { by_id: HashMap::new(), closing: false }
    }
}

/// An image that a client saved, known until the server ends.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) name: String,
    pub(crate) sandbox: String,
}

/// Letters and digits of ids: those of host names, which ids are part of.
const ALPHABET: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
const ID_LENGTH: usize = 20;
/// The template that always exists.
const BASE: &str = "base";

/// A random id or secret.
fn random(length: usize) -> Result<String, ApiError> {
    // Each from the operating system's random numbers: an id that can be guessed would be a key that can be guessed.
    let mut bytes = vec![0u8; length];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    if let Err(error) = read {
        tracing::error!("reading /dev/urandom: {error}");
        return Err(ApiError::new(Code::Internal, "the server has no random numbers"));
    }
    let letter = |byte: &u8| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]);
    Ok(bytes.iter().map(letter).collect())
}

/// A token for requests to a new sandbox.
fn access_token() -> Result<String, ApiError> {
    Ok(format!("ea_{}", random(40)?))
}

impl<R: RemoteRuntime> Registry<R> {
    pub(crate) fn new(runtime: Arc<R>, options: ServeOptions) -> Self {
        let places = options.max_sandboxes.clamp(1, tokio::sync::Semaphore::MAX_PERMITS);
        let places = Arc::new(tokio::sync::Semaphore::new(places));
        Self { runtime, options, live: Mutex::default(), snapshots: Mutex::default(), places }
    }

    fn lock(&self) -> MutexGuard<'_, Sandboxes<R::Sandbox>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sandbox of this id.
    pub(crate) fn find(&self, id: &str) -> Option<Arc<Live<R::Sandbox>>> {
        self.lock().by_id.get(id).cloned()
    }

    /// All sandboxes.
    pub(crate) fn all(&self) -> Vec<Arc<Live<R::Sandbox>>> {
        self.lock().by_id.values().cloned().collect()
    }

    /// Creates a sandbox.
    pub(crate) async fn create(
        self: &Arc<Self>,
        new: NewSandbox,
    ) -> Result<Arc<Live<R::Sandbox>>, ApiError> {
        let image = self.image(&new.template_id)?;
        let mut spec = Spec { image, ..self.options.spec.clone() };
        if new.allow_internet_access == Some(false) {
            spec.network = Network::None;
        }
        let place = self.place()?;
        let (id, access_token) = (random(ID_LENGTH)?, access_token()?);
        let sandbox = self.runtime.create(&spec).await?;
        let live = NewLive {
            id,
            template: new.template_id,
            metadata: new.metadata,
            env: new.env_vars,
            access_token,
            spec,
            lifetime: self.lifetime(new.timeout.unwrap_or(SECOND_TIMEOUT)),
            kept_output: self.options.kept_output,
            auto_pause: new.auto_pause,
            sandbox,
        };
        self.add(live, place).await
    }

    /// Creates copies of a sandbox. Each has its files, and none of its processes.
    pub(crate) async fn fork(
        self: &Arc<Self>,
        from: &Live<R::Sandbox>,
        timeout: u64,
    ) -> Result<Arc<Live<R::Sandbox>>, ApiError> {
        let place = self.place()?;
        let (id, access_token) = (random(ID_LENGTH)?, access_token()?);
        // An error may be about the copy, so it does not end this one.
        let sandbox = from.unless_closed(async { Ok(from.sandbox.fork().await?) }).await?;
        let live = NewLive {
            id,
            template: from.template.clone(),
            metadata: from.metadata.clone(),
            env: from.env.clone(),
            access_token,
            spec: from.spec.clone(),
            lifetime: self.lifetime(timeout),
            kept_output: self.options.kept_output,
            auto_pause: from.auto_pause,
            sandbox,
        };
        self.add(live, place).await
    }

    /// Saves the files of a sandbox as an image.
    pub(crate) async fn snapshot(
        &self,
        live: &Live<R::Sandbox>,
        name: Option<String>,
    ) -> Result<Snapshot, ApiError> {
        let name = match name {
            Some(name) => name,
            None => format!("snapshot-{}", random(12)?),
        };
        self.image(&name)?;
        if name == BASE {
            return Err(ApiError::invalid("a snapshot cannot be called `base`"));
        }
        let is_ours = self.lock_snapshots().iter().any(|snapshot| snapshot.name == name);
        if !is_ours && self.runtime.has_image(&name).await? {
            let message = format!("template '{name}' exists and is not a snapshot of this server");
            return Err(ApiError::new(Code::AlreadyExists, message));
        }
        live.unless_ended(live.sandbox.snapshot(&name)).await?;
        let snapshot = Snapshot { name, sandbox: live.id.clone() };
        let mut snapshots = self.lock_snapshots();
        snapshots.retain(|old| old.name != snapshot.name);
        snapshots.push(snapshot.clone());
        Ok(snapshot)
    }

    fn lock_snapshots(&self) -> MutexGuard<'_, Vec<Snapshot>> {
        self.snapshots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The snapshots that clients of this server made.
    pub(crate) fn snapshots(&self) -> Vec<Snapshot> {
        self.lock_snapshots().clone()
    }

    /// Removes a snapshot that a client of this server made; other images are not theirs to remove.
    pub(crate) async fn remove_snapshot(&self, name: &str) -> Result<(), ApiError> {
        let known = self.lock_snapshots().iter().any(|snapshot| snapshot.name == name);
        if !known || !self.runtime.remove_image(name).await? {
            return Err(ApiError::not_found(format!("template '{name}' not found")));
        }
        self.lock_snapshots().retain(|snapshot| snapshot.name != name);
        Ok(())
    }

    /// A place for a new sandbox.
    fn place(&self) -> Result<tokio::sync::OwnedSemaphorePermit, ApiError> {
        Arc::clone(&self.places).try_acquire_owned().map_err(|_| {
            let most = self.options.max_sandboxes;
            ApiError::new(Code::TooMany, format!("this server runs at most {most} sandboxes"))
        })
    }

    /// How long a new sandbox lives.
    pub(crate) fn lifetime(&self, seconds: u64) -> Duration {
        Duration::from_secs(seconds).min(self.options.max_lifetime).min(LONGEST)
    }

    async fn add(
        self: &Arc<Self>,
        new: NewLive<R::Sandbox>,
        place: tokio::sync::OwnedSemaphorePermit,
    ) -> Result<Arc<Live<R::Sandbox>>, ApiError> {
        let live = Arc::new(Live::new(new).await?);
        let closing = {
            let mut sandboxes = self.lock();
            if !sandboxes.closing {
                sandboxes.by_id.insert(live.id.clone(), Arc::clone(&live));
            }
            sandboxes.closing
        };
        if closing {
            live.lifetime.send_modify(|lifetime| lifetime.killed = true);
        }
        tokio::spawn(expire(Arc::clone(self), Arc::clone(&live), place));
        match closing {
            true => Err(ApiError::new(Code::SandboxGone, "the server is shutting down")),
            false => Ok(live),
        }
    }

    /// The image of a template. Clients name stored images only, never paths of this machine.
    fn image(&self, template: &str) -> Result<ImageRef, ApiError> {
        if template == BASE {
            return Ok(self.options.base.clone());
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
        let is_name = !template.is_empty()
            && template.starts_with(|c: char| c.is_ascii_alphanumeric())
            && template.len() <= 128
            && template.chars().all(plain);
        match is_name {
            true => Ok(ImageRef::Name(template.to_owned())),
            false => Err(ApiError::not_found(format!("template '{template}' not found"))),
        }
    }

    /// Ends a sandbox. Whether there was one.
    pub(crate) fn kill(&self, id: &str) -> bool {
        let Some(live) = self.lock().by_id.remove(id) else { return false };
        live.lifetime.send_modify(|lifetime| lifetime.killed = true);
        true
    }

    /// Ends all sandboxes, and those whose creation is under way.
    pub(crate) fn close(&self) {
        let ids: Vec<String> = {
            let mut sandboxes = self.lock();
            sandboxes.closing = true;
            sandboxes.by_id.keys().cloned().collect()
        };
        for id in ids {
            self.kill(&id);
        }
    }

    /// Waits until every sandbox is gone.
    pub(crate) async fn closed(&self) {
        let all = u32::try_from(self.options.max_sandboxes.max(1)).unwrap_or(u32::MAX);
        let _ = self.places.acquire_many(all).await;
    }
}

/// Ends a sandbox when its time is over, and removes it when it was killed. Its place is free once it is gone.
async fn expire<R: RemoteRuntime>(
    registry: Arc<Registry<R>>,
    live: Arc<Live<R::Sandbox>>,
    place: tokio::sync::OwnedSemaphorePermit,
) {
    let mut lifetime = live.lifetime.subscribe();
    loop {
        let now = *lifetime.borrow_and_update();
        if now.killed {
            // Where it ended by itself, requests still find it.
            registry.kill(&live.id);
            break;
        }
        let left = now.ends.duration_since(SystemTime::now()).unwrap_or_default();
        if left.is_zero() && !now.paused {
            if !live.auto_pause || live.set_paused(Paused::Yes).await.is_err() {
                registry.kill(&live.id);
            }
            continue;
        }
        // In steps, because the clock may be set.
        let longest = Duration::from_secs(60);
        let step = if now.paused { longest } else { left.min(longest) };
        tokio::select! {
            () = tokio::time::sleep(step) => {}
            _ = lifetime.changed() => {}
        }
    }
    drop(lifetime);
    remove(live).await;
    drop(place);
}

/// Removes a sandbox once no request uses it; requests end because it was killed.
async fn remove<S: RemoteSandbox>(mut live: Arc<Live<S>>) {
    loop {
        match Arc::try_unwrap(live) {
            Ok(last) => {
                if let Err(error) = last.sandbox.destroy().await {
                    tracing::error!("removing a sandbox: {}", error.chain());
                }
                return;
            }
            Err(still_used) => live = still_used,
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

impl<R: Runtime> std::fmt::Debug for Registry<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").finish_non_exhaustive()
    }
}
