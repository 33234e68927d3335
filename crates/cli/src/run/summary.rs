//! What came of a run, for people and for programs.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
};

use sandbox::Skipped;
use serde::Serialize;
use trajectory::{Ended, Outcome, Spent};

use super::{Show, computer::Brought, job::Job};
use crate::{
    console::{Mode, sanitize},
    exit::Exit,
    output::{self, OutputError},
};

/// No answer is longer; what is, belongs into a file of its own.
const LONGEST_ANSWER: u64 = 1 << 20;

/// What came of a run: `run.json`.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    #[serde(flatten)]
    outcome: Outcome,
    /// What `answer.txt` holds.
    answer: Option<String>,
    task: String,
    model: String,
    spent: Spent,
    /// The directory of the run.
    directory: String,
    /// What the model left, below `files`: the first of them, if there are very many.
    files: Vec<String>,
    /// How many files that are.
    file_count: usize,
    /// What could not be brought back, and why: likewise.
    skipped: Vec<Left>,
    /// Why nothing could be brought back.
    #[serde(skip_serializing_if = "Option::is_none")]
    trouble: Option<String>,
    program: &'static str,
}

/// A file that could not be brought back.
#[derive(Debug, Serialize)]
struct Left {
    path: String,
    why: String,
}

/// So many files are listed by name.
const LISTED: usize = 1000;

impl Summary {
    /// Looks at what is there.
    pub(crate) fn new(job: &Job, ended: Ended, brought: Brought) -> Self {
        let mut outcome = ended.outcome;
        let lost = brought.are_lost();
        let trouble = brought.trouble.map(|error| crate::exit::line(&error.into()));
        let told = matches!(outcome, Outcome::Cancelled | Outcome::Infrastructure { .. });
        if let Some(cause) = trouble.as_ref().filter(|_| lost && !told) {
            let cause = format!("cannot bring back the files: {cause}");
            outcome = Outcome::Infrastructure { cause };
        }
        let files = job.folder.files();
        // Where it cannot be made, nothing else can be written either, and that is told.
        let _ = fs::create_dir(&files);
        let mut found = Vec::new();
        list(&files, Path::new(""), &mut found);
        found.sort();
        Self {
            outcome,
            answer: answer(&files.join("answer.txt")),
            task: job.plan.task.clone(),
            model: job.plan.model.name.clone(),
            spent: ended.spent,
            directory: lossy(job.folder.path()),
            file_count: found.len(),
            files: found.iter().take(LISTED).map(|path| lossy(path)).collect(),
            skipped: brought.report.skipped.iter().take(LISTED).map(left).collect(),
            trouble,
            program: env!("CARGO_PKG_VERSION"),
        }
    }

    /// Tells the user.
    pub(crate) fn tell(&self, show: Show, mode: Mode) -> Result<(), OutputError> {
        if show == Show::Json {
            return output::print_json(self);
        }
        match (&self.outcome, mode) {
            // Elsewhere the view of the episode has said so.
            (Outcome::Submitted, _) | (_, Mode::Live | Mode::Plain) => {}
            (Outcome::Infrastructure { cause }, Mode::Quiet) => {
                output::note(&format!("error: {cause}"));
            }
            (outcome, Mode::Quiet) => output::note(&format!("ended as {outcome}")),
        }
        if mode != Mode::Quiet {
            if let Some(trouble) = &self.trouble {
                output::note(&format!("the model's files cannot be brought back: {trouble}"));
            }
            let dir = &self.directory;
            output::note(&match self.file_count {
                0 => format!("the model left no files; the record is in {dir}"),
                1 => format!("1 file and the record are in {dir}"),
                many => format!("{many} files and the record are in {dir}"),
            });
            if matches!(self.outcome, Outcome::Cancelled | Outcome::Infrastructure { .. }) {
                output::note(&format!("go on with: llm-in-sandbox run --resume {dir}"));
            }
        }
        match &self.answer {
            Some(answer) if !answer.is_empty() => output::print(&sanitize(answer)),
            _ => Ok(()),
        }
    }

    /// How the program ends.
    pub(crate) fn exit(&self) -> Exit {
        match self.outcome {
            Outcome::Submitted => Exit::Done,
            Outcome::Cancelled => Exit::Cancelled(2),
            Outcome::Infrastructure { .. } => Exit::Infrastructure,
            _ => Exit::NotSubmitted,
        }
    }
}

/// Names that are no UTF-8 must not keep a record from being written.
fn lossy(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn left(skipped: &Skipped) -> Left {
    Left { path: lossy(&skipped.path), why: skipped.why.clone() }
}

/// The answer as graders read it: lossy UTF-8 without colours and carriage returns, trimmed.
fn answer(path: &Path) -> Option<String> {
    // A link may have come back; an answer is a file.
    let meta = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file)?;
    let mut bytes = Vec::with_capacity(usize::try_from(meta.len().min(LONGEST_ANSWER)).ok()?);
    fs::File::open(path).ok()?.take(LONGEST_ANSWER).read_to_end(&mut bytes).ok()?;
    Some(clean(&String::from_utf8_lossy(&bytes)))
}

/// Without `ESC [ … m` and `\r`, trimmed.
fn clean(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("\u{1b}[") {
        let after = &rest[at + 2..];
        let digits =
            after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';').len();
        clean.push_str(&rest[..at]);
        rest = match after[digits..].strip_prefix('m') {
            Some(plain) => plain,
            None => {
                clean.push_str("\u{1b}[");
                after
            }
        };
    }
    clean.push_str(rest);
    clean.replace('\r', "").trim().to_owned()
}

fn list(root: &Path, below: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(root.join(below)).into_iter().flatten().flatten() {
        let path = below.join(entry.file_name());
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => list(root, &path, found),
            _ => found.push(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_as_graders_read_them() {
        assert_eq!(clean(" \u{1b}[1;31m42\u{1b}[0m\r\n"), "42");
        assert_eq!(clean("a\u{1b}[2Jb"), "a\u{1b}[2Jb");
        assert_eq!(clean("\u{1b}["), "\u{1b}[");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("answer.txt");
        assert_eq!(answer(&path), None);
        fs::write(&path, b"7\xff\n").unwrap();
        assert_eq!(answer(&path).unwrap(), "7\u{fffd}");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("/etc/passwd", &link).unwrap();
        assert_eq!(answer(&link), None);
    }
}
