//! What can go wrong with the infrastructure. A failing command is never one of these.

use std::{io, path::PathBuf};

use crate::{ImageRef, SpecError};

/// The sandbox could not be made or used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The specification cannot work anywhere.
    #[error("bad sandbox specification")]
    Spec(#[source] SpecError),
    /// The image does not exist.
    #[error("there is no image `{image}`; {remedy}")]
    UnknownImage {
        /// What was asked for.
        image: ImageRef,
        /// What to do about it.
        remedy: String,
    },
    /// The request itself is malformed, for instance a command with a NUL byte.
    #[error("{0}")]
    BadRequest(String),
    /// A path inside the sandbox or on the host that does not fit the operation.
    #[error("{path}: {why}")]
    Path {
        /// The path as the caller gave it.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// This machine or runtime cannot do what was asked.
    #[error("{what} is not possible here: {why}; {remedy}")]
    Unsupported {
        /// What was asked for.
        what: String,
        /// What is missing.
        why: String,
        /// What to do about it.
        remedy: String,
    },
    /// The sandbox is gone: destroyed, killed from outside, or its machine is.
    #[error("the sandbox is gone: {0}")]
    Gone(String),
    /// An operation of the operating system failed.
    #[error("{what}")]
    Io {
        /// What was being done.
        what: String,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The runtime's own service failed.
    #[error("{what}")]
    Service {
        /// What was being done.
        what: String,
        /// The service's answer.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Error {
    /// An [`Error::Io`], made where the context is known: `.map_err(Error::io("reading x"))`.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// Whether the caller's input is at fault, rather than the machine.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Spec(_) | Self::UnknownImage { .. } | Self::BadRequest(_) | Self::Path { .. }
        )
    }
}

impl From<SpecError> for Error {
    fn from(error: SpecError) -> Self {
        Self::Spec(error)
    }
}
