//! Infrastructure and request errors. A failing command is never one of these: it is an
//! [`ExecOutput`](crate::ExecOutput).

use std::{error::Error as StdError, fmt, io, path::PathBuf, time::Duration};

use crate::{DiskQuota, ImageRef, Network, SpecError, Status};

/// The sandbox could not be created or used.
///
/// `Display` is one fragment that does not repeat its source; print the whole chain. Variants carry what a caller
/// needs to decide or to advise; none names an option of a command line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The specification cannot work on any runtime.
    #[error("bad sandbox specification")]
    Spec(#[source] SpecError),
    /// The image does not exist.
    #[error("there is no image `{image}`: {reason}")]
    UnknownImage {
        /// The image of the specification.
        image: ImageRef,
        /// Where the runtime looked for it.
        reason: UnknownImage,
    },
    /// The request itself is malformed, for example a command with a NUL byte.
    #[error(transparent)]
    BadRequest(#[from] RequestError),
    /// A path inside the sandbox does not fit the operation.
    #[error("{path}")]
    Path {
        /// The path as the caller gave it.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: io::Error,
    },
    /// A path on the host does not fit the operation.
    #[error("{path}")]
    HostPath {
        /// The path as the caller gave it.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: io::Error,
    },
    /// This runtime cannot do what was requested.
    #[error("{feature} is not possible here: {reason}; {remedy}")]
    Unsupported {
        /// What was requested.
        feature: Feature,
        /// What is missing.
        reason: String,
        /// What to do about it.
        remedy: String,
    },
    /// This machine does not let the calling user create sandboxes.
    #[error("this machine does not allow native sandboxes: {what}")]
    Denied {
        /// The step that was denied.
        what: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// No daemon answers where one was expected.
    #[error("no daemon answers at {address}")]
    NoDaemon {
        /// The address that was tried.
        address: String,
        /// The client's error.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
    /// The sandbox is gone: destroyed, killed from outside, or its runtime has ended. The text is a diagnosis for
    /// people.
    #[error("the sandbox is gone: {0}")]
    Gone(String),
    /// The sandbox was stopped and is gone, because the machine's disk is nearly full: not a fault of what ran in it.
    #[error("the sandbox was stopped: {0}")]
    HostFull(String),
    /// The sandbox made no progress for too long. It is broken, and gone or about to be.
    #[error("the sandbox made no progress for {}: waited for {waiting_for}", seconds(limit))]
    Stalled {
        /// What was waited for.
        waiting_for: String,
        /// For how long.
        limit: Duration,
    },
    /// A program that has to succeed for the sandbox to be usable failed.
    #[error("`{command}` failed in the sandbox with exit code {}", status.code())]
    Command {
        /// The program and its arguments.
        command: String,
        /// How it ended.
        status: Status,
    },
    /// An operation of the operating system failed.
    #[error("{what}")]
    Io {
        /// What was being done.
        what: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// A service the runtime depends on failed: a daemon, or the image store.
    #[error("{what}")]
    Service {
        /// What was being done.
        what: String,
        /// The service's error.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
}

/// A duration for people, in seconds.
fn seconds(time: &Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

/// Why an image was not found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownImage {
    /// The image is a directory that does not exist.
    #[error("the directory does not exist")]
    NoDirectory,
    /// The image is a directory without a root file system.
    #[error("the directory is not a root file system: it has neither `bin` nor `usr`")]
    NotARootFileSystem,
    /// The runtime's image store has no image of this name.
    #[error("the image store does not have it")]
    NotInStore,
    /// The daemon has no image of this name.
    #[error("the daemon does not have it; fetch it with `docker pull`, or see `docker images`")]
    NotAtDaemon,
}

/// Why a request is malformed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The command has a NUL byte.
    #[error(
        "the command has a NUL byte at offset {offset}, which a shell cannot hold; \
         write it as an escape, for instance printf '\\0'"
    )]
    NulInCommand {
        /// Its offset in bytes.
        offset: usize,
    },
    /// The command is too long.
    #[error(
        "the command has {bytes} bytes, more than the {limit} a shell takes; \
         write the data to a file first"
    )]
    CommandTooLong {
        /// Its length.
        bytes: usize,
        /// The longest that is accepted.
        limit: usize,
    },
    /// The argument list of a process is empty, or its program is.
    #[error("there is no program to run")]
    NoProgram,
    /// An argument of a process has a NUL byte.
    #[error("an argument holds a NUL byte")]
    NulInArgument,
    /// The name of a snapshot is not an image name.
    #[error("`{0}` is not the name of an image; write it as name or name:tag")]
    ImageName(String),
    /// The image store or the daemon rejected the name of a snapshot.
    #[error("the image cannot be saved: {message}")]
    SnapshotRejected {
        /// The daemon's message.
        message: String,
    },
}

/// What a runtime could not do.
#[derive(Clone, Debug, PartialEq)]
pub enum Feature {
    /// A sandbox of any kind.
    Sandbox,
    /// The native runtime.
    NativeRuntime,
    /// A sandbox from this image.
    Image(ImageRef),
    /// This network policy.
    Network(Network),
    /// This way to enforce the disk limit.
    DiskQuota(DiskQuota),
    /// [`Sandbox::freeze`](crate::Sandbox::freeze).
    Freeze,
    /// Enforcing every requested layer of protection.
    FullProtection,
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sandbox => f.write_str("a sandbox"),
            Self::NativeRuntime => f.write_str("the native runtime"),
            Self::Image(image) => write!(f, "a sandbox from the image `{image}`"),
            Self::Network(network) => write!(f, "the network policy `{network}`"),
            Self::DiskQuota(quota) => write!(f, "the disk quota `{quota}`"),
            Self::Freeze => f.write_str("making a sandbox's files read-only"),
            Self::FullProtection => f.write_str("full protection"),
        }
    }
}

impl Error {
    /// Returns a constructor of [`Error::Io`] for use in `map_err`: `.map_err(Error::io("reading x"))`.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// This error and its sources, outermost first, separated by colons.
    pub fn chain(&self) -> String {
        error_text::chain(self)
    }

    /// Whether the sandbox does not exist any more.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Gone(_) | Self::HostFull(_) | Self::Stalled { .. })
    }

    /// Whether the caller's input is at fault, rather than the machine. Repeating the request is then no use.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Spec(_)
                | Self::UnknownImage { .. }
                | Self::BadRequest(_)
                | Self::Path { .. }
                | Self::HostPath { .. }
        )
    }
}

impl From<SpecError> for Error {
    fn from(error: SpecError) -> Self {
        Self::Spec(error)
    }
}
