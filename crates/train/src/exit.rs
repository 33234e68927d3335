//! How this program ends: one enum, one code each, and which error means which.

use std::{io::Write, process::ExitCode};

use clap::error::ErrorKind;
use training::{ConfigError, DataError, RunError, SetupError, TrainError};

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
        let train = cause.downcast_ref::<TrainError>();
        let setup = matches!(
            train,
            Some(TrainError::Setup(
                SetupError::Device { .. }
                    | SetupError::Cuda { .. }
                    | SetupError::Load(_)
                    | SetupError::Lora(_)
            ))
        );
        let run = matches!(
            train,
            Some(TrainError::Run(RunError::Differs { .. } | RunError::Busy { .. }))
        );
        let data = matches!(
            train,
            Some(
                TrainError::Data(_)
                    | TrainError::Recorded(_)
                    | TrainError::Speech(_)
                    | TrainError::Nothing(_)
            )
        );
        setup
            || run
            || data
            || cause.is::<ConfigError>()
            || cause.is::<DataError>()
            || cause.is::<Usage>()
    });
    if usage { Exit::Usage } else { Exit::Infrastructure }
}

/// Tells the user about an error, in one line; answers how to end.
pub(crate) fn report(error: &anyhow::Error) -> Exit {
    let mut parts: Vec<String> = Vec::new();
    for cause in error.chain() {
        let part = cause.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        // Some errors stand for their source and say the same.
        if !parts.last().is_some_and(|last| last.ends_with(&part)) {
            parts.push(part);
        }
    }
    note(&format!("error: {}", parts.join(": ")));
    of(error)
}

/// Writes a line to standard error, marked as ours. A closed standard error is no reason to fail.
pub(crate) fn note(text: &str) {
    let shown: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
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
