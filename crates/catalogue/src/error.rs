//! What can go wrong with a stored or wanted model, as one enum over the parts that fail.

use std::{fmt, io, path::PathBuf};

use crate::{
    entry::{CatalogueError, Sha256Hex},
    hub::HubError,
    partial::PartialError,
    pull::SourceKind,
    wheel::WheelError,
    wheels::PackageError,
};

/// A model could not be had, found or removed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such model.
    #[error("there is no model `{name}`; known are {known}")]
    Unknown {
        /// What was asked for, shortened.
        name: String,
        /// The names there are.
        known: String,
    },
    /// The model is known but not here.
    #[error("the model `{name}` is not on this machine; pull it first")]
    Missing {
        /// The model.
        name: String,
    },
    /// Somebody else is at work on it.
    #[error("another process is fetching the model `{name}`; wait for it or end it")]
    Busy {
        /// The model.
        name: String,
    },
    /// The stored file is not the right one.
    #[error(
        "{path} is damaged: its sha256 should be {expected} and is {found}; pull the model again"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The hash it should have.
        expected: Sha256Hex,
        /// The hash it has.
        found: Sha256Hex,
    },
    /// There is not enough space.
    #[error(
        "{path} has {free} bytes free and the model needs {needed}; free some space, or keep models elsewhere"
    )]
    NoSpace {
        /// Where the model would lie.
        path: PathBuf,
        /// Bytes there.
        free: u64,
        /// Bytes wanted.
        needed: u64,
    },
    /// No source gave the file.
    #[error("cannot get the model `{name}`: {}", all(tried))]
    Pull {
        /// The model.
        name: String,
        /// Each source and what was wrong with it.
        tried: Vec<Failure>,
    },
    /// The list of models makes no sense.
    #[error("bad list of models")]
    Catalogue(#[from] CatalogueError),
    /// The file system said no.
    #[error("{what}")]
    Io {
        /// What was being done.
        what: String,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// Whether the caller's input is at fault, rather than the machine or the network.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Unknown { .. } | Self::Missing { .. })
    }
}

/// A source that did not give the file.
#[derive(Debug)]
pub struct Failure {
    /// The source.
    pub source: SourceKind,
    /// What was wrong.
    pub error: FetchError,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.source, chain(&self.error))
    }
}

/// Why one source did not give the file.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The hub did not.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// The packages did not.
    #[error(transparent)]
    Packages(#[from] PackageError),
    /// The file was not the right one, or could not be written.
    #[error(transparent)]
    Partial(#[from] PartialError),
}

impl FetchError {
    /// The trouble with our own file, if that was it: no other source can help then.
    pub(crate) fn into_own(self) -> Result<io::Error, Self> {
        match self {
            Self::Hub(HubError::Partial(PartialError::Io(source)))
            | Self::Packages(
                PackageError::Io { source, .. }
                | PackageError::Wheel {
                    source: WheelError::Partial(PartialError::Io(source)), ..
                },
            )
            | Self::Partial(PartialError::Io(source)) => Ok(source),
            other => Err(other),
        }
    }
}

/// An error with all its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let part = next.to_string();
        if !text.ends_with(&part) {
            text = format!("{text}: {part}");
        }
        cause = next.source();
    }
    text
}

fn all(tried: &[Failure]) -> String {
    if tried.is_empty() {
        return "none of its sources was to be tried".into();
    }
    tried.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
