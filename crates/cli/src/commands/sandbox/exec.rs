//! `sandbox exec`: runs a command in a named sandbox.

use std::{
    io::{self, IsTerminal, Write},
    time::Duration,
};

use sandbox::{
    CaptureBuffer, Captured, Cause, OutputCap, Process, RefusedConnections, ShellCommand, Status,
    Streams,
};
use serde::Serialize;

use super::{
    args::named::SandboxExecArgs, refused::refused_line, run::Text, shell::attach_terminal,
    streams, supervise::supervisor_of,
};
use crate::{
    console::{output, terminal},
    exit::{Exit, UsageError},
    settings::{Settings, sandbox::values},
};

/// Stands for no time limit.
const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// Runs the command.
pub(crate) async fn run(args: SandboxExecArgs, settings: &Settings) -> anyhow::Result<Exit> {
    let timeout = args.timeout.and_then(|limit| limit.0);
    if args.shell {
        return evaluate(&args, timeout, settings).await;
    }
    let mut process = Process {
        env: values(args.env)?,
        workdir: args.cwd,
        timeout,
        ..Process::new(args.command)
    };
    process.validate()?;
    if args.tty && !terminal::is_interactive() {
        let text = "--tty: standard input and output are not a terminal; omit it";
        return Err(UsageError(text.into()).into());
    }
    let supervisor = supervisor_of(&args.name, settings).await?;
    let captured = args.json.then(|| [(); 2].map(|()| CaptureBuffer::new(OutputCap::default())));
    let end = if args.tty {
        let (streams, _raw) = attach_terminal(&mut process, settings)?;
        supervisor.exec(&args.name, &process, streams).await?
    } else {
        let stdin = if io::stdin().is_terminal() { None } else { streams::input() };
        let (stdout, stderr) = match &captured {
            Some([out, err]) => (out.writer(), err.writer()),
            None => (streams::output()?, streams::errors()?),
        };
        let streams = Streams::Pipes { stdin, stdout, stderr };
        supervisor.exec(&args.name, &process, streams).await?
    };
    if let Some([out, err]) = &captured {
        output::print_json(&Report {
            status: end.exit.status,
            exit_code: end.exit.status.code(),
            cause: end.exit.cause,
            duration_ms: end.exit.duration.as_secs_f64() * 1e3,
            stdout: Text::captured(&out.take()),
            stderr: Text::captured(&err.take()),
            shell_lost: None,
            refused_connections: &end.refused,
        })?;
    }
    if let Some(line) = refused_line(&end.refused, &end.network) {
        let when = if line.contains("--network") { " when you create the sandbox" } else { "" };
        output::note(&format!("{line}{when}"));
    }
    Ok(conclude(end.exit.status, end.exit.cause, timeout))
}

/// Evaluates the command in the sandbox's shell.
async fn evaluate(
    args: &SandboxExecArgs,
    timeout: Option<Duration>,
    settings: &Settings,
) -> anyhow::Result<Exit> {
    let script = args.command.join(" ");
    let command = ShellCommand::new(script).timeout(timeout.unwrap_or(NEVER));
    command.validate()?;
    let supervisor = supervisor_of(&args.name, settings).await?;
    let done = supervisor.shell(&args.name, &command).await?;
    if args.json {
        output::print_json(&Report {
            status: done.status,
            exit_code: done.status.code(),
            cause: done.cause,
            duration_ms: done.duration.as_secs_f64() * 1e3,
            stdout: Text::captured(&done.stdout),
            stderr: Text::captured(&done.stderr),
            shell_lost: Some(done.shell_lost),
            refused_connections: &[],
        })?;
        return Ok(conclude(done.status, done.cause, timeout));
    }
    forward(&mut io::stdout(), &done.stdout)?;
    forward(&mut io::stderr(), &done.stderr)?;
    if done.shell_lost {
        output::note("the shell ended; the next command starts with a new one");
    }
    Ok(conclude(done.status, done.cause, timeout))
}

/// The object `--json` prints: that of `sandbox run`, without what concerns a new sandbox.
#[derive(Serialize)]
struct Report<'a> {
    status: Status,
    /// As a shell would report it.
    exit_code: i32,
    cause: Option<Cause>,
    duration_ms: f64,
    stdout: Text,
    stderr: Text,
    /// Whether the next command with `--shell` starts with a new shell.
    #[serde(skip_serializing_if = "Option::is_none")]
    shell_lost: Option<bool>,
    /// What the network policy refused.
    refused_connections: &'a [RefusedConnections],
}

/// Writes captured output as it is, and how much of it is missing.
fn forward(to: &mut impl Write, captured: &Captured) -> anyhow::Result<()> {
    let mut write = |bytes: &[u8]| match to.write_all(bytes).and_then(|()| to.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    };
    write(&captured.head)?;
    if captured.omitted() > 0 {
        output::note(&format!("{} bytes of output omitted; omit --shell", captured.omitted()));
    }
    Ok(write(&captured.tail)?)
}

/// Prints the limit a command reached; returns how to end.
fn conclude(status: Status, cause: Option<Cause>, timeout: Option<Duration>) -> Exit {
    let limit = match (status, cause) {
        (Status::TimedOut, _) | (_, Some(Cause::Timeout)) => {
            let time = timeout.map_or(String::new(), |time| format!(" of {}s", time.as_secs_f64()));
            Some(format!(
                "out of time: the command reached its limit{time}; allow more with --timeout"
            ))
        }
        (_, Some(Cause::Oom)) => Some(advice("memory", "--memory")),
        (_, Some(Cause::Pids)) => Some(advice("processes", "--pids")),
        (_, Some(Cause::Disk)) => Some(advice("disk space", "--disk")),
        (_, None) => None,
    };
    if let Some(line) = limit {
        output::note(&line);
    }
    match (status, cause) {
        (Status::TimedOut, _) => Exit::TimedOut,
        (status, Some(Cause::Oom)) if !status.success() => Exit::OutOfMemory,
        (status, _) => Exit::Command(status.code()),
    }
}

fn advice(what: &str, option: &str) -> String {
    format!("out of {what}: the sandbox reached its limit; create one with more by {option}")
}
