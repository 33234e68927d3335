//! `sandbox shell`: a person at a terminal in a fresh sandbox, or a script on standard input.

use sandbox::{Process, Streams};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};

use crate::{
    args::ShellArgs,
    exit::Exit,
    interrupt::Interrupts,
    request::Request,
    session::{self, Session},
    settings::Settings,
    streams,
    terminal::{self, RawMode},
};

/// The better shell, where the image has it.
const FIND_SHELL: &str = "command -v bash >/dev/null 2>&1 && exec bash; exec sh";

/// Runs the shell.
pub(crate) async fn run(
    args: ShellArgs,
    settings: &Settings,
    interrupts: &mut Interrupts,
) -> anyhow::Result<Exit> {
    let request = Request::check(args.sandbox, None)?;
    let mut process =
        Process { timeout: request.timeout, ..Process::new(["sh", "-c", FIND_SHELL]) };
    let session = if terminal::is_interactive() {
        let term = settings.term().unwrap_or("xterm").to_owned();
        process.env.push(("TERM".into(), term));
        let streams = Streams::Terminal {
            input: streams::input().ok_or_else(|| anyhow::anyhow!("cannot read the terminal"))?,
            output: streams::output()?,
            size: watch_size()?,
        };
        let _raw = RawMode::enter()?;
        session::hold(&request, &process, streams, settings, interrupts).await?
    } else {
        let (stdout, stderr) = (streams::output()?, streams::errors()?);
        let streams = Streams::Pipes { stdin: streams::input(), stdout, stderr };
        session::hold(&request, &process, streams, settings, interrupts).await?
    };
    match session {
        Session::Ended(ended) => ended.conclude(&request),
        Session::Cancelled(exit) => Ok(exit),
    }
}

/// The terminal's size, as it changes.
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
