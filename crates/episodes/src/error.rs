//! [`Error`].

use std::{io, path::PathBuf};

use crate::State;

/// Why an operation on episodes failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no episode of this id.
    #[error("there is no episode `{0}`")]
    NotFound(String),
    /// The episode has no such file.
    #[error("the episode has no file `{path}`: {why}")]
    NoFile {
        /// The path, as requested.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// No model of this name is served.
    #[error("the model `{name}` is not served; served are: {served}")]
    UnknownModel {
        /// The requested name.
        name: String,
        /// The names of the served models.
        served: String,
    },
    /// The request makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// The episode is not in a state in which this can be done.
    #[error("the episode is {state}: {why}")]
    State {
        /// Its state.
        state: State,
        /// What would be needed.
        why: &'static str,
    },
    /// The files after this turn are not kept.
    #[error(
        "the files after turn {turn} were not kept; kept are those after {kept}; start the episode with every turn kept"
    )]
    NotKept {
        /// The requested turn.
        turn: u32,
        /// The turns that can be chosen.
        kept: String,
    },
    /// Another process uses the directory.
    #[error("another server is using {}", .0.display())]
    InUse(PathBuf),
    /// A file could not be read or written.
    #[error("{what}")]
    Storage {
        /// What failed.
        what: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// No further episode can be kept.
    #[error("this server keeps at most {0} episodes; remove some")]
    TooMany(usize),
    /// The server ends.
    #[error("the server is shutting down")]
    Closing,
}

impl Error {
    /// Names what failed.
    pub(crate) fn storage(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        |source| Self::Storage { what, source }
    }

    /// The error and its causes, in one line.
    pub fn chain(&self) -> String {
        error_text::chain(self)
    }

    /// Whether the disk is full.
    pub fn is_full(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        matches!(self, Self::Storage { source, .. } if matches!(source.kind(), QuotaExceeded | StorageFull))
    }
}
