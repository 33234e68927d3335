//! Errors of clients, and how failures travel from the supervisor to them.

use std::{io, path::PathBuf, time::Duration};

use sandbox::{ImageRef, UnknownImage};
use serde::{Deserialize, Serialize};

use crate::{Name, NameError, message::WirePath};

/// A lasting sandbox could not be created or used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A text is not the name of a sandbox.
    #[error(transparent)]
    Name(#[from] NameError),
    /// There is no sandbox of this name.
    #[error("there is no sandbox `{0}`")]
    Unknown(Name),
    /// There is a sandbox of this name already.
    #[error("there is already a sandbox `{0}`")]
    Exists(Name),
    /// The sandbox was removed while it was used.
    #[error("the sandbox `{0}` was removed meanwhile")]
    Removed(Name),
    /// The supervisor is of a version that this program does not understand.
    #[error(
        "your sandboxes ({sandboxes}) are kept by version {theirs} of this program (process {pid}), which version {ours} \
         cannot talk to"
    )]
    Version {
        /// Version of this program.
        ours: String,
        /// Version of the supervisor.
        theirs: String,
        /// Process id of the supervisor.
        pid: u32,
        /// Number of its sandboxes.
        sandboxes: usize,
    },
    /// The supervisor ended before it answered.
    #[error("the supervisor ended before it answered; its sandboxes are gone")]
    Ended,
    /// The supervisor, or one that is starting or ending, does not answer.
    #[error("the supervisor does not answer; see {}", log.display())]
    Silent {
        /// Its log.
        log: PathBuf,
    },
    /// The supervisor did not start.
    #[error("the supervisor did not start: {reason}")]
    NotStarted {
        /// Why.
        reason: String,
    },
    /// The supervisor's directory is not safe to use.
    #[error("{} is not safe to use: {reason}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The other side of a connection belongs to another user.
    #[error("{} is served by another user, with id {uid}", path.display())]
    Peer {
        /// The supervisor's directory.
        path: PathBuf,
        /// The user.
        uid: u32,
    },
    /// The request is malformed.
    #[error("{0}")]
    Rejected(String),
    /// The runtime failed.
    #[error(transparent)]
    Sandbox(#[from] sandbox::Error),
    /// An operation of the operating system failed, or the other side did not follow the protocol.
    #[error("{what}")]
    Io {
        /// What was being done.
        what: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// Returns a constructor of [`Error::Io`], for use in `map_err`.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// Whether the caller's input is at fault, rather than the machine.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Name(_) | Self::Unknown(_) | Self::Exists(_) | Self::Rejected(_) => true,
            Self::Sandbox(error) => error.is_usage(),
            _ => false,
        }
    }
}

/// A failure as it travels.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Failure {
    Unknown(Name),
    Exists(Name),
    Removed(Name),
    /// The supervisor is ending.
    Ending,
    Rejected(String),
    UnknownImage {
        image: ImageRef,
        reason: ImageReason,
    },
    Path {
        path: WirePath,
        error: SystemError,
    },
    HostPath {
        path: WirePath,
        error: SystemError,
    },
    Denied {
        what: String,
        error: SystemError,
    },
    Gone(String),
    HostFull(String),
    Stalled {
        waiting_for: String,
        limit: Duration,
    },
    Io {
        what: String,
        error: SystemError,
    },
}

/// [`UnknownImage`] as it travels.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ImageReason {
    NoDirectory,
    NotARootFileSystem,
    NotInStore,
    NotAtDaemon,
}

/// An [`io::Error`] as it travels.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SystemError {
    code: Option<i32>,
    text: String,
}

impl From<&io::Error> for SystemError {
    fn from(error: &io::Error) -> Self {
        Self { code: error.raw_os_error(), text: error_text::chain(error) }
    }
}

impl From<SystemError> for io::Error {
    fn from(error: SystemError) -> Self {
        match error.code {
            Some(code) => Self::from_raw_os_error(code),
            None => Self::other(error.text),
        }
    }
}

