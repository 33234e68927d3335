//! One Python process: its threads, its runtimes of sandboxes, and the sandboxes that are open.
//!
//! A forked process must not use what its parent started: threads do not exist in it, and sockets are shared. So every
//! object that Python holds remembers the process that made it, refuses work in another, and is leaked there instead of dropped.

use std::{
    collections::HashMap,
    ffi::OsString,
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use pyo3::{exceptions::PyOSError, prelude::*};
use runtimes::{AnyRuntime, AnySandbox};
use sandbox::{Runtime, Spec};
use sandbox_docker::{DockerOptions, DockerRuntime};
use sandbox_native::{Launcher, NativeOptions, NativeRuntime};
use startup::TemporaryDirs;
use tokio::runtime::{Builder, Handle};
use tokio_util::sync::CancellationToken;

use crate::{
    failure::Failure, operation::Operation, pool::SharedPool, rollouts::RolloutArguments,
    sandbox_handle::Shared, spec::SandboxSpec, value::Value,
};

/// How long the end of a process waits for its sandboxes.
const CLOSING: Duration = Duration::from_secs(5);
/// The argument that makes the program the spawner of sandboxes.
const SPAWNER: &str = "__spawner";

/// What all operations of a process share.
pub(crate) struct Process {
    pid: u32,
    handle: Handle,
    /// `None` once it is dropped.
    threads: Option<tokio::runtime::Runtime>,
    /// Each in a lock of its own: one that takes long to start, such as a slow Docker daemon, delays no other.
    runtimes: Mutex<HashMap<RuntimeKey, Cell>>,
    open: Mutex<HashMap<u64, Weak<Shared>>>,
    next: AtomicU64,
    settings: Settings,
    closing: CancellationToken,
}

/// A runtime, once it is started.
type Cell = Arc<tokio::sync::Mutex<Option<Arc<AnyRuntime>>>>;

/// Which runtime.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RuntimeKey {
    /// The native runtime.
    Native,
    /// Docker's, at this address or the usual one.
    Docker(Option<String>),
}

struct Settings {
    /// The program that creates sandboxes, or why there is none.
    program: Result<PathBuf, String>,
    home: PathBuf,
    variables: HashMap<String, OsString>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it holds the lock.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Process {
    fn start(settings: Settings) -> io::Result<Arc<Self>> {
        let threads =
            Builder::new_multi_thread().thread_name("llm-in-sandbox").enable_all().build()?;
        Ok(Arc::new(Self {
            pid: std::process::id(),
            handle: threads.handle().clone(),
            threads: Some(threads),
            runtimes: Mutex::default(),
            open: Mutex::default(),
            next: AtomicU64::new(1),
            settings,
            closing: CancellationToken::new(),
        }))
    }

    /// Whether this is the process that created it.
    pub(crate) fn is_own(&self) -> bool {
        std::process::id() == self.pid
    }

    /// Refuses work in a forked process, and while this one ends.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if !self.is_own() {
            return Err(Failure::closed(format!(
                "the sandbox belongs to the process {} and cannot be used in one forked from it; create another here",
                self.pid
            )));
        }
        match self.closing.is_cancelled() {
            true => Err(exiting()),
            false => Ok(()),
        }
    }

    /// The threads of this process.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Cancelled when the interpreter exits.
    pub(crate) fn closing(&self) -> &CancellationToken {
        &self.closing
    }

    /// Registers an open sandbox, to be closed at the end; returns its number.
    pub(crate) fn register(&self, shared: impl FnOnce(u64) -> Arc<Shared>) -> Arc<Shared> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let shared = shared(number);
        lock(&self.open).insert(number, Arc::downgrade(&shared));
        shared
    }

    /// Forgets a sandbox that is closed.
    pub(crate) fn forget(&self, number: u64) {
        lock(&self.open).remove(&number);
    }

    /// The runtime, started at its first use.
    pub(crate) async fn runtime(&self, key: &RuntimeKey) -> Result<Arc<AnyRuntime>, Failure> {
        tokio::select! {
            biased;
            () = self.closing.cancelled() => Err(exiting()),
            started = self.started(key) => started,
        }
    }

    fn cell(&self, key: &RuntimeKey) -> Cell {
        Arc::clone(lock(&self.runtimes).entry(key.clone()).or_default())
    }

    async fn started(&self, key: &RuntimeKey) -> Result<Arc<AnyRuntime>, Failure> {
        let cell = self.cell(key);
        let mut started = cell.lock().await;
        if let Some(runtime) = &*started {
            return Ok(Arc::clone(runtime));
        }
        let runtime = match key {
            RuntimeKey::Native => AnyRuntime::Native(self.start_native().await?),
            RuntimeKey::Docker(host) => {
                let options = DockerOptions { host: host.clone(), ..DockerOptions::default() };
                AnyRuntime::Docker(DockerRuntime::connect(options).await?)
            }
        };
        let runtime = Arc::new(runtime);
        *started = Some(Arc::clone(&runtime));
        Ok(runtime)
    }

    async fn start_native(&self) -> Result<NativeRuntime, Failure> {
        let program = self.settings.program.as_ref();
        let program =
            program.map_err(|why| Failure::Raise("SandboxUnavailable", why.clone()))?.clone();
        let home = self.settings.home.clone();
        create_private(&home).map_err(|error| {
            let home = home.display();
            Failure::infrastructure(format!(
                "cannot store state in {home}: {error}; set LLM_IN_SANDBOX_HOME to another directory"
            ))
        })?;
        let variables = &self.settings.variables;
        let temporary = TemporaryDirs::from_variables(|name| variables.get(name).cloned());
        let state = startup::state_dir(&home, &temporary)
            .map_err(|error| Failure::infrastructure(error.to_string()))?;
        let name = "LD_LIBRARY_PATH";
        let env = variables.get(name).map(|path| (name.into(), path.clone()));
        let launcher = Launcher {
            args: vec![SPAWNER.into()],
            env: env.into_iter().collect(),
            ..Launcher::new(program)
        };
        Ok(NativeRuntime::start(NativeOptions { home, state: state.path, launcher }).await?)
    }

    /// Creates a sandbox. If the runtime has ended, for instance because its process was killed, a new one is started.
    pub(crate) async fn create(
        &self,
        key: &RuntimeKey,
        spec: &Spec,
    ) -> Result<AnySandbox, Failure> {
        let runtime = self.runtime(key).await?;
        match runtime.create(spec).await {
            Err(sandbox::Error::Gone(_)) => {
                self.forget_runtime(key, &runtime).await;
                Ok(self.runtime(key).await?.create(spec).await?)
            }
            created => Ok(created?),
        }
    }

    async fn forget_runtime(&self, key: &RuntimeKey, ended: &Arc<AnyRuntime>) {
        let cell = self.cell(key);
        let mut started = cell.lock().await;
        if started.as_ref().is_some_and(|runtime| Arc::ptr_eq(runtime, ended)) {
            *started = None;
        }
    }

    /// Closes every sandbox, and lets the runtimes go.
    async fn close(&self) {
        self.closing.cancel();
        let open: Vec<_> = lock(&self.open).values().filter_map(Weak::upgrade).collect();
        let closed = futures_util::future::join_all(open.into_iter().map(Shared::close));
        let _ = tokio::time::timeout(CLOSING, closed).await;
        let cells: Vec<_> = lock(&self.runtimes).drain().map(|(_, cell)| cell).collect();
        // A task that starts a runtime holds its lock; it has been cancelled.
        let ended = cells.iter().map(async |cell| drop(cell.lock().await.take()));
        let _ = tokio::time::timeout(CLOSING, futures_util::future::join_all(ended)).await;
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(threads) = self.threads.take() {
            let entered = threads.enter();
            lock(&self.runtimes).clear();
            drop(entered);
            threads.shutdown_background();
        }
    }
}

