//! How this program ends: one enum, one code each, and which error means which.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::error::ErrorKind;
use rollout::PlayError;
use training::{ConfigError, DataError, RunError, SetupError, TrainError};
use trajectory::is_hidden;
use vocabulary::VocabularyError;

/// How this program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// All is done.
    Done,
    /// The input is at fault.
    Usage,
    /// The machine is at fault.
    Infrastructure,
    /// A signal stopped us; the run can go on.
    Stopped(i32),
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Done => 0,
            Exit::Usage => 2,
            Exit::Infrastructure => 4,
            Exit::Stopped(signal) => 128 + signal as u8,
        })
    }
}

/// The input is at fault, in words for the user.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// What an error means for the caller.
fn of(error: &anyhow::Error) -> Exit {
    let usage = error.chain().any(|cause| {
        cause.is::<Usage>()
            || cause.is::<ConfigError>()
            || cause.is::<DataError>()
            || cause.downcast_ref().is_some_and(is_bad_vocabulary)
            || cause.downcast_ref().is_some_and(is_bad_input)
    });
    if usage { Exit::Usage } else { Exit::Infrastructure }
}

fn is_bad_vocabulary(error: &VocabularyError) -> bool {
    !matches!(error, VocabularyError::Write { .. })
}

/// Whether a run fails for what it was given.
fn is_bad_input(error: &TrainError) -> bool {
    match error {
        TrainError::Data(_)
        | TrainError::Recorded(_)
        | TrainError::Speech(_)
        | TrainError::Nothing(_)
        | TrainError::Foreign { .. }
        | TrainError::Memory(_) => true,
        TrainError::Setup(error) => matches!(
            error,
            SetupError::Device { .. }
                | SetupError::Cuda { .. }
                | SetupError::Load(_)
                | SetupError::Lora(_)
        ),
        TrainError::Run(RunError::File { source, .. }) => is_bad_path(source),
        TrainError::Run(error) => matches!(
            error,
            RunError::Differs { .. } | RunError::Busy { .. } | RunError::Config { .. }
        ),
        TrainError::Play(error) => matches!(
            error,
            PlayError::Grader { .. } | PlayError::NoRuntime | PlayError::NoSandboxes { .. }
        ),
        _ => false,
    }
}

/// Whether the path is at fault rather than the disk.
fn is_bad_path(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::AlreadyExists
            | io::ErrorKind::PermissionDenied
    )
}

/// Tells the user about an error, in one line; answers how to end.
pub(crate) fn report(error: &anyhow::Error) -> Exit {
    let mut parts: Vec<String> = Vec::new();
    for cause in error.chain() {
        let part = without_frames(&cause.to_string());
        // Some errors stand for their source and say the same.
        if !parts.last().is_some_and(|last| last.ends_with(&part)) {
            parts.push(part);
        }
    }
    note(&format!("error: {}", parts.join(": ")));
    of(error)
}

/// In one line, and without the list of C++ functions that libtorch adds.
fn without_frames(text: &str) -> String {
    let text = text.split("Exception raised from").next().unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Characters of a line that people are told.
const LONGEST: usize = 4000;

/// Writes a line to standard error, marked as ours, with nothing in it that cannot be seen. A closed standard error is
/// no reason to fail.
pub(crate) fn note(text: &str) {
    let mut shown: String =
        text.chars().take(LONGEST + 1).map(|c| if is_hidden(c) { ' ' } else { c }).collect();
    if let Some((end, _)) = shown.char_indices().nth(LONGEST) {
        shown.truncate(end);
        shown.push('…');
    }
    let _ = writeln!(std::io::stderr(), "llm-in-sandbox-train: {shown}");
}

/// Shows help and versions as they are, and what is wrong with arguments in short.
pub(crate) fn refuse_arguments(error: &clap::Error) -> Exit {
    // A reader that has seen enough is fine.
    let _ = error.print();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Exit::Done,
        _ => Exit::Usage,
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use anyhow::Context;
    use training::MemoryError;

    use super::*;

    fn file(kind: io::ErrorKind) -> TrainError {
        let (path, source) = (PathBuf::from("run/config.json"), kind.into());
        RunError::File { doing: "read", path, source }.into()
    }

    #[test]
    fn what_libtorch_says_is_shown_without_its_frames() {
        let said = "CUDA out of memory. Tried to\n  allocate 2 GiB.\nException raised from malloc at x.cpp:1 \
                    (most recent call first):\nframe #0: c10::Error";
        assert_eq!(without_frames(said), "CUDA out of memory. Tried to allocate 2 GiB.");
        assert_eq!(without_frames("no frames"), "no frames");
    }

    #[test]
    fn what_the_user_gave_is_told_from_what_the_machine_did() {
        let (run, path) = (PathBuf::from("run"), PathBuf::from("tokenizer.json"));
        let words = || "x".to_owned();
        let source = serde_json::from_str::<()>("x").unwrap_err();
        let foreign =
            TrainError::Foreign { run: run.clone(), key: "model", its: words(), ours: words() };
        let usage: Vec<anyhow::Error> = vec![
            Usage(words()).into(),
            file(io::ErrorKind::NotFound).into(),
            file(io::ErrorKind::NotADirectory).into(),
            TrainError::from(RunError::Config { path: run, source }).into(),
            foreign.into(),
            TrainError::from(MemoryError::Missing(words())).into(),
            TrainError::Play(PlayError::Grader { task: words(), grader: "a judge" }).into(),
            TrainError::Play(PlayError::NoRuntime).into(),
            TrainError::Play(PlayError::NoSandboxes { task: words() }).into(),
            VocabularyError::Missing { path: path.clone() }.into(),
        ];
        for error in usage {
            assert_eq!(of(&error), Exit::Usage, "{error:?}");
            let within = Err::<(), _>(error).context("somewhere").unwrap_err();
            assert_eq!(of(&within), Exit::Usage, "{within:?}");
        }
        let source = io::ErrorKind::StorageFull.into();
        let machine: Vec<anyhow::Error> = vec![
            file(io::ErrorKind::StorageFull).into(),
            TrainError::Play(PlayError::NothingPlayed { episodes: 1, cause: words() }).into(),
            VocabularyError::Write { path, source }.into(),
            anyhow::anyhow!("anything else"),
        ];
        for error in machine {
            assert_eq!(of(&error), Exit::Infrastructure, "{error:?}");
        }
    }
}
