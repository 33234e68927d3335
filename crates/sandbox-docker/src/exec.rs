//! Commands started in a running container: their streams, their end, and how to stop them.

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

use crate::{failure::during, names, sandbox_impl::Inner};

/// The variable by which everything a command starts can be recognised.
const MARK: &str = "LLM_IN_SANDBOX_EXEC";
/// How long a command has to end politely.
const GRACE: Duration = Duration::from_millis(200);
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

/// By what a command's processes are known.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub(crate) name: String,
    /// The sandbox's own time before the command was started.
    pub(crate) after: u64,
    pub(crate) started: Instant,
}

impl Inner {
    /// A bash that reads nothing but what it is told to: no start files, no functions from outside.
    pub(crate) fn bash<const N: usize>(&self, words: [&str; N]) -> Vec<String> {
        let own = [self.programs.bash.as_str(), "--norc", "--noprofile", "-p"];
        own.into_iter().chain(words).map(String::from).collect()
    }

    /// Starts a command.
    pub(crate) async fn start(
        &self,
        argv: Vec<String>,
        env: &[(String, String)],
        console: Console,
    ) -> Result<Running, Error> {
        // A container that is being saved is frozen and takes no commands.
        let _unfrozen = self.frozen.read().await;
        let (name, started) = (names::unique(), Instant::now());
        let own = [(MARK.to_owned(), name.clone())];
        let env = self.spec.env.iter().chain(env).chain(&own);
        let config = ExecConfig {
            attach_stdin: Some(true),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            tty: Some(console == Console::Terminal),
            // Nobody types this; the default would swallow what people do type.
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
                Err(Error::Gone("the daemon let go of a command".into()))
            }
            Err(error) => Err(during("starting a command")(error)),
        }
    }

    /// The exit code of a command that has ended.
    pub(crate) async fn ended(&self, exec: &str) -> Result<Option<i32>, Error> {
        let seen = self.docker.inspect_exec(exec).await.map_err(during("asking for a command"))?;
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
        Err(Error::Gone("the daemon does not say how a command ended".into()))
    }

    /// Ends everything a command started, politely and then not. When even that fails the whole sandbox
    /// goes: nothing may run on unseen.
    pub(crate) async fn stop(self: &Arc<Self>, mark: &Mark) -> Result<(), Error> {
        let mut keeper = self.keeper.lock().await;
        let stopped = async {
            keeper.terminate(mark).await?;
            tokio::time::sleep(GRACE).await;
            keeper.kill(mark).await
        };
        let stopped = stopped.await;
        if stopped.is_err() {
            self.remove().await?;
        }
        stopped
    }

    /// The limit that was run into since this was last asked.
    pub(crate) async fn cause(&self) -> Result<Option<Cause>, Error> {
        let now = self.keeper.lock().await.count().await?;
        let mut last = self.counters.lock().await;
        let before = std::mem::replace(&mut *last, now);
        Ok(if now.oom > before.oom {
            Some(Cause::Oom)
        } else if now.pids > before.pids {
            Some(Cause::Pids)
        } else {
            None
        })
    }
}

/// Stops a command whose caller goes away.
pub(crate) struct StopOnDrop {
    inner: Arc<Inner>,
    mark: Option<Mark>,
}

impl StopOnDrop {
    pub(crate) fn new(inner: &Arc<Inner>, mark: Mark) -> Self {
        Self { inner: Arc::clone(inner), mark: Some(mark) }
    }

    /// The command has ended by itself.
    pub(crate) fn disarm(&mut self) {
        self.mark = None;
    }
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        if let Some(mark) = self.mark.take() {
            let inner = Arc::clone(&self.inner);
            self.inner.tokio.spawn(async move {
                // Nobody is left to tell; a sandbox that fails to stop it removes itself.
                let _ = inner.stop(&mark).await;
            });
        }
    }
}

/// Docker reports 128 and the signal's number for a death by signal, and the same for such an exit code.
pub(crate) fn status(code: i32) -> Status {
    match code {
        129..=192 => Status::Signaled(code - 128),
        _ => Status::Exited(code),
    }
}

/// When to ask whether a command has ended: soon at first, for its streams may stay open without it.
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
