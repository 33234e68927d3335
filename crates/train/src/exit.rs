//! Exit codes, and which error has which.

use std::io;

use rollout::RolloutError;
use startup::{Exit, UsageError, note};
use training::{ConfigError, ConnectError, DataError, RunError, SetupError, TrainError};
use vocabulary::VocabularyError;

/// The exit code of an error.
fn classify(error: &anyhow::Error) -> Exit {
    let usage = error.chain().any(|cause| {
        cause.is::<UsageError>()
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

/// Whether the input of the run is at fault.
fn is_bad_input(error: &TrainError) -> bool {
    match error {
        TrainError::Data(_)
        | TrainError::Recordings(_)
        | TrainError::Codec(_)
        | TrainError::NoData(_)
        | TrainError::IncompatibleRun { .. }
        | TrainError::OptimizerState(_) => true,
        TrainError::Setup(error) => matches!(
            error,
            SetupError::Device { .. }
                | SetupError::Cuda { .. }
                | SetupError::Load(_)
                | SetupError::LoraConfig(_)
                | SetupError::Adapter { .. }
        ),
        TrainError::Server(error) => {
            !matches!(error, ConnectError::Server(error) if error.is_transient())
        }
        TrainError::Run(RunError::File(error)) => is_bad_path(&error.source),
        TrainError::Run(error) => matches!(
            error,
            RunError::Differs { .. } | RunError::Busy { .. } | RunError::Config { .. }
        ),
        TrainError::Play(error) => matches!(
            error,
            RolloutError::Grader { .. }
                | RolloutError::NoRuntime
                | RolloutError::NoSandboxes { .. }
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

/// Prints an error with its causes on one line; returns the exit code.
pub(crate) fn report(error: &anyhow::Error) -> Exit {
    note(&format!("error: {}", startup::describe_with(error, without_frames)));
    classify(error)
}

/// The text without the C++ stack frames that libtorch adds.
fn without_frames(text: &str) -> &str {
    text.split("Exception raised from").next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use anyhow::Context;
    use training::{FileError, OptimizerStateError};

    use super::*;

    fn file(kind: io::ErrorKind) -> TrainError {
        let (path, source) = (PathBuf::from("run/config.json"), kind.into());
        RunError::from(FileError { action: "read", path, source }).into()
    }

    #[test]
    fn libtorch_errors_are_shown_without_stack_frames() {
        let said = "CUDA out of memory. Tried to\n  allocate 2 GiB.\nException raised from malloc at x.cpp:1 \
                    (most recent call first):\nframe #0: c10::Error";
        let error = anyhow::anyhow!(said);
        let shown = startup::describe_with(&error, without_frames);
        assert_eq!(shown, "CUDA out of memory. Tried to allocate 2 GiB.");
        assert_eq!(without_frames("no frames"), "no frames");
    }

    #[test]
    fn invalid_input_is_distinguished_from_failures() {
        let (run, path) = (PathBuf::from("run"), PathBuf::from("tokenizer.json"));
        let words = || "x".to_owned();
        let source = serde_json::from_str::<()>("x").unwrap_err();
        let foreign = TrainError::IncompatibleRun {
            run: run.clone(),
            key: "model",
            its: words(),
            ours: words(),
        };
        let usage: Vec<anyhow::Error> = vec![
            UsageError(words()).into(),
            file(io::ErrorKind::NotFound).into(),
            file(io::ErrorKind::NotADirectory).into(),
            TrainError::from(RunError::Config { path: run, source }).into(),
            foreign.into(),
            TrainError::from(OptimizerStateError::Missing(words())).into(),
            TrainError::Play(RolloutError::Grader { task: words(), grader: "a judge" }).into(),
            TrainError::Play(RolloutError::NoRuntime).into(),
            TrainError::Play(RolloutError::NoSandboxes { task: words() }).into(),
            VocabularyError::Missing { path: path.clone() }.into(),
        ];
        for error in usage {
            assert_eq!(classify(&error), Exit::Usage, "{error:?}");
            let within = Err::<(), _>(error).context("somewhere").unwrap_err();
            assert_eq!(classify(&within), Exit::Usage, "{within:?}");
        }
        let source = io::ErrorKind::StorageFull.into();
        let machine: Vec<anyhow::Error> = vec![
            file(io::ErrorKind::StorageFull).into(),
            TrainError::Play(RolloutError::AllFailed { episodes: 1, cause: words() }).into(),
            VocabularyError::Write { path, source }.into(),
            anyhow::anyhow!("anything else"),
        ];
        for error in machine {
            assert_eq!(classify(&error), Exit::Infrastructure, "{error:?}");
        }
    }
}