/// Keeps what is another process's from ever being dropped: a lock could be held by a thread that does not exist here, and
/// sockets would be taken out of the epoll instance that both share.
pub(crate) fn leak<T>(value: &Arc<T>) {
    std::mem::forget(Arc::clone(value));
}

fn exiting() -> Failure {
    Failure::closed("the interpreter is exiting")
}

/// Creates a directory that is its user's own.
fn create_private(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// One Python process.
#[pyclass(frozen, module = "llm_in_sandbox._native")]
pub(crate) struct Engine {
    process: Arc<Process>,
}

impl Drop for Engine {
    fn drop(&mut self) {
        if !self.process.is_own() {
            leak(&self.process);
        }
    }
}

#[pymethods]
impl Engine {
    /// `program` is the path of the program; `missing` says why there is none. `variables` are those of the environment
    /// that say where temporary files and libraries are.
    #[new]
    fn new(
        program: Option<PathBuf>,
        missing: String,
        home: PathBuf,
        variables: HashMap<String, OsString>,
    ) -> PyResult<Self> {
        let settings = Settings { program: program.ok_or(missing), home, variables };
        let process = Process::start(settings)
            .map_err(|error| PyOSError::new_err(format!("cannot start threads: {error}")))?;
        Ok(Self { process })
    }

    /// Creates a sandbox.
    fn create(&self, spec: SandboxSpec) -> Operation {
        let process = Arc::clone(&self.process);
        let creating = async move {
            let created = process.create(&spec.runtime, &spec.spec).await?;
            Ok(Value::Sandbox(Shared::new(&process, created, spec.spec)))
        };
        Operation::new(&self.process, creating)
    }

    /// Starts to fill a pool of sandboxes.
    fn pool(&self, spec: SandboxSpec, size: usize) -> Operation {
        let process = Arc::clone(&self.process);
        let starting = async move { SharedPool::start(process, spec, size).await.map(Value::Pool) };
        Operation::new(&self.process, starting)
    }

    /// Runs episodes for training; the arguments are JSON.
    fn rollout(&self, py: Python<'_>, arguments: &str, spec: SandboxSpec) -> PyResult<Operation> {
        let arguments = RolloutArguments::parse(arguments);
        let arguments = arguments.map_err(|failure| failure.into_exception(py))?;
        let process = Arc::clone(&self.process);
        let running = async move {
            let closing = process.closing().clone();
            tokio::select! {
                rollouts = arguments.run(process, spec) => {
                    rollouts.map(|rollouts| Value::Rollouts(Box::new(rollouts)))
                }
                () = closing.cancelled() => Err(exiting()),
            }
        };
        Ok(Operation::new(&self.process, running))
    }

    /// Closes everything, at the end of the process. Returns within seconds.
    fn shut_down(&self, py: Python<'_>) {
        if self.process.is_own() {
            let process = &self.process;
            py.detach(|| process.handle().block_on(process.close()));
        }
    }
}
