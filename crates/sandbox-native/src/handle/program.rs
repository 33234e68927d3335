//! Programs that run apart from the shell, with the caller's streams or in a terminal.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, OwnedFd},
    time::{Duration, Instant},
};

use sandbox::{Control, Error, Exit, Input, Process, Streams};
use tokio::sync::oneshot;

use super::{Command, NativeSandbox, joined, pipe_pair};
use crate::{
    init::{Ending, Task},
    pump::{self, Terminal},
};

/// How long to wait for output after its program has ended.
const OUTPUT_GRACE: Duration = Duration::from_millis(50);

impl NativeSandbox {
    /// Runs a program, and controls it while it runs.
    pub(crate) async fn run_program(
        &self,
        process: &Process,
        streams: Streams,
        control: Control,
    ) -> Result<Exit, Error> {
        process.validate()?;
        let deadline = |begun: Instant| begun.checked_add(process.timeout?);
        let terminal = match &streams {
            Streams::Terminal { size, .. } => Some(*size.borrow()),
            Streams::Pipes { .. } => None,
        };
        let task = Task::Program {
            argv: process.argv.clone(),
            env: process.env.clone(),
            workdir: process.workdir.as_ref().map(|dir| self.inside(dir).as_path().into()),
            terminal,
            user: control.user,
        };
        let accompany = |command: &mut Command<'_>, signals, started: Option<_>| {
            command.signals = signals;
            if let Some(started) = started {
                let _ = oneshot::Sender::send(started, command.pid);
            }
        };
        let (started, signals) = (control.started, control.signals);
        let (begun, ending) = match streams {
            Streams::Terminal { input, output, size } => {
                let (mut call, fds) = self.start(task, &[]).await?;
                let begun = call.begun;
                accompany(&mut call, signals, started);
                let fd = fds.into_iter().next().ok_or_else(|| self.gone())?;
                let deadline = deadline(begun);
                (begun, self.run_in_terminal(&mut call, fd, (input, output), size, deadline).await?)
            }
            Streams::Pipes { stdin, stdout, stderr } => {
                let (child_in, feeder) = match stdin {
                    Some(input) => {
                        let (reading, writing) = pipe_pair()?;
                        (reading, Some(tokio::spawn(pump::feed(input, writing))))
                    }
                    None => (
                        File::open("/dev/null").map_err(Error::io("opening /dev/null"))?.into(),
                        None,
                    ),
                };
                let (out, child_out) = pipe_pair()?;
                let (err, child_err) = pipe_pair()?;
                let child = [child_in.as_fd(), child_out.as_fd(), child_err.as_fd()];
                let (mut call, _) = self.start(task, &child).await?;
                let begun = call.begun;
                accompany(&mut call, signals, started);
                drop((child_in, child_out, child_err));
                let (out_ended, ended) = oneshot::channel();
                let out = tokio::spawn(pump::forward(out, stdout, ended));
                let (err_ended, ended) = oneshot::channel();
                let err = tokio::spawn(pump::forward(err, stderr, ended));
                let ending = self.ending(&mut call, deadline(begun)).await;
                drop((out_ended, err_ended));
                if let Some(feeder) = feeder {
                    feeder.abort();
                }
                let (out, err) = tokio::join!(joined(out), joined(err));
                let ending = ending?;
                out.and(err).or_else(unless_closed)?;
                (begun, ending)
            }
        };
        Ok(Exit { status: ending.status, cause: ending.cause, duration: begun.elapsed() })
    }

    async fn run_in_terminal(
        &self,
        command: &mut Command<'_>,
        terminal: OwnedFd,
        (input, output): (Input, sandbox::Output),
        mut size: tokio::sync::watch::Receiver<sandbox::TerminalSize>,
        deadline: Option<Instant>,
    ) -> Result<Ending, Error> {
        let terminal = Terminal::new(terminal).map_err(Error::io("opening the terminal"))?;
        let mut show = std::pin::pin!(terminal.show(output));
        let mut shown = false;
        let talk = async {
            let resize = async {
                loop {
                    let now = *size.borrow_and_update();
                    let _ = terminal.resize(now);
                    if size.changed().await.is_err() {
                        return std::future::pending::<()>().await;
                    }
                }
            };
            let _ = tokio::join!(terminal.type_in(input), resize);
        };
        let ending = tokio::select! {
            ending = self.ending(command, deadline) => ending,
            _ = async {
                let _ = show.as_mut().await;
                shown = true;
                std::future::pending::<()>().await
            } => Err(self.gone()),
            () = talk => Err(self.gone()),
        };
        if !shown {
            let _ = tokio::time::timeout(OUTPUT_GRACE, show).await;
        }
        ending
    }
}

/// A reader that closes a program's output early is not an error.
fn unless_closed(error: io::Error) -> Result<(), Error> {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(Error::Io { what: "forwarding the program's output".into(), source: error }),
    }
}
