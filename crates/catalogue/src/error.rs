//! The errors of the store, as one enum over the parts that fail.

use std::{fmt, io, path::PathBuf};

use error_text::one_line;
use hub::{PartialError, Sha256Hex};

use crate::{entry::CatalogueError, pull::SourceKind, wheel::WheelError, wheels::PackageError};

/// A model could not be downloaded, found or removed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The list has no such model.
    #[error("there is no model `{name}`; the known models are {known}")]
    Unknown {
        /// The requested name, shortened.
        name: String,
        /// The names of the list.
        known: String,
    },
    /// The model is known but not stored.
    #[error("the model `{name}` is not on this machine; pull it first")]
    Missing {
        /// The model.
        name: String,
    },
    /// Another process works on the model.
    #[error("another process is fetching the model `{name}`; wait for it or stop it")]
    Busy {
        /// The model.
        name: String,
    },
    /// The stored file has the wrong content.
    #[error("{path} is damaged: its sha256 is {found} instead of {expected}; pull the model again")]
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
        "{path} has {free} bytes free, the model needs {needed}; free some space, or store models elsewhere"
    )]
    NoSpace {
        /// The directory of the model.
        path: PathBuf,
        /// Bytes free there.
        free: u64,
        /// Bytes needed.
        needed: u64,
    },
    /// No source delivered the file.
    #[error("cannot get the model `{name}`: {}", all(tried))]
    Pull {
        /// The model.
        name: String,
        /// Each source that was tried and why it failed.
        tried: Vec<Failure>,
    },
    /// Neither the store nor the program has the content of an adapter.
    #[error(
        "the adapter of the model `{name}` with sha256 {sha256} is neither stored nor part of this program; it belongs to \
         another version"
    )]
    NoAdapter {
        /// The model.
        name: String,
        /// The hash of the adapter.
        sha256: Sha256Hex,
    },
    /// The content of an adapter that was given to the store has another hash than the list says.
    #[error("the adapter `{name}` of this program has the sha256 {found} instead of {expected}")]
    WrongAdapter {
        /// The adapter.
        name: String,
        /// The hash of the list.
        expected: Sha256Hex,
        /// The hash it has.
        found: Sha256Hex,
    },
    /// The list of models is invalid.
    #[error("bad list of models")]
    Catalogue(#[from] CatalogueError),
    /// A file system operation failed.
    #[error("{what}")]
    Io {
        /// The operation, as `cannot ...`.
        what: String,
        /// The system's error.
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
        matches!(self, Self::Unknown { .. } | Self::Missing { .. } | Self::NoAdapter { .. })
    }
}

/// A source that did not deliver the file.
#[derive(Debug)]
pub struct Failure {
    /// The source.
    pub source: SourceKind,
    /// Why it failed.
    pub error: FetchError,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.source, one_line(&self.error))
    }
}

/// Why one source did not deliver the file.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The hub failed.
    #[error(transparent)]
    Hub(#[from] hub::Error),
    /// The packages failed.
    #[error(transparent)]
    Packages(#[from] PackageError),
    /// The file has the wrong content, or could not be written.
    #[error(transparent)]
    Partial(#[from] PartialError),
}

impl FetchError {
    /// Separates failures to write our own file, which no other source can help with.
    pub(crate) fn into_write_error(self) -> Result<io::Error, Self> {
        match self {
            Self::Hub(hub::Error::Partial(PartialError::Io(source)))
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

fn all(tried: &[Failure]) -> String {
    if tried.is_empty() {
        return "none of its sources is enabled".into();
    }
    tried.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
