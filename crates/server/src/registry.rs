//! The sandboxes of all clients: creation, lookup, end.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    time::{Duration, Instant},
};

use http_server::{MemoryBudget, MemoryPermit};
use sandbox::{ImageRef, Paused, RemoteRuntime, RemoteSandbox, Runtime, Sandbox, Spec};

use crate::{
    ServeOptions,
    control_types::{NewSandbox, SECOND_TIMEOUT},
    error::{ApiError, Code},
    idempotency::Repeats,
    live::{LONGEST, Live, NewLive, Ports},
    memory::SharedMemory,
    metrics::Metrics,
    operation::DataDirectory,
    quota::SandboxPermit,
    running::no_memory,
    samples,
    sandbox_ids::{Issuer, SandboxIds},
    sandbox_log::Level,
    snapshots::{self, Reserved, Snapshot, Snapshots, Then},
    tokens::Caller,
};

/// The sandboxes by id.
pub(crate) struct Registry<R: Runtime> {
    pub(crate) runtime: Arc<R>,
    pub(crate) options: ServeOptions,
    /// For what is kept for clients.
    memory: SharedMemory,
    pub(crate) metrics: Arc<Metrics>,
    /// Requests for sandboxes that may be sent again.
    pub(crate) repeats: Repeats,
    live: Mutex<Sandboxes<R::Sandbox>>,
    pub(crate) snapshots: Arc<Snapshots>,
    /// Sandboxes that exist or are being created.
    places: Arc<tokio::sync::Semaphore>,
    ids: SandboxIds,
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

/// Why there is no sandbox of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// No server issued the id, or the sandbox is another caller's.
    Unknown,
    Ended,
    /// An earlier server ran it.
    EndedWithItsServer,
}

impl Missing {
    /// For the end of an error's message.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Unknown => "",
            Self::Ended => ": it has ended",
            Self::EndedWithItsServer => ": it ended with the server that ran it",
        }
    }
}

/// The template that always exists.
const BASE: &str = "base";

/// A random secret.
pub(crate) fn random(length: usize) -> Result<String, ApiError> {
    random_id::letters(length).map_err(no_random)
}

fn no_random(error: std::io::Error) -> ApiError {
    tracing::error!("random numbers: {error}");
    ApiError::new(Code::Internal, "the server has no random numbers")
}

fn no_template(name: &str) -> ApiError {
    ApiError::not_found(format!("template '{name}' not found"))
}

/// A token for requests to a new sandbox.
fn access_token() -> Result<String, ApiError> {
    Ok(format!("ea_{}", random(40)?))
}

