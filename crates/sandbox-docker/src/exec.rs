//! Commands in a running container: starting them, their streams and exit codes, and stopping them.

use std::{
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use bollard::{
    container::LogOutput,
    exec::{StartExecOptions, StartExecResults},
    models::ExecConfig,
};
use futures_util::Stream;
use sandbox::{Cause, Error, Status};
use tokio::io::AsyncWrite;

use crate::{disk::Counted, failure::during, names, sandbox_impl::Inner};

/// The variable that identifies everything a command starts.
const MARK: &str = "LLM_IN_SANDBOX_EXEC";
/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_millis(200);
/// By how much commands yield.
const NICENESS: &str = "15";
/// Largest piece of output read at once.
const PIECE: usize = 64 << 10;

/// What a command reads from and writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Console {
    Pipes,
    Terminal,
}

/// A command that was started.
pub(crate) struct Running {
    pub(crate) mark: Mark,
    pub(crate) exec: String,
    pub(crate) output:
        Pin<Box<dyn Stream<Item = Result<LogOutput, bollard::errors::Error>> + Send>>,
    pub(crate) input: Pin<Box<dyn AsyncWrite + Send>>,
}

/// Identifies the processes of a command.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub(crate) name: String,
    /// The container's clock before the command was started.
    pub(crate) after: u64,
    pub(crate) started: Instant,
}

impl Inner {
    /// The arguments of a bash that reads neither start files nor functions from its environment.
    pub(crate) fn bash<const N: usize>(&self, words: [&str; N]) -> Vec<String> {
        let own = [self.programs.bash.as_str(), "--norc", "--noprofile", "-p"];
        own.into_iter().chain(words).map(String::from).collect()
    }

    /// The same for what the caller asked to run, which yields to this runtime's own processes: the first one, and those
    /// that read and write files.
    pub(crate) fn command<const N: usize>(&self, words: [&str; N]) -> Vec<String> {
        [self.nice(), self.bash(words)].concat()
    }

    /// The words before a command that make it yield; none where the image has no `nice`.
    pub(crate) fn nice(&self) -> Vec<String> {
        let nice = self.programs.nice.iter();
        nice.flat_map(|nice| [nice, "-n", NICENESS].map(String::from)).collect()
    }

    /// Starts a command.
    pub(crate) async fn start(
        &self,
        argv: Vec<String>,
        env: &[(String, String)],
        console: Console,
    ) -> Result<Running, Error> {
        // A container that is being saved is paused and accepts no commands.
        let _unfrozen = self.frozen.read().await;
        let (name, started) = (names::unique(), Instant::now());
        let own = [(MARK.to_owned(), name.clone())];
        let env = self.spec.env.iter().chain(env).chain(&own);
        let config = ExecConfig {
            attach_stdin: Some(true),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            tty: Some(console == Console::Terminal),
            // An unlikely sequence; the default would swallow keys that users type.
            detach_keys: Some("ctrl-_,ctrl-^,ctrl-_,ctrl-^".into()),
            env: Some(env.map(|(name, value)| format!("{name}={value}")).collect()),
            cmd: Some(argv),
            ..Default::default()
        };
        let clock = async { self.keeper.lock().await.clock().await };
        let (made, after) = tokio::join!(self.docker.create_exec(&self.id, config), clock);
        let exec = made.map_err(during("preparing a command"))?.id;
        let mark = Mark { name, after: after?, started };
        let options = StartExecOptions {
            detach: false,
            tty: console == Console::Terminal,
            output_capacity: Some(PIECE),
        };
        match self.docker.start_exec(&exec, Some(options)).await {
            Ok(StartExecResults::Attached { output, input }) => {
                Ok(Running { mark, exec, output, input })
            }
            Ok(StartExecResults::Detached) => {
                Err(Error::Gone("the daemon detached a command".into()))
            }
            Err(error) => Err(during("starting a command")(error)),
        }
    }

    /// The exit code of a command that has ended.
    pub(crate) async fn ended(&self, exec: &str) -> Result<Option<i32>, Error> {
        let seen = self.docker.inspect_exec(exec).await.map_err(during("inspecting a command"))?;
        if seen.running.unwrap_or(false) {
            return Ok(None);
        }
        Ok(seen.exit_code.map(|code| i32::try_from(code).unwrap_or(i32::MAX)))
    }

    /// The exit code of a command whose streams are closed.
    pub(crate) async fn exit_code(&self, exec: &str) -> Result<i32, Error> {
        let mut pause = Duration::from_millis(1);
        while pause < Duration::from_secs(4) {
            if let Some(code) = self.ended(exec).await? {
                return Ok(code);
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        Err(Error::Gone("the daemon does not report the exit code of a command".into()))
    }

    /// Stops everything a command started, by SIGTERM and then SIGKILL. If that fails the container is removed, so that
    /// nothing continues unnoticed.
    pub(crate) async fn stop(self: &Arc<Self>, mark: &Mark) -> Result<(), Error> {
        let mut keeper = self.keeper.lock().await;
        let stopped = async {
            keeper.terminate(mark).await?;
            tokio::time::sleep(GRACE).await;
            keeper.kill(mark).await
        };
        let stopped = stopped.await;
        drop(keeper);
        if stopped.is_err() {
            self.remove().await?;
        }
        stopped
    }

    /// The limit that was reached since the last call, by a command that ended in this way.
    pub(crate) async fn cause(
        &self,
        status: Status,
        command: Option<&Counted>,
    ) -> Result<Option<Cause>, Error> {
        let now = self.keeper.lock().await.count().await?;
        let mut last = self.counters.lock().await;
        let before = std::mem::replace(&mut *last, now);
        Ok(if now.oom > before.oom {
            Some(Cause::Oom)
        } else if self.passed_disk_limit(status, command).await? {
            Some(Cause::Disk)
        } else if now.pids > before.pids {
            Some(Cause::Pids)
        } else {
            None
        })
    }
}

/// Stops a command when dropped.
pub(crate) struct StopOnDrop {
    inner: Arc<Inner>,
    mark: Option<Mark>,
}

impl StopOnDrop {
    pub(crate) fn new(inner: &Arc<Inner>, mark: Mark) -> Self {
        Self { inner: Arc::clone(inner), mark: Some(mark) }
    }

    /// Notes that the command has ended by itself.
    pub(crate) fn disarm(&mut self) {
        self.mark = None;
    }
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        if let Some(mark) = self.mark.take() {
            let inner = Arc::clone(&self.inner);
            self.inner.tokio.spawn(async move {
                // There is no caller left to report to; on failure the container is removed.
                let _ = inner.stop(&mark).await;
            });
        }
    }
}

/// Docker reports a death by signal as 128 plus its number, like an exit with that code.
pub(crate) fn status(code: i32) -> Status {
    match code {
        129..=192 => Status::Signaled(code - 128),
        _ => Status::Exited(code),
    }
}

/// Intervals of polling whether a command has ended, whose streams may stay open longer: short at first.
pub(crate) struct Poll {
    pause: Duration,
}

impl Poll {
    pub(crate) fn new() -> Self {
        Self { pause: Duration::from_millis(40) }
    }

    pub(crate) fn next(&mut self) -> tokio::time::Instant {
        let at = tokio::time::Instant::now() + self.pause;
        self.pause = (self.pause * 3 / 2).min(Duration::from_millis(250));
        at
    }
}
