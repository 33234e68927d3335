//! Runs a command of the shell: a new bash that loads the state of the previous command and saves its own.
//!
//! There are two slots of state in the container. A command loads one and saves to the other; the slots are swapped only
//! after a normal end, so a timeout or a crash leaves the previous state.

use std::{sync::Arc, time::Duration};

use bollard::container::LogOutput;
use futures_util::{FutureExt, StreamExt};
use sandbox::{Cause, Error, ExecOutput, ShellCommand, Status};
use tokio::{
    io::AsyncWriteExt,
    sync::oneshot,
    time::{Instant, sleep_until},
};

use crate::{
    config::STATE_DIR,
    exec::{Console, Poll, Running, status},
    failure::during,
    keeper::Relay,
    names,
    process::{deadline_after, until},
    sandbox_impl::Inner,
    sentinel::{Sentinel, State, Trailer},
};

const RELAY: &str = include_str!("scripts/relay.sh");
const SCRIPT: &str = include_str!("scripts/shell.sh");
/// If a command has ended but its output stays open, the output counts as complete after this long without a byte.
const QUIET: Duration = Duration::from_millis(300);

/// Which slot holds the state.
#[derive(Default)]
pub(crate) struct ShellState {
    loaded: Option<usize>,
}

const SLOTS: [&str; 2] = ["a", "b"];

/// Evaluates a command. If the caller is cancelled the command is stopped, and the state stays as it was.
pub(crate) async fn run(
    inner: Arc<Inner>,
    command: ShellCommand,
    abandoned: oneshot::Receiver<()>,
) -> Result<ExecOutput, Error> {
    let mut state = inner.shell.lock().await;
    let counted = inner.begin_command().await?;
    let save = state.loaded.map_or(0, |slot| 1 - slot);
    let load = state.loaded.map_or("-", |slot| SLOTS[slot]);
    let name = names::unique();
    let (argv, relay) = match inner.programs.relay {
        Relay::Tee => (inner.bash(["-s"]), format!("nice=({})\n{RELAY}", inner.nice().join(" "))),
        Relay::None => (inner.command(["-s"]), String::new()),
    };
    let start = inner.start(argv, &[], Console::Pipes);
    let mut running = inner.within("a command to start", inner.patience(), start).await?;
    let header = format!("{relay}{SCRIPT}{name} {STATE_DIR} {load} {}\n", SLOTS[save]);

    let mut watch = Watch {
        inner: &inner,
        out: Sentinel::new(&name, command.cap),
        err: Sentinel::new(&name, command.cap),
    };
    let script = [header.as_bytes(), &command.script].concat();
    let deadline = deadline_after(command.timeout);
    let end = watch.follow(&mut running, script, deadline, abandoned).await?;
    if matches!(end, End::TimedOut) {
        watch.stop(&mut running).await?;
    }
    let Watch { out, err, .. } = watch;
    let duration = running.mark.started.elapsed();
    let mut shell_lost = false;
    let status = match end {
        End::TimedOut => Status::TimedOut,
        End::Reported(trailer) => {
            shell_lost = trailer.state == State::Lost;
            if trailer.state != State::Unsaved {
                state.loaded = Some(save);
            }
            Status::Exited(trailer.code)
        }
        End::Exited => status(inner.exit_code(&running.exec).await?),
    };
    let met = inner.cause(status, counted.as_ref()).await?;
    let cause = if status == Status::TimedOut { Some(Cause::Timeout) } else { met };
    let (stdout, stderr) = (out.finish(), err.finish());
    Ok(ExecOutput { stdout, stderr, status, cause, duration, shell_lost })
}

/// How a command ended.
enum End {
    /// The script evaluated it and reported the result.
    Reported(Trailer),
    /// The shell itself ended, by `exit`, `exec` or a signal, without a report.
    Exited,
    /// It reached its time limit, or the caller was cancelled.
    TimedOut,
}

struct Watch<'a> {
    inner: &'a Arc<Inner>,
    out: Sentinel,
    err: Sentinel,
}

impl Watch<'_> {
    /// Sends the script and captures the output until the command ends or its time limit is reached.
    async fn follow(
        &mut self,
        running: &mut Running,
        script: Vec<u8>,
        deadline: Option<Instant>,
        mut abandoned: oneshot::Receiver<()>,
    ) -> Result<End, Error> {
        let Running { exec, output, input, .. } = running;
        let mut sending = std::pin::pin!(
            async {
                // A shell that ends before it has read everything is not an error.
                let _ = input.write_all(&script).await;
                let _ = input.shutdown().await;
            }
            .fuse()
        );
        let (mut poll, mut process) = (Poll::new(), ProcessSeen::Running);
        let mut next = poll.next();
        loop {
            if let (Some(trailer), Some(_)) = (self.out.trailer(), self.err.trailer()) {
                return Ok(End::Reported(trailer.clone()));
            }
            tokio::select! {
                piece = output.next() => match piece {
                    Some(piece) => {
                        self.take(piece)?;
                        if process == ProcessSeen::Ended {
                            next = Instant::now() + QUIET;
                        }
                    }
                    None => return Ok(End::Exited),
                },
                () = &mut sending => {}
                () = until(deadline) => return Ok(End::TimedOut),
                _ = &mut abandoned => return Ok(End::TimedOut),
                () = sleep_until(next) => {
                    if process == ProcessSeen::Ended {
                        return Ok(End::Exited);
                    }
                    next = poll.next();
                    if self.inner.ended(exec).await?.is_some() {
                        process = ProcessSeen::Ended;
                        next = Instant::now() + QUIET;
                    }
                }
            }
        }
    }

    /// Stops the command and captures its remaining output.
    async fn stop(&mut self, running: &mut Running) -> Result<(), Error> {
        let Running { mark, output, .. } = running;
        let mut stopping = std::pin::pin!(self.inner.stop(mark).fuse());
        let mut last_call = None;
        loop {
            tokio::select! {
                stopped = &mut stopping => {
                    stopped?;
                    last_call = Some(Instant::now() + QUIET);
                }
                piece = output.next() => match piece {
                    Some(piece) => self.take(piece)?,
                    None if last_call.is_some() => return Ok(()),
                    None => return stopping.await,
                },
                () = sleep_until(last_call.unwrap_or_else(Instant::now)), if last_call.is_some() => {
                    return Ok(());
                }
            }
        }
    }

    fn take(&mut self, piece: Result<LogOutput, bollard::errors::Error>) -> Result<(), Error> {
        match piece.map_err(during("reading a command's output"))? {
            LogOutput::StdErr { message } => self.err.push(&message),
            other => self.out.push(other.as_ref()),
        }
        Ok(())
    }
}

/// What the daemon reported about a command's own process.
#[derive(PartialEq)]
enum ProcessSeen {
    Running,
    Ended,
}
