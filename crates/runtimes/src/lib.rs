//! A runtime of sandboxes chosen when a program runs: an enum over all of them that implements the traits itself.
//!
//! Start with [`AnyRuntime`]. Callers use only the traits of `lis-sandbox`. Knows neither settings nor a command line.

use std::path::Path;

use sandbox::{
    ByteSize, CopyReport, Entry, Error, ExecOutput, Exit, Input, Process, Protection,
    RefusedConnections, Runtime, Sandbox, SandboxInfo, ShellCommand, Spec, Streams, Usage, Written,
};
use sandbox_docker::{DockerRuntime, DockerSandbox};
#[cfg(target_os = "linux")]
use sandbox_native::{NativeRuntime, NativeSandbox};

/// Any runtime.
pub enum AnyRuntime {
    /// The native runtime.
    #[cfg(target_os = "linux")]
    Native(NativeRuntime),
    /// The Docker runtime.
    Docker(DockerRuntime),
}

/// A sandbox of any runtime.
pub enum AnySandbox {
    /// The native runtime.
    #[cfg(target_os = "linux")]
    Native(Box<NativeSandbox>),
    /// The Docker runtime.
    Docker(DockerSandbox),
}

impl AnyRuntime {
    /// Whether an image is in the image store. Only Docker's daemon knows its images, so there the answer is yes.
    pub fn has_image(&self, name: &str) -> bool {
        match self {
            #[cfg(target_os = "linux")]
            Self::Native(runtime) => runtime.store().rootfs(name).is_ok(),
            Self::Docker(_) => true,
        }
    }

    /// Removes an image that a sandbox was saved as; returns whether it is gone. If not, it can be removed later.
    pub async fn forget(&self, image: &str) -> bool {
        match self {
            #[cfg(target_os = "linux")]
            Self::Native(runtime) => {
                let (store, image) = (runtime.store().clone(), image.to_owned());
                let removed = tokio::task::spawn_blocking(move || store.remove(&image)).await;
                matches!(removed, Ok(Ok(()) | Err(image::Error::Unknown { .. })))
            }
            Self::Docker(runtime) => runtime.remove_image(image).await.is_ok(),
        }
    }
}

/// Makes the same call on any of them.
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

    async fn usage(&self) -> Result<Usage, Error> {
        each!(self, sandbox => sandbox.usage().await)
    }

    async fn written(&self, directory: &Path, since: u64) -> Result<Option<Written>, Error> {
        each!(self, sandbox => sandbox.written(directory, since).await)
    }

    fn refused_connections(&self) -> Vec<RefusedConnections> {
        each!(self, sandbox => sandbox.refused_connections())
    }

    async fn destroy(self) -> Result<(), Error> {
        each!(self, sandbox => sandbox.destroy().await)
    }
}
