//! `sandbox run`: one command in a fresh sandbox, its streams passed through or kept for a report.

use std::time::Duration;

use sandbox::{Cause, Kept, OutputCap, Process, Protection, Status, Streams};
use serde::Serialize;

use crate::{
    args::RunArgs,
    exit::Exit,
    interrupt::Interrupts,
    output,
    request::Request,
    session::{self, Copied, Ended, Session},
    settings::Settings,
    streams,
};

/// A command that was given no limit ends after this long.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Runs the command.
pub(crate) async fn run(
    args: RunArgs,
    settings: &Settings,
    interrupts: &mut Interrupts,
) -> anyhow::Result<Exit> {
    let request = Request::check(args.sandbox, Some(TIMEOUT))?;
    let process = Process { timeout: request.timeout, ..Process::new(args.command) };
    process.validate()?;
    let kept =
        args.json.then(|| (Kept::new(OutputCap::default()), Kept::new(OutputCap::default())));
    let (stdout, stderr) = match &kept {
        Some((out, err)) => (out.writer(), err.writer()),
        None => (streams::output()?, streams::errors()?),
    };
    let streams = Streams::Pipes { stdin: streams::input(), stdout, stderr };
    let ended = match session::hold(&request, &process, streams, settings, interrupts).await? {
        Session::Ended(ended) => ended,
        Session::Cancelled(exit) => return Ok(exit),
    };
    if let Some((out, err)) = &kept {
        output::print_json(&Report::new(&ended, out, err))?;
    }
    ended.conclude(&request)
}

/// The object `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    status: Status,
    /// What a shell would report.
    exit_code: i32,
    cause: Option<Cause>,
    duration_ms: f64,
    stdout: Text,
    stderr: Text,
    copied: Copies<'a>,
    protection: &'a Protection,
}

#[derive(Serialize)]
struct Copies<'a> {
    r#in: &'a [Copied],
    out: &'a [Copied],
}

/// Output of a command. A line marks where the middle of a long one was left out.
#[derive(Serialize)]
struct Text {
    text: String,
    bytes: u64,
    omitted: u64,
}

impl Text {
    fn of(kept: &Kept) -> Self {
        let captured = kept.take();
        let text = captured.text().into_owned();
        Self { text, bytes: captured.total, omitted: captured.omitted() }
    }
}

impl<'a> Report<'a> {
    fn new(ended: &'a Ended, out: &Kept, err: &Kept) -> Self {
        Self {
            status: ended.end.status,
            exit_code: ended.end.status.code(),
            cause: ended.end.cause,
            duration_ms: ended.end.duration.as_secs_f64() * 1e3,
            stdout: Text::of(out),
            stderr: Text::of(err),
            copied: Copies { r#in: &ended.copied_in, out: &ended.copied_out },
            protection: &ended.protection,
        }
    }
}