impl<R: RemoteRuntime> Registry<R> {
    /// # Errors
    /// If the server's directory cannot be used.
    pub(crate) fn new(runtime: Arc<R>, options: ServeOptions) -> std::io::Result<Self> {
        let data = options.operation.data.as_ref().map(DataDirectory::path);
        let (snapshots, ids) = (Snapshots::open(data)?, SandboxIds::open(data)?);
        let places = options.max_sandboxes.clamp(1, tokio::sync::Semaphore::MAX_PERMITS);
        let places = Arc::new(tokio::sync::Semaphore::new(places));
        Ok(Self {
            runtime,
            memory: SharedMemory::new(options.kept_memory),
            options,
            metrics: Arc::default(),
            repeats: Repeats::default(),
            live: Mutex::default(),
            snapshots: Arc::new(snapshots),
            places,
            ids,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Sandboxes<R::Sandbox>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory for what is kept for a caller.
    pub(crate) fn memory_of(&self, caller: &Caller) -> MemoryBudget {
        self.memory.of(caller, &self.options.tokens)
    }

    /// A permit for so many bytes that are kept for a caller.
    pub(crate) fn keep(&self, caller: &Caller, bytes: usize) -> Result<MemoryPermit, ApiError> {
        let mut permit = self.memory_of(caller).permit();
        permit.grow(bytes).ok_or_else(no_memory)?;
        Ok(permit)
    }

    /// The sandbox of this id.
    pub(crate) fn find(&self, id: &str) -> Option<Arc<Live<R::Sandbox>>> {
        self.lock().by_id.get(id).cloned()
    }

    /// Why there is no sandbox of this id.
    pub(crate) fn missing(&self, id: &str) -> Missing {
        match self.ids.issuer(id) {
            Some(Issuer::EarlierRun) => Missing::EndedWithItsServer,
            // One of another caller does not exist.
            Some(Issuer::ThisRun) if self.find(id).is_none() => Missing::Ended,
            Some(Issuer::ThisRun) | None => Missing::Unknown,
        }
    }

    /// The error of a request for the files, programs or ports of a sandbox that there is not.
    pub(crate) fn gone(&self, id: &str) -> ApiError {
        let reason = self.missing(id).reason();
        ApiError::new(Code::SandboxGone, format!("the sandbox {id} was not found{reason}"))
    }

    /// The sandbox of this id, if it is this caller's.
    pub(crate) fn find_of(&self, caller: &Caller, id: &str) -> Option<Arc<Live<R::Sandbox>>> {
        self.find(id).filter(|live| live.owner.is(caller))
    }

    /// The sandboxes of a caller.
    pub(crate) fn all_of(&self, caller: &Caller) -> Vec<Arc<Live<R::Sandbox>>> {
        let mut all = self.all();
        all.retain(|live| live.owner.is(caller));
        all
    }

    /// All sandboxes.
    pub(crate) fn all(&self) -> Vec<Arc<Live<R::Sandbox>>> {
        self.lock().by_id.values().cloned().collect()
    }

    /// Creates a sandbox.
    pub(crate) async fn create(
        self: &Arc<Self>,
        caller: &Caller,
        new: NewSandbox,
    ) -> Result<Arc<Live<R::Sandbox>>, ApiError> {
        let image = self.image_for(caller, &new.template_id)?;
        let auto_resume = new.auto_resumes();
        let asked = new.network.unwrap_or_default();
        let network = asked.policy(new.allow_internet_access, &self.options.spec.network)?;
        let mut spec = Spec { image, network, ..self.options.spec.clone() };
        spec.limits = caller.limits(spec.limits);
        let token = if asked.is_private() { Some(random(40)?) } else { None };
        let ports = Ports { token, host_mask: asked.host_mask()? };
        let permit = self.permit(caller, &spec)?;
        let (id, access_token) = (self.ids.issue().map_err(no_random)?, access_token()?);
        let begun = Instant::now();
        let created = self.runtime.create(&spec).await;
        self.count_creation(created.is_ok(), begun);
        let sandbox = created?;
        let live = NewLive {
            id,
            template: new.template_id,
            owner: caller.clone(),
            metadata: Arc::new(new.metadata),
            env: Arc::new(new.env_vars),
            access_token,
            spec,
            lifetime: self.lifetime(new.timeout.unwrap_or(SECOND_TIMEOUT)),
            max_paused: self.options.max_paused,
            kept_output: self.options.kept_output,
            memory: self.memory_of(caller),
            auto_pause: new.auto_pause,
            auto_resume,
            network: asked,
            ports,
            sandbox,
        };
        self.add(live, permit).await
    }

    /// Creates copies of a sandbox. Each has its files, and none of its processes.
    pub(crate) async fn fork(
        self: &Arc<Self>,
        from: &Live<R::Sandbox>,
        timeout: u64,
    ) -> Result<Arc<Live<R::Sandbox>>, ApiError> {
        let permit = self.permit(&from.owner, &from.spec)?;
        let (id, access_token) = (self.ids.issue().map_err(no_random)?, access_token()?);
        let token = if from.ports.token.is_some() { Some(random(40)?) } else { None };
        let ports = Ports { token, ..from.ports.clone() };
        // An error may be about the copy, so it does not end this one.
        let begun = Instant::now();
        let created = from.unless_closed(async { Ok(from.sandbox.fork().await?) }).await;
        self.count_creation(created.is_ok(), begun);
        let sandbox = created?;
        let live = NewLive {
            id,
            template: from.template.clone(),
            owner: from.owner.clone(),
            metadata: Arc::clone(&from.metadata),
            env: Arc::clone(&from.env),
            access_token,
            spec: from.spec.clone(),
            lifetime: self.lifetime(timeout),
            max_paused: self.options.max_paused,
            kept_output: self.options.kept_output,
            memory: self.memory_of(&from.owner),
            auto_pause: from.auto_pause,
            auto_resume: from.auto_resume,
            network: from.network.clone(),
            ports,
            sandbox,
        };
        self.add(live, permit).await
    }

    /// Saves the files of a sandbox as an image.
    pub(crate) async fn snapshot(
        &self,
        live: &Live<R::Sandbox>,
        name: Option<String>,
    ) -> Result<Snapshot, ApiError> {
        let name = match name {
            Some(name) => name,
            None => format!("{}{}", snapshots::UNNAMED, random(12)?),
        };
        self.image(&name)?;
        if name == BASE {
            return Err(ApiError::invalid("a snapshot cannot be called `base`"));
        }
        let owner = &live.owner.name;
        if !self.snapshots.has(owner, &name) && self.runtime.has_image(&name).await? {
            return Err(snapshots::exists(&name));
        }
        // A snapshot is the files that the sandbox has changed.
        let usage = live.unless_ended(live.sandbox.usage()).await?;
        let size = usage.disk.or(live.spec.limits.disk);
        let check = self.storage_check(&live.owner, &name, size);
        let bytes = size.map_or(0, sandbox::ByteSize::bytes);
        let snapshot = Snapshot::new(name, live.id.clone(), Arc::clone(owner), bytes);
        let (known, new) = (Arc::clone(&self.snapshots), snapshot.clone());
        // Before there is an image, so that it is never nobody's.
        let reserved = tokio::task::spawn_blocking(move || known.reserve(new, check)).await??;
        let name = snapshot.name.clone();
        if let Err(error) = live.unless_ended(live.sandbox.snapshot(&name)).await {
            let then = self.after_failure(live, &name, reserved).await;
            self.settle(name, then).await?;
            return Err(error);
        }
        // Programs may have written meanwhile. One that has removed files since leaves the first size.
        let usage = live.unless_ended(live.sandbox.usage()).await.unwrap_or_default();
        let grown = usage.disk.filter(|now| now.bytes() > bytes);
        let snapshot = snapshot.with_bytes(grown.map_or(bytes, sandbox::ByteSize::bytes));
        self.settle(name.clone(), Then::Record(snapshot.clone())).await?;
        if let Some(size) = grown {
            let check = self.storage_check(&live.owner, &name, Some(size));
            if let Err(over) = check(self.snapshots.bytes_of(owner)) {
                self.remove_snapshot(&live.owner, &name).await?;
                return Err(over);
            }
        }
        Ok(snapshot)
    }

    /// What becomes of the record of an image that was not saved.
    async fn after_failure(&self, live: &Live<R::Sandbox>, name: &str, reserved: Reserved) -> Then {
        // Nobody waited for the last step of saving, so there may be an image yet.
        let may_be_saved = live.end().has_come();
        match reserved {
            Reserved::Again(_) if may_be_saved => Then::Keep,
            Reserved::Again(before) => Then::Record(before),
            Reserved::New if may_be_saved => Then::Keep,
            Reserved::New => match self.runtime.has_image(name).await {
                Ok(false) => Then::Forget,
                _ => Then::Keep,
            },
        }
    }

    async fn settle(&self, name: String, then: Then) -> Result<(), ApiError> {
        let known = Arc::clone(&self.snapshots);
        tokio::task::spawn_blocking(move || known.settle(&name, then)).await?
    }

    /// The snapshots that this caller made.
    pub(crate) fn snapshots(&self, caller: &Caller) -> Vec<Snapshot> {
        self.snapshots.of(&caller.name)
    }

    /// Removes a snapshot that this caller made; other images are not theirs to remove.
    pub(crate) async fn remove_snapshot(
        &self,
        caller: &Caller,
        name: &str,
    ) -> Result<(), ApiError> {
        let known = Arc::clone(&self.snapshots);
        let (owner, asked) = (Arc::clone(&caller.name), name.to_owned());
        let taken = tokio::task::spawn_blocking(move || known.take(&owner, &asked)).await??;
        let own = taken.ok_or_else(|| no_template(name))?;
        let removed = self.runtime.remove_image(&own).await;
        // A record of an image that somebody else removed goes as well.
        let then = if removed.is_ok() { Then::Forget } else { Then::Keep };
        self.settle(own, then).await?;
        match removed? {
            true => Ok(()),
            false => Err(no_template(name)),
        }
    }

    /// Permission for a new sandbox of a caller; it has to live as long as the sandbox.
    pub(crate) fn permit(&self, caller: &Caller, spec: &Spec) -> Result<SandboxPermit, ApiError> {
        let share = caller.account().take_sandbox(&spec.limits)?;
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| {
            let most = self.options.max_sandboxes;
            ApiError::new(Code::TooMany, format!("this server runs at most {most} sandboxes"))
        })?;
        Ok(SandboxPermit::new(share, place))
    }

    /// The permits of all sandboxes, for parts of the server that wait for one.
    pub(crate) fn places(&self) -> Arc<tokio::sync::Semaphore> {
        Arc::clone(&self.places)
    }

    /// The runtime.
    pub(crate) fn runtime(&self) -> Arc<R> {
        Arc::clone(&self.runtime)
    }

    fn count_creation(&self, created: bool, begun: Instant) {
        let counter = match created {
            true => &self.metrics.created,
            false => &self.metrics.failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        if created {
            self.metrics.create_time.observe(begun.elapsed());
        }
    }

    /// Whether the server ends.
    pub(crate) fn is_closing(&self) -> bool {
        self.lock().closing
    }

    /// How many more sandboxes there can be.
    pub(crate) fn places_left(&self) -> usize {
        self.places.available_permits()
    }

    /// Ends the sandboxes of tokens that are gone.
    pub(crate) fn end_orphans(&self) {
        for live in self.all() {
            if !self.options.tokens.has(&live.owner.name) {
                self.kill(&live.id);
            }
        }
        self.repeats.retain(|owner| self.options.tokens.has(owner));
        self.memory.forget_gone(&self.options.tokens);
    }

    /// How long a new sandbox lives.
    pub(crate) fn lifetime(&self, seconds: u64) -> Duration {
        Duration::from_secs(seconds).min(self.options.max_lifetime).min(LONGEST)
    }

    async fn add(
        self: &Arc<Self>,
        new: NewLive<R::Sandbox>,
        permit: SandboxPermit,
    ) -> Result<Arc<Live<R::Sandbox>>, ApiError> {
        let live = Arc::new(Live::new(new).await?);
        let closing = {
            let mut sandboxes = self.lock();
            // Its token may have been taken away meanwhile.
            let closing = sandboxes.closing || !self.options.tokens.has(&live.owner.name);
            if !closing {
                sandboxes.by_id.insert(live.id.clone(), Arc::clone(&live));
            }
            closing
        };
        if closing {
            live.lifetime.send_modify(|lifetime| lifetime.killed = true);
        }
        live.log.add(Level::Info, "sandbox started", [("template", live.template.clone())]);
        tokio::spawn(expire(Arc::clone(self), Arc::clone(&live), permit));
        tokio::spawn(samples::observe(Arc::downgrade(&live)));
        match closing {
            true => Err(ApiError::new(
                Code::SandboxGone,
                "the server is shutting down, or the token is not valid any more",
            )),
            false => Ok(live),
        }
    }

    /// Whether sandboxes can be created from this template.
    pub(crate) async fn has_template(&self, caller: &Caller, name: &str) -> Result<bool, ApiError> {
        match self.image_for(caller, name) {
            Ok(_) if name == BASE => Ok(true),
            Ok(_) => Ok(self.runtime.has_image(name).await?),
            Err(_) => Ok(false),
        }
    }

    /// The image of a template, unless it is a snapshot of another caller or what an episode keeps.
    fn image_for(&self, caller: &Caller, template: &str) -> Result<ImageRef, ApiError> {
        let image = self.image(template)?;
        match self.snapshots.may_use(&caller.name, template) {
            true => Ok(image),
            false => Err(no_template(template)),
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
            false => Err(no_template(template)),
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
            for live in sandboxes.by_id.values() {
                live.lifetime.send_modify(|lifetime| lifetime.shutdown = true);
            }
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
    permit: SandboxPermit,
) {
    let mut lifetime = live.lifetime.subscribe();
    loop {
        let now = *lifetime.borrow_and_update();
        if now.killed {
            // Where it ended by itself, requests still find it.
            registry.kill(&live.id);
            break;
        }
        let left = now.left();
        if left.is_zero() {
            let pauses = live.auto_pause && !now.is_paused();
            if !pauses || live.set_paused(Paused::Yes).await.is_err() {
                registry.kill(&live.id);
            }
            continue;
        }
        tokio::select! {
            () = tokio::time::sleep(left) => {}
            _ = lifetime.changed() => {}
        }
    }
    drop(lifetime);
    remove(live).await;
    registry.metrics.destroyed.fetch_add(1, Ordering::Relaxed);
    drop(permit);
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
