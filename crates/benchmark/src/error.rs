//! Why a run cannot start or continue. A failed attempt is not one of these.

use std::{fmt, io, path::PathBuf};

use serde_json::Value;

/// A run cannot start or continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The run's directory cannot be used.
    #[error("cannot store the results")]
    Results(#[source] results::Error),
    /// The events of an attempt cannot be written.
    #[error("cannot write the events of an attempt")]
    Events(#[source] io::Error),
    /// The directory holds attempts that were made with other settings.
    #[error("{path} holds attempts made with other settings: {}", listed(differences))]
    SettingsDiffer {
        /// The directory.
        path: PathBuf,
        /// The version of the program that started the run.
        program: String,
        /// What differs; never empty.
        differences: Vec<Difference>,
    },
    /// The run would have very many attempts, which a directory of somebody else may request.
    #[error(
        "the run in {path} would have {attempts} attempts, and the most is {most}; repeat problems less often, or choose \
         another directory if this one is not yours"
    )]
    TooManyAttempts {
        /// The directory.
        path: PathBuf,
        /// How many attempts were requested, in all modes and by all commands.
        attempts: usize,
        /// How many are allowed.
        most: usize,
    },
    /// Answers are to be graded again, and there are none.
    #[error("cannot grade again: {path} has no attempts")]
    NothingToGrade {
        /// The directory.
        path: PathBuf,
    },
    /// Answers to a task are to be graded again, and the run does not have the task.
    #[error("cannot grade again: the run in {path} has no task {task}")]
    TaskNotInRun {
        /// The directory.
        path: PathBuf,
        /// The task's name.
        task: String,
    },
}

/// A setting that differs from that of an earlier command.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The path to the setting: `model`, `tasks` with the task's name and `rows`, `prompts_and_limits`, `grader` or
    /// `grader_files`, `without`, `context`, `judge`, or `settings` with a path of the caller's own settings.
    pub setting: Vec<String>,
    /// Its recorded value; null where it is absent. Of rows, prompts and graders it is a digest.
    pub recorded: Value,
    /// The value requested now.
    pub requested: Value,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { setting, recorded, requested } = self;
        write!(f, "{} was {recorded}, now it is {requested}", setting.join("."))
    }
}

fn listed(differences: &[Difference]) -> String {
    differences.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl Error {
    /// Whether the caller's input is at fault, rather than the machine.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::SettingsDiffer { .. }
                | Self::TooManyAttempts { .. }
                | Self::NothingToGrade { .. }
                | Self::TaskNotInRun { .. }
                | Self::Results(results::Error::Locked { .. })
        )
    }
}
