//! The summary of a run, for people and for programs.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use agent::Limits;
use attempt::Collected;
use model::NO_KEY;
use sandbox::{Network, RefusedConnections, Skipped};
use serde::Serialize;
use trajectory::{Ended, Mode as EpisodeMode, Outcome, Spent};

use super::{PreparedRun, Show, limits, resume::is_resumable};
use crate::{
    commands::sandbox::refused_line,
    console::{
        Mode,
        output::{self, OutputError, shell_quoted},
    },
    outcome_text::{KnownLimits, outcome_text},
    remedy::GIVE_KEY,
};

/// The summary of a run: `run.json`.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    #[serde(flatten)]
    outcome: Outcome,
    /// The content of `answer.txt`.
    answer: Option<String>,
    task: String,
    model: String,
    /// The adapter of a local model: a name in `model list`, or a path.
    #[serde(skip_serializing_if = "Option::is_none")]
    adapter: Option<String>,
    spent: Spent,
    /// The directory of the run.
    directory: String,
    /// The collected files, relative to `files`: the first ones, if there are very many.
    files: Vec<String>,
    /// The number of collected files.
    file_count: usize,
    /// Files that could not be collected, and why: likewise.
    skipped: Vec<SkippedFile>,
    /// The number of files that could not be collected and are not listed.
    #[serde(skip_serializing_if = "is_zero")]
    more_skipped: u64,
    /// Why nothing could be collected.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(rename = "trouble")]
    error: Option<String>,
    program: &'static str,
    /// What the network policy refused.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refused_connections: Vec<RefusedConnections>,
    #[serde(skip)]
    limits: Limits,
    #[serde(skip)]
    network: Network,
}

/// A file that could not be collected.
#[derive(Debug, Serialize)]
struct SkippedFile {
    path: String,
    why: String,
}

/// Files that are listed by name.
const MAX_LISTED: usize = 1000;

impl Summary {
    /// Summarizes an episode and its collected files.
    pub(crate) fn new(
        run: &PreparedRun,
        ended: Ended,
        collected: Collected,
        refused_connections: Vec<RefusedConnections>,
    ) -> Self {
        let mut outcome = ended.outcome;
        let lost = collected.are_lost();
        let error = collected.error.map(|error| crate::exit::describe(&error.into()));
        let failed = matches!(outcome, Outcome::Cancelled | Outcome::Infrastructure { .. });
        if let Some(cause) = error.as_ref().filter(|_| lost && !failed) {
            let cause = format!("cannot collect the files: {cause}");
            outcome = Outcome::Infrastructure { cause, fault: trajectory::Fault::Sandbox };
        }
        let files = run.dir.files();
        // Where it cannot be created, nothing else can be written either, which is reported.
        let _ = fs::create_dir(&files);
        let mut found = Found::default();
        found.search(&files, Path::new(""));
        Self {
            outcome,
            answer: attempt::answer_of(&files.join("answer.txt")),
            task: run.settings.task.clone(),
            model: run.settings.model.name.clone(),
            adapter: run.settings.model.adapter().map(ToString::to_string),
            spent: ended.spent,
            directory: lossy(run.dir.path()),
            file_count: found.count,
            files: found.first.iter().map(|path| lossy(path)).collect(),
            skipped: collected.report.skipped.iter().map(skipped_file).collect(),
            more_skipped: collected.report.more_skipped,
            error,
            program: env!("CARGO_PKG_VERSION"),
            refused_connections,
            limits: run.settings.limits.clone(),
            network: run.settings.sandbox.spec.network.clone(),
        }
    }

    /// Whether the run can be resumed.
    pub(crate) fn is_resumable(&self) -> bool {
        is_resumable(&self.outcome)
    }

    /// Shows the summary.
    pub(crate) fn show(&self, show: Show, mode: Mode) -> Result<(), OutputError> {
        if show == Show::Json {
            return output::print_json(self);
        }
        match &self.outcome {
            // Otherwise the view of the episode has shown it.
            outcome if *outcome == Outcome::Submitted || mode != Mode::Quiet => {}
            Outcome::Infrastructure { cause, .. } => output::note(&format!("error: {cause}")),
            outcome => {
                let known = KnownLimits::from(&self.limits);
                let text = outcome_text(outcome, &known, EpisodeMode::Sandbox);
                output::note(&format!("the episode ended: {text}"));
            }
        }
        if mode != Mode::Quiet {
            if let Some(error) = &self.error {
                output::note(&format!("cannot collect the model's files: {error}"));
            }
            if matches!(&self.outcome, Outcome::Infrastructure { cause, .. } if cause.contains(NO_KEY))
            {
                output::note(&format!("to send a key, {GIVE_KEY}"));
            }
            if let Some(line) = refused_line(&self.refused_connections, &self.network) {
                output::note(&line);
            }
            let dir = &self.directory;
            output::note(&match self.file_count {
                0 => format!("the model left no files; the trajectory is in {dir}"),
                1 => format!("1 file and the trajectory are in {dir}"),
                many => format!("{many} files and the trajectory are in {dir}"),
            });
            if self.is_resumable() {
                let higher = limits::higher(&self.outcome, &self.limits);
                let higher = higher.map(|options| format!(" {options}")).unwrap_or_default();
                let dir = shell_quoted(dir);
                output::note(&format!("resume with: llm-in-sandbox run --resume {dir}{higher}"));
            }
        }
        match &self.answer {
            Some(answer) if !answer.is_empty() => output::print(answer),
            _ => Ok(()),
        }
    }

    pub(crate) fn outcome(&self) -> &Outcome {
        &self.outcome
    }
}

/// File names may not be UTF-8; the summary is written all the same.
fn lossy(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn skipped_file(skipped: &Skipped) -> SkippedFile {
    SkippedFile { path: lossy(&skipped.path), why: skipped.why.clone() }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The files below a directory: how many, and the first ones by name.
#[derive(Default)]
struct Found {
    count: usize,
    first: BTreeSet<PathBuf>,
}

impl Found {
    fn search(&mut self, root: &Path, below: &Path) {
        for entry in fs::read_dir(root.join(below)).into_iter().flatten().flatten() {
            let path = below.join(entry.file_name());
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => self.search(root, &path),
                _ => {
                    self.count += 1;
                    self.first.insert(path);
                    if self.first.len() > MAX_LISTED {
                        self.first.pop_last();
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_very_many_files_the_first_are_listed() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        for i in 0..MAX_LISTED + 50 {
            fs::write(dir.path().join(format!("f{i:05}")), "").unwrap();
        }
        fs::write(dir.path().join("a/b"), "").unwrap();
        let mut found = Found::default();
        found.search(dir.path(), Path::new(""));
        assert_eq!((found.count, found.first.len()), (MAX_LISTED + 51, MAX_LISTED));
        assert_eq!(found.first.first().unwrap(), Path::new("a/b"));
        assert_eq!(found.first.last().unwrap(), Path::new("f00998"));
    }
}
