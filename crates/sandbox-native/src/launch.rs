//! How the spawner is started: when a runtime is, or before, so that it starts while its caller does.

use std::{
    ffi::OsString,
    fmt, io,
    os::fd::OwnedFd,
    path::PathBuf,
    process::{Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::process::{Child, ChildStderr};

use crate::wire;

/// How to start the spawner: a program that does nothing but call [`crate::spawner_main`].
#[derive(Clone, Debug)]
pub struct Launcher {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Its whole environment, usually empty or `LD_LIBRARY_PATH` alone. Nothing of it reaches a sandbox.
    pub env: Vec<(OsString, OsString)>,
    /// A spawner that waits for a runtime, shared by all copies of this launcher.
    pub early: EarlySpawner,
}

/// A spawner that was started before its runtime, or none.
#[derive(Clone, Default)]
pub struct EarlySpawner(Arc<Mutex<Option<Launched>>>);

/// A spawner and the socket to it.
pub(crate) struct Launched {
    pub(crate) process: Process,
    pub(crate) socket: OwnedFd,
}

/// The process of a spawner.
pub(crate) enum Process {
    /// Started by a runtime: collected when it ends.
    Watched(Child),
    /// Started before there was anything to watch it. The program that started it collects its children in the end.
    Early(std::process::Child),
}

/// How often to look whether a process has ended that nothing watches.
const CHECK: Duration = Duration::from_millis(5);

impl Process {
    /// Takes the pipe from its standard error.
    pub(crate) fn stderr(&mut self) -> Option<ChildStderr> {
        match self {
            Self::Watched(child) => child.stderr.take(),
            Self::Early(child) => ChildStderr::from_std(child.stderr.take()?).ok(),
        }
    }

    /// Waits until it has ended.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        match self {
            Self::Watched(child) => child.wait().await,
            Self::Early(child) => loop {
                if let Some(status) = child.try_wait()? {
                    return Ok(status);
                }
                tokio::time::sleep(CHECK).await;
            },
        }
    }
}

impl fmt::Debug for EarlySpawner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EarlySpawner")
    }
}

impl EarlySpawner {
    /// Ends a spawner that no runtime took.
    pub fn discard(&self) {
        drop(self.take());
    }

    fn take(&self) -> Option<Launched> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Launcher {
    /// A program without arguments, in an empty environment.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        let early = EarlySpawner::default();
        Self { program: program.into(), args: Vec::new(), env: Vec::new(), early }
    }

    /// Starts a spawner now. The first runtime that is started with this launcher, or a copy of it, takes it; the others
    /// start their own. It does nothing until then, and ends with this process. Nothing happens where it cannot be started:
    /// the runtime will try it again, and report why.
    pub fn start_early(&self) {
        let launched = self.command().and_then(|(mut command, socket)| {
            let process = Process::Early(command.spawn()?);
            Ok(Launched { process, socket })
        });
        *self.early.0.lock().unwrap_or_else(PoisonError::into_inner) = launched.ok();
    }

    /// The spawner that waits, or a new one.
    pub(crate) fn take(&self) -> io::Result<Launched> {
        if let Some(launched) = self.early.take() {
            return Ok(launched);
        }
        let (command, socket) = self.command()?;
        let process = Process::Watched(tokio::process::Command::from(command).spawn()?);
        Ok(Launched { process, socket })
    }

    /// The command, and the socket to the process that it starts.
    #[expect(clippy::disallowed_methods, reason = "this crate starts its spawner")]
    fn command(&self) -> io::Result<(Command, OwnedFd)> {
        use std::os::unix::process::CommandExt;
        raise_descriptor_limit();
        let (ours, theirs) = wire::pair()?;
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            // The name of PID 1 as processes in the sandbox see it.
            .arg0("llm-in-sandbox")
            .env_clear()
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .current_dir("/")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        Ok((command, ours))
    }
}

/// Raises the soft limit: hundreds of sandboxes need more descriptors than the usual default.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}
