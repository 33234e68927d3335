//! `sandbox shell`: an interactive shell in a new or named sandbox, or a script from standard input.

use sandbox::{Process, Streams};
use startup::{Signals, terminal::RawMode};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};

use super::{
    args::{
        SandboxShellArgs,
        named::{NamedCommand, SandboxExecArgs},
    },
    request::Request,
    run_named,
    session::{self, Session},
    streams,
};
use crate::{commands::until_cancelled, console::terminal, exit::Exit, settings::Settings};

/// Starts bash if the image has it, else sh.
const START_SHELL: [&str; 3] =
    ["sh", "-c", "command -v bash >/dev/null 2>&1 && exec bash; exec sh"];

/// Runs the shell.
pub(crate) async fn run(
    args: SandboxShellArgs,
    settings: &Settings,
    signals: &mut Signals,
) -> anyhow::Result<Exit> {
    if let Some(name) = args.name {
        let command = NamedCommand::Exec(SandboxExecArgs {
            tty: terminal::is_interactive(),
            ..SandboxExecArgs::new(name, START_SHELL)
        });
        return until_cancelled(run_named(command, settings), signals).await;
    }
    let request = Request::check(args.sandbox, None)?;
    let mut process = Process { timeout: request.timeout, ..Process::new(START_SHELL) };
    let session = if terminal::is_interactive() {
        let (streams, _raw) = attach_terminal(&mut process, settings)?;
        session::run(&request, &process, streams, settings, signals).await?
    } else {
        let (stdout, stderr) = (streams::output()?, streams::errors()?);
        let streams = Streams::Pipes { stdin: streams::input(), stdout, stderr };
        session::run(&request, &process, streams, settings, signals).await?
    };
    match session {
        Session::Ended(ended) => ended.conclude(&request),
        Session::Cancelled(exit) => Ok(exit),
    }
}

/// Connects a process to the user's terminal, which is in raw mode until the returned value is dropped.
pub(super) fn attach_terminal(
    process: &mut Process,
    settings: &Settings,
) -> anyhow::Result<(Streams, RawMode)> {
    let term = settings.term().unwrap_or("xterm").to_owned();
    process.env.push(("TERM".into(), term));
    let streams = Streams::Terminal {
        input: streams::input().ok_or_else(|| anyhow::anyhow!("cannot read the terminal"))?,
        output: streams::output()?,
        size: watch_size()?,
    };
    Ok((streams, RawMode::enter()?))
}

/// The size of the terminal, updated when it changes.
fn watch_size() -> anyhow::Result<watch::Receiver<sandbox::TerminalSize>> {
    let mut changes = signal(SignalKind::window_change())?;
    let (sender, size) = watch::channel(terminal::size());
    tokio::spawn(async move {
        while changes.recv().await.is_some() {
            sender.send_replace(terminal::size());
        }
    });
    Ok(size)
}
