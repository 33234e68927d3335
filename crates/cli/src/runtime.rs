//! The one place where a runtime is chosen: an enum over all of them that is a runtime itself.
//!
//! Commands above see the traits alone.

#[cfg(target_os = "linux")]
use std::path::PathBuf;
use std::{
    path::Path,
    time::{Duration, Instant},
};

use sandbox::{
    ByteSize, CopyReport, Entry, Error, ExecOutput, Exit, Input, Process, Protection, Runtime,
    Sandbox, SandboxInfo, ShellCommand, Spec, Streams,
};
use sandbox_docker::{DockerRuntime, DockerSandbox};
#[cfg(target_os = "linux")]
use sandbox_native::{Launcher, NativeOptions, NativeRuntime, NativeSandbox};

use crate::{args::RuntimeKind, settings::Settings};

/// The hidden word that makes this program the spawner.
#[cfg(target_os = "linux")]
pub(crate) const SPAWNER: &str = "__spawner";

/// Helper processes get this long to remove their traces after the last sandbox is gone.
const HELPERS: Duration = Duration::from_secs(2);

/// Some runtime.
pub(crate) enum AnyRuntime {
    /// Namespaces.
    #[cfg(target_os = "linux")]
    Native(NativeRuntime),
    /// A daemon.
    Docker(DockerRuntime),
}

/// A sandbox of some runtime.
pub(crate) enum AnySandbox {
    /// Namespaces.
    #[cfg(target_os = "linux")]
    Native(Box<NativeSandbox>),
    /// A daemon.
    Docker(DockerSandbox),
}

impl AnyRuntime {
    /// Starts the runtime of this kind.
    pub(crate) async fn start(kind: RuntimeKind, settings: &Settings) -> anyhow::Result<Self> {
        match kind {
            RuntimeKind::Native => start_native(settings).await,
            RuntimeKind::Docker => {
                Ok(Self::Docker(DockerRuntime::connect(settings.docker()).await?))
            }
        }
    }
}

impl AnyRuntime {
    /// Removes an image a sandbox was saved as. One that cannot be removed is for `image rm`.
    pub(crate) async fn forget(&self, image: &str) {
        match self {
            #[cfg(target_os = "linux")]
            Self::Native(runtime) => {
                let (store, image) = (runtime.store().clone(), image.to_owned());
                let _ = tokio::task::spawn_blocking(move || store.remove(&image)).await;
            }
            Self::Docker(runtime) => {
                let _ = runtime.remove_image(image).await;
            }
        }
    }
}

#[cfg(target_os = "linux")]
async fn start_native(settings: &Settings) -> anyhow::Result<AnyRuntime> {
    let home = settings.writable_home()?.to_owned();
    let options = NativeOptions { home, launcher: launcher() };
    Ok(AnyRuntime::Native(NativeRuntime::start(options).await?))
}

/// This program once more, as the spawner.
#[cfg(target_os = "linux")]
pub(crate) fn launcher() -> Launcher {
    // The link works even when the program's file was replaced meanwhile.
    let link = PathBuf::from("/proc/self/exe");
    let program = if link.exists() { link } else { std::env::current_exe().unwrap_or(link) };
    Launcher { program, args: vec![SPAWNER.into()] }
}

#[cfg(not(target_os = "linux"))]
async fn start_native(_: &Settings) -> anyhow::Result<AnyRuntime> {
    let why = "it is made of parts of the Linux kernel".into();
    let remedy = "use --runtime docker".into();
    Err(Error::Unsupported { what: "the native runtime".into(), why, remedy }.into())
}

/// Waits, not for ever, until the processes we started are gone, and with them every trace of ours.
pub(crate) fn await_helpers() {
    let deadline = Instant::now() + HELPERS;
    // An error means that there is nobody to wait for.
    while let Ok(ended) = rustix::process::wait(rustix::process::WaitOptions::NOHANG) {
        if ended.is_none() {
            if Instant::now() > deadline {
                return;
            }
            std::thread::sleep(Duration::from_micros(500));
        }
    }
}

/// Asks the programs we started to end.
pub(crate) fn end_helpers() {
    use rustix::process::{Pid, Signal, kill_process};
    // Any thread may have started them.
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    for thread in threads {
        let children = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        let pids = children.split_whitespace().filter_map(|word| word.parse().ok());
        for pid in pids.filter_map(Pid::from_raw) {
            // Gone already is fine.
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

/// The same call on whichever it is.
macro_rules! each {
    ($any:expr, $name:ident => $call:expr) => {
        match $any {
            #[cfg(target_os = "linux")]
            Self::Native($name) => $call,
            Self::Docker($name) => $call,
        }
    };
}

impl Runtime for AnyRuntime {
    type Sandbox = AnySandbox;

    async fn create(&self, spec: &Spec) -> Result<AnySandbox, Error> {
        match self {
            #[cfg(target_os = "linux")]
            Self::Native(runtime) => {
                runtime.create(spec).await.map(|made| AnySandbox::Native(Box::new(made)))
            }
            Self::Docker(runtime) => runtime.create(spec).await.map(AnySandbox::Docker),
        }
    }

    async fn list(&self) -> Result<Vec<SandboxInfo>, Error> {
        each!(self, runtime => runtime.list().await)
    }

    async fn prune(&self) -> Result<Vec<SandboxInfo>, Error> {
        each!(self, runtime => runtime.prune().await)
    }
}

impl Sandbox for AnySandbox {
    fn id(&self) -> &str {
        each!(self, sandbox => sandbox.id())
    }

    fn protection(&self) -> &Protection {
        each!(self, sandbox => sandbox.protection())
    }

    async fn shell(&self, command: &ShellCommand) -> Result<ExecOutput, Error> {
        each!(self, sandbox => sandbox.shell(command).await)
    }

    async fn process(&self, process: &Process, streams: Streams) -> Result<Exit, Error> {
        each!(self, sandbox => sandbox.process(process, streams).await)
    }

    async fn read_file(&self, path: &Path) -> Result<Input, Error> {
        each!(self, sandbox => sandbox.read_file(path).await)
    }

    async fn write_file(&self, path: &Path, contents: &[u8]) -> Result<(), Error> {
        each!(self, sandbox => sandbox.write_file(path, contents).await)
    }

    async fn list(&self, path: &Path) -> Result<Vec<Entry>, Error> {
        each!(self, sandbox => sandbox.list(path).await)
    }

    async fn copy_in(&self, host: &Path, path: &Path) -> Result<CopyReport, Error> {
        each!(self, sandbox => sandbox.copy_in(host, path).await)
    }

    async fn copy_out(&self, path: &Path, host: &Path) -> Result<CopyReport, Error> {
        each!(self, sandbox => sandbox.copy_out(path, host).await)
    }

    async fn fork(&self) -> Result<Self, Error> {
        match self {
            #[cfg(target_os = "linux")]
            Self::Native(sandbox) => sandbox.fork().await.map(|fork| Self::Native(Box::new(fork))),
            Self::Docker(sandbox) => sandbox.fork().await.map(Self::Docker),
        }
    }

    async fn snapshot(&self, name: &str) -> Result<(), Error> {
        each!(self, sandbox => sandbox.snapshot(name).await)
    }

    async fn freeze(&self) -> Result<(), Error> {
        each!(self, sandbox => sandbox.freeze().await)
    }

    async fn peak_memory(&self) -> Result<Option<ByteSize>, Error> {
        each!(self, sandbox => sandbox.peak_memory().await)
    }

    async fn destroy(self) -> Result<(), Error> {
        each!(self, sandbox => sandbox.destroy().await)
    }
}