impl From<&sandbox::Error> for Failure {
    fn from(error: &sandbox::Error) -> Self {
        use sandbox::Error as E;
        match error {
            E::UnknownImage { image, reason } => {
                let reason = match reason {
                    UnknownImage::NoDirectory => ImageReason::NoDirectory,
                    UnknownImage::NotARootFileSystem => ImageReason::NotARootFileSystem,
                    UnknownImage::NotInStore => ImageReason::NotInStore,
                    UnknownImage::NotAtDaemon => ImageReason::NotAtDaemon,
                };
                Self::UnknownImage { image: image.clone(), reason }
            }
            E::Path { path, source } => {
                Self::Path { path: path.as_path().into(), error: source.into() }
            }
            E::HostPath { path, source } => {
                Self::HostPath { path: path.as_path().into(), error: source.into() }
            }
            E::Denied { what, source } => Self::Denied { what: what.clone(), error: source.into() },
            E::Io { what, source } => Self::Io { what: what.clone(), error: source.into() },
            E::Service { what, source } => {
                let error = SystemError { code: None, text: error_text::chain(&**source) };
                Self::Io { what: what.clone(), error }
            }
            E::Gone(why) => Self::Gone(why.clone()),
            E::HostFull(why) => Self::HostFull(why.clone()),
            E::Stalled { waiting_for, limit } => {
                Self::Stalled { waiting_for: waiting_for.clone(), limit: *limit }
            }
            other if other.is_usage() => Self::Rejected(other.chain()),
            other => {
                let error = SystemError { code: None, text: other.chain() };
                Self::Io { what: "using the sandbox".into(), error }
            }
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        use sandbox::Error as E;
        Self::Sandbox(match failure {
            Failure::Unknown(name) => return Self::Unknown(name),
            Failure::Exists(name) => return Self::Exists(name),
            Failure::Removed(name) => return Self::Removed(name),
            Failure::Ending => return Self::Ended,
            Failure::Rejected(text) => return Self::Rejected(text),
            Failure::UnknownImage { image, reason } => {
                let reason = match reason {
                    ImageReason::NoDirectory => UnknownImage::NoDirectory,
                    ImageReason::NotARootFileSystem => UnknownImage::NotARootFileSystem,
                    ImageReason::NotInStore => UnknownImage::NotInStore,
                    ImageReason::NotAtDaemon => UnknownImage::NotAtDaemon,
                };
                E::UnknownImage { image, reason }
            }
            Failure::Path { path, error } => E::Path { path: path.into(), source: error.into() },
            Failure::HostPath { path, error } => {
                E::HostPath { path: path.into(), source: error.into() }
            }
            Failure::Denied { what, error } => E::Denied { what, source: error.into() },
            Failure::Gone(why) => E::Gone(why),
            Failure::HostFull(why) => E::HostFull(why),
            Failure::Stalled { waiting_for, limit } => E::Stalled { waiting_for, limit },
            Failure::Io { what, error } => E::Io { what, source: error.into() },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_sandboxes_survive_the_journey() {
        use sandbox::Error as E;
        let missing = || io::Error::from_raw_os_error(2);
        let errors = [
            E::UnknownImage {
                image: ImageRef::Name("base".into()),
                reason: UnknownImage::NotInStore,
            },
            E::Path { path: "/x".into(), source: missing() },
            E::HostPath { path: "/y".into(), source: io::Error::other("odd") },
            E::Denied { what: "cloning".into(), source: missing() },
            E::Gone("killed".into()),
            E::HostFull("no space".into()),
            E::Io { what: "mounting".into(), source: missing() },
            E::Service { what: "saving".into(), source: "no space".into() },
            E::BadRequest(sandbox::RequestError::NoProgram),
        ];
        for error in errors {
            let text = serde_json::to_string(&Failure::from(&error)).unwrap();
            let arrived = Error::from(serde_json::from_str::<Failure>(&text).unwrap());
            assert_eq!(error_text::chain(&arrived), error.chain());
            assert_eq!(arrived.is_usage(), error.is_usage(), "{error}");
        }
    }
}
