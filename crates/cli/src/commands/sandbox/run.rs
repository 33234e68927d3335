//! `sandbox run`: runs a command in a new sandbox; its streams are passed through, or captured for `--json`.

use std::time::Duration;

use sandbox::{
    CaptureBuffer, Captured, Cause, OutputCap, Process, Protection, RefusedConnections, Status,
    Streams,
};
use serde::Serialize;
use startup::Signals;

use super::{
    args::SandboxRunArgs,
    request::Request,
    session::{self, Copied, Ended, Session},
    streams,
};
use crate::{console::output, exit::Exit, settings::Settings};

/// The default time limit.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);

/// Runs the command.
pub(crate) async fn run(
    args: SandboxRunArgs,
    settings: &Settings,
    signals: &mut Signals,
) -> anyhow::Result<Exit> {
    let request = Request::check(args.sandbox, Some(DEFAULT_TIMEOUT))?.saved_as(args.save)?;
    let process = Process { timeout: request.timeout, ..Process::new(args.command) };
    process.validate()?;
    let captured = args.json.then(|| {
        (CaptureBuffer::new(OutputCap::default()), CaptureBuffer::new(OutputCap::default()))
    });
    let (stdout, stderr) = match &captured {
        Some((out, err)) => (out.writer(), err.writer()),
        None => (streams::output()?, streams::errors()?),
    };
    let streams = Streams::Pipes { stdin: streams::input(), stdout, stderr };
    let ended = match session::run(&request, &process, streams, settings, signals).await? {
        Session::Ended(ended) => ended,
        Session::Cancelled(exit) => return Ok(exit),
    };
    if let Some((out, err)) = &captured {
        output::print_json(&Report::new(&ended, out, err))?;
    }
    ended.conclude(&request)
}

/// The object `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    status: Status,
    /// As a shell would report it.
    exit_code: i32,
    cause: Option<Cause>,
    duration_ms: f64,
    stdout: Text,
    stderr: Text,
    copied: Copies<'a>,
    /// The image that the files became.
    saved: Option<&'a str>,
    protection: &'a Protection,
    /// What the network policy refused.
    refused_connections: &'a [RefusedConnections],
}

#[derive(Serialize)]
struct Copies<'a> {
    r#in: &'a [Copied],
    out: &'a [Copied],
}

/// Output of a command. The middle of a long one is replaced by a line.
#[derive(Serialize)]
pub(super) struct Text {
    text: String,
    bytes: u64,
    omitted: u64,
}

impl Text {
    fn of(kept: &CaptureBuffer) -> Self {
        Self::captured(&kept.take())
    }

    pub(super) fn captured(captured: &Captured) -> Self {
        let text = captured.text().into_owned();
        Self { text, bytes: captured.total, omitted: captured.omitted() }
    }
}

impl<'a> Report<'a> {
    fn new(ended: &'a Ended, out: &CaptureBuffer, err: &CaptureBuffer) -> Self {
        Self {
            status: ended.end.status,
            exit_code: ended.end.status.code(),
            cause: ended.end.cause,
            duration_ms: ended.end.duration.as_secs_f64() * 1e3,
            stdout: Text::of(out),
            stderr: Text::of(err),
            copied: Copies { r#in: &ended.copied_in, out: &ended.copied_out },
            saved: ended.saved.as_deref(),
            protection: &ended.protection,
            refused_connections: &ended.refused,
        }
    }
}
