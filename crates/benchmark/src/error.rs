//! Why a run cannot begin or go on. What fails in an attempt is not one of these.

use std::{io, path::PathBuf};

/// A run cannot begin or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The run's directory cannot be used.
    #[error("the results cannot be kept")]
    Results(#[source] results::Error),
    /// The events of an attempt cannot be written.
    #[error("cannot write the record {path}")]
    Record {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The directory holds a run that was asked differently.
    #[error(
        "{path} holds a run with other settings: {what} was {then}, now it is {now}; choose another \
         directory with --output, or ask as before"
    )]
    Differs {
        /// The directory.
        path: PathBuf,
        /// Which setting.
        what: String,
        /// What it was.
        then: String,
        /// What it is.
        now: String,
    },
}

impl Error {
    /// Whether the caller's input is at fault, rather than the machine.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Differs { .. } | Self::Results(results::Error::Locked { .. }))
    }
}

/// What went wrong and all its causes, on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut parts: Vec<String> = Vec::new();
    for cause in std::iter::successors(Some(error), |error| error.source()) {
        let part = cause.to_string();
        if !parts.last().is_some_and(|last| last.ends_with(&part)) {
            parts.push(part);
        }
    }
    parts.join(": ")
}
