//! Runs one program in a new sandbox, which is always removed.

use std::path::{Path, PathBuf};

use sandbox::{
    Cause, CopyReport, Error, Process, Protection, RefusedConnections, Runtime, Sandbox, Skipped,
    Status, Streams, lossy_path, lossy_paths,
};
use serde::Serialize;
use startup::Signals;

use super::{refused::refused_line, request::Request};
use crate::{
    console::output,
    exit::{self, Exit},
    runtime::{self, AnySandbox},
    settings::Settings,
};

/// The result of a session.
pub(crate) enum Session {
    /// The program ended.
    Ended(Box<Ended>),
    /// A signal cancelled it.
    Cancelled(Exit),
}

/// A program that ended.
pub(crate) struct Ended {
    pub(crate) end: sandbox::Exit,
    pub(crate) protection: Protection,
    pub(crate) copied_in: Vec<Copied>,
    pub(crate) copied_out: Vec<Copied>,
    /// The first failure to copy out.
    pub(crate) copy_error: Option<Error>,
    /// The image that the files became.
    pub(crate) saved: Option<String>,
    /// The failure to save it.
    save_error: Option<Error>,
    pub(crate) refused: Vec<RefusedConnections>,
}

/// A file or directory that was copied.
#[derive(Debug, Serialize)]
pub(crate) struct Copied {
    #[serde(serialize_with = "lossy_path")]
    from: PathBuf,
    #[serde(serialize_with = "lossy_path")]
    to: PathBuf,
    files: u64,
    bytes: u64,
    /// At most 1,000.
    skipped: Vec<Skipped>,
    /// The number of others.
    #[serde(skip_serializing_if = "is_zero")]
    more_skipped: u64,
    /// Links that were copied without what they lead to, at most 1,000.
    #[serde(serialize_with = "lossy_paths")]
    outward_links: Vec<PathBuf>,
    /// The number of others.
    #[serde(skip_serializing_if = "is_zero")]
    more_outward_links: u64,
    error: Option<String>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Copied {
    fn new(from: &Path, to: &Path, report: &Result<CopyReport, Error>) -> Self {
        let (report, error) = match report {
            Ok(report) => (report.clone(), None),
            Err(error) => (CopyReport::default(), Some(error.chain())),
        };
        let CopyReport { files, bytes, skipped, more_skipped, outward_links, more_outward_links } =
            report;
        Self {
            from: from.to_owned(),
            to: to.to_owned(),
            files,
            bytes,
            skipped,
            more_skipped,
            outward_links,
            more_outward_links,
            error,
        }
    }
}

/// Creates a sandbox, runs the program in it and removes the sandbox.
pub(crate) async fn run(
    request: &Request,
    process: &Process,
    streams: Streams,
    settings: &Settings,
    signals: &mut Signals,
) -> anyhow::Result<Session> {
    let creating = async {
        let runtime = runtime::start(request.sandbox.runtime, settings).await?;
        let sandbox = runtime.create(&request.sandbox.spec).await?;
        anyhow::Ok((runtime, sandbox))
    };
    let (_runtime, sandbox) = tokio::select! {
        created = creating => created?,
        exit = signals.cancelled() => return Ok(Session::Cancelled(exit)),
    };
    let ended = tokio::select! {
        ended = run_in(&sandbox, request, process, streams) => {
            ended.map(|ended| Session::Ended(Box::new(ended))).map_err(Into::into)
        }
        exit = signals.cancelled() => Ok(Session::Cancelled(exit)),
    };
    if let Err(error) = sandbox.destroy().await {
        let line = exit::describe(&error.into());
        output::note(&format!(
            "the sandbox may not have been removed: {line}; see `llm-in-sandbox sandbox list`"
        ));
    }
    ended
}

async fn run_in(
    sandbox: &AnySandbox,
    request: &Request,
    process: &Process,
    streams: Streams,
) -> Result<Ended, Error> {
    let protection = sandbox.protection().clone();
    request.sandbox.accept(&protection)?;
    let mut copied_in = Vec::new();
    for pair in &request.copy_in {
        let report = sandbox.copy_in(&pair.host, &pair.inside).await;
        copied_in.push(Copied::new(&pair.host, &pair.inside, &report));
        report_skipped(&report?);
    }
    let end = sandbox.process(process, streams).await?;
    let mut copied_out = Vec::new();
    let mut copy_error = None;
    for pair in &request.copy_out {
        let report = sandbox.copy_out(&pair.inside, &pair.host).await;
        copied_out.push(Copied::new(&pair.inside, &pair.host, &report));
        match report {
            Ok(report) => report_skipped(&report),
            // Copy the others nevertheless.
            Err(error) => copy_error = copy_error.or(Some(error)),
        }
    }
    let (saved, save_error) = match &request.save {
        Some(name) if end.status.success() => match sandbox.snapshot(name).await {
            Ok(()) => (Some(name.clone()), None),
            Err(error) => (None, Some(error)),
        },
        _ => (None, None),
    };
    let refused = sandbox.refused_connections();
    Ok(Ended { end, protection, copied_in, copied_out, copy_error, saved, save_error, refused })
}

/// Reports files that were not copied, and links that lead to such files.
pub(crate) fn report_skipped(report: &CopyReport) {
    for Skipped { path, why } in report.skipped.iter().take(MAX_SHOWN) {
        output::note(&format!("not copied: {}: {why}", path.display()));
    }
    let shown = report.skipped.len().min(MAX_SHOWN) as u64;
    match report.skipped_count() - shown {
        0 => {}
        more => output::note(&format!("not copied: {more} more")),
    }
    if let Some(first) = report.outward_links.first() {
        let others = match report.outward_link_count() {
            1 => String::new(),
            links => format!(" and {} more", links - 1),
        };
        output::note(&format!(
            "links that lead out of the copied directory were copied without what they lead to: {}{others}",
            first.display()
        ));
    }
}

/// Skipped files that are shown one by one.
const MAX_SHOWN: usize = 20;

impl Ended {
    /// Prints the limit the program reached and what the network policy refused; returns how to end.
    pub(crate) fn conclude(self, request: &Request) -> anyhow::Result<Exit> {
        if let Some(line) = limit_line(&self.end, request) {
            output::note(&line);
        }
        if let Some(line) = refused_line(&self.refused, &request.sandbox.spec.network) {
            output::note(&line);
        }
        let exit = match (self.end.status, self.end.cause) {
            (Status::TimedOut, _) => Exit::TimedOut,
            (status, Some(Cause::Oom)) if !status.success() => Exit::OutOfMemory,
            (status, _) => Exit::Command(status.code()),
        };
        if let Some(error) = self.save_error {
            return Err(anyhow::Error::from(error).context("cannot save the image"));
        }
        match (&self.saved, &request.save) {
            (Some(name), _) => output::note(&format!("saved the image {name}")),
            (None, Some(name)) => {
                output::note(&format!("the image {name} was not saved: the command failed"));
            }
            (None, None) => {}
        }
        match self.copy_error {
            Some(error) if exit == Exit::Command(0) => {
                Err(anyhow::Error::from(error).context("cannot copy out"))
            }
            // The program's failure takes precedence: it may be the reason.
            Some(error) => {
                exit::report(&anyhow::Error::from(error).context("cannot copy out"));
                Ok(exit)
            }
            None => Ok(exit),
        }
    }
}

/// The message about a limit the program reached.
fn limit_line(end: &sandbox::Exit, request: &Request) -> Option<String> {
    let limits = &request.sandbox.spec.limits;
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
