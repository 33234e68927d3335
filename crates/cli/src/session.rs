//! One sandbox from its making to its end, with one program in it. Whatever happens, it is removed.
//!
//! Knows neither how arguments are written nor how results are shown.

use std::path::{Path, PathBuf};

use sandbox::{
    Cause, CopyReport, Error, Process, Protection, Runtime, Sandbox, Skipped, Status, Streams,
};
use serde::Serialize;

use crate::{
    exit::{self, Exit},
    interrupt::Interrupts,
    output,
    request::Request,
    runtime::{AnyRuntime, AnySandbox},
    settings::Settings,
};

/// What came of it.
pub(crate) enum Session {
    /// The program ran to an end.
    Ended(Box<Ended>),
    /// A signal broke it off.
    Cancelled(Exit),
}

/// A program that ran to an end.
pub(crate) struct Ended {
    pub(crate) end: sandbox::Exit,
    pub(crate) protection: Protection,
    pub(crate) copied_in: Vec<Copied>,
    pub(crate) copied_out: Vec<Copied>,
    /// Why something could not be copied out.
    pub(crate) trouble: Option<Error>,
}

/// One tree that was copied.
#[derive(Debug, Serialize)]
pub(crate) struct Copied {
    from: PathBuf,
    to: PathBuf,
    files: u64,
    bytes: u64,
    skipped: Vec<Skipped>,
    error: Option<String>,
}

impl Copied {
    fn new(from: &Path, to: &Path, report: &Result<CopyReport, Error>) -> Self {
        let (report, error) = match report {
            Ok(report) => (report.clone(), None),
            Err(error) => (CopyReport::default(), Some(error.to_string())),
        };
        let CopyReport { files, bytes, skipped } = report;
        Self { from: from.to_owned(), to: to.to_owned(), files, bytes, skipped, error }
    }
}

/// Makes a sandbox, runs the program in it, removes it.
pub(crate) async fn hold(
    request: &Request,
    process: &Process,
    streams: Streams,
    settings: &Settings,
    interrupts: &mut Interrupts,
) -> anyhow::Result<Session> {
    let make = async {
        let runtime = AnyRuntime::start(request.computer.runtime, settings).await?;
        let sandbox = runtime.create(&request.computer.spec).await?;
        anyhow::Ok((runtime, sandbox))
    };
    let (_runtime, sandbox) = tokio::select! {
        made = make => made?,
        exit = interrupts.cancelled() => return Ok(Session::Cancelled(exit)),
    };
    let ended = tokio::select! {
        ended = within(&sandbox, request, process, streams) => {
            ended.map(|ended| Session::Ended(Box::new(ended))).map_err(Into::into)
        }
        exit = interrupts.cancelled() => Ok(Session::Cancelled(exit)),
    };
    if let Err(error) = sandbox.destroy().await {
        let line = exit::line(&error.into());
        output::note(&format!(
            "the sandbox may not be gone: {line}; see `llm-in-sandbox sandbox list`"
        ));
    }
    ended
}

async fn within(
    sandbox: &AnySandbox,
    request: &Request,
    process: &Process,
    streams: Streams,
) -> Result<Ended, Error> {
    let protection = sandbox.protection().clone();
    request.computer.accept(&protection)?;
    let mut copied_in = Vec::new();
    for pair in &request.copy_in {
        let report = sandbox.copy_in(&pair.host, &pair.inside).await;
        copied_in.push(Copied::new(&pair.host, &pair.inside, &report));
        tell_skipped(&report?);
    }
    let end = sandbox.process(process, streams).await?;
    let mut copied_out = Vec::new();
    let mut trouble = None;
    for pair in &request.copy_out {
        let report = sandbox.copy_out(&pair.inside, &pair.host).await;
        copied_out.push(Copied::new(&pair.inside, &pair.host, &report));
        match report {
            Ok(report) => tell_skipped(&report),
            // The others may still come out.
            Err(error) => trouble = trouble.or(Some(error)),
        }
    }
    Ok(Ended { end, protection, copied_in, copied_out, trouble })
}

pub(crate) fn tell_skipped(report: &CopyReport) {
    for Skipped { path, why } in report.skipped.iter().take(TOLD) {
        output::note(&format!("not copied: {}: {why}", path.display()));
    }
    if let Some(more) = report.skipped.len().checked_sub(TOLD + 1) {
        output::note(&format!("not copied: {} more", more + 1));
    }
}

/// A sandbox may hold any number of files that cannot be copied.
const TOLD: usize = 20;

impl Ended {
    /// How to end after this program, with a line on standard error for each limit it ran into.
    pub(crate) fn conclude(self, request: &Request) -> anyhow::Result<Exit> {
        if let Some(line) = limit_line(&self.end, request) {
            output::note(&line);
        }
        let exit = match (self.end.status, self.end.cause) {
            (Status::TimedOut, _) => Exit::TimedOut,
            (status, Some(Cause::Oom)) if !status.success() => Exit::OutOfMemory,
            (status, _) => Exit::Command(status.code()),
        };
        match self.trouble {
            Some(error) if exit == Exit::Command(0) => {
                Err(anyhow::Error::from(error).context("cannot copy out"))
            }
            // The program's own failure comes first and may be the reason.
            Some(error) => {
                exit::report(&anyhow::Error::from(error).context("cannot copy out"));
                Ok(exit)
            }
            None => Ok(exit),
        }
    }
}

/// What a program that ran into a limit is told about it.
fn limit_line(end: &sandbox::Exit, request: &Request) -> Option<String> {
    let limits = &request.computer.spec.limits;
    let (what, limit, option) = match (end.status, end.cause?) {
        (Status::TimedOut, _) | (_, Cause::Timeout) => {
            let time = request.timeout.map(|time| format!("{}s", time.as_secs_f64()));
            ("time", time, "--timeout")
        }
        (_, Cause::Oom) => ("memory", limits.memory.map(|m| m.to_string()), "--memory"),
        (_, Cause::Pids) => ("processes", limits.pids.map(|p| p.to_string()), "--pids"),
        (_, Cause::Disk) => ("disk space", limits.disk.map(|d| d.to_string()), "--disk"),
    };
    let limit = limit.map_or_else(|| "the machine's limit".into(), |l| format!("its limit of {l}"));
    Some(format!("out of {what}: the sandbox reached {limit}; allow more with {option}"))
}
