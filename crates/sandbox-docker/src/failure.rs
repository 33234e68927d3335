//! The daemon's errors as errors of every runtime.
//!
//! The daemon distinguishes some failures only by their message. This is the one place that reads messages.

use std::io;

use bollard::errors::Error as Docker;
use sandbox::{Error, STALL_TIMEOUT};

use crate::deadline::DAEMON_SHARE;

/// Returns a constructor of the error for a failed request, for use in `map_err`.
pub(crate) fn during(what: impl Into<String>) -> impl FnOnce(Docker) -> Error {
    let what = what.into();
    move |error| match &error {
        Docker::DockerResponseServerError { status_code: 404 | 409, message }
            if message.contains("No such container") || message.contains("is not running") =>
        {
            Error::Gone(message.clone())
        }
        // The client's own limit, of requests that are not awaited with another.
        Docker::RequestTimeoutError => {
            let limit = DAEMON_SHARE * STALL_TIMEOUT;
            Error::Stalled { waiting_for: format!("the daemon: {what}"), limit }
        }
        _ => Error::Service { what, source: Box::new(error) },
    }
}

/// The status code of an answer, if there was one.
pub(crate) fn code(error: &Docker) -> Option<u16> {
    match error {
        Docker::DockerResponseServerError { status_code, .. } => Some(*status_code),
        _ => None,
    }
}

/// The daemon's message, if it sent one.
pub(crate) fn message(error: &Docker) -> Option<&str> {
    match error {
        Docker::DockerResponseServerError { message, .. } => Some(message),
        _ => None,
    }
}

/// Whether the other side dropped the connection without reading all that was sent to it.
pub(crate) fn is_reset(error: &Docker) -> bool {
    matches!(error, Docker::IOError { err } if err.kind() == io::ErrorKind::ConnectionReset)
}

fn mentions(error: &Docker, texts: &[&str]) -> bool {
    let message = message(error).unwrap_or_default().to_lowercase();
    texts.iter().any(|text| message.contains(text))
}

/// Whether the daemon does not have the image, or could not have one of such a name.
pub(crate) fn is_unknown_image(error: &Docker) -> bool {
    code(error) == Some(404) || mentions(error, &["invalid reference"])
}

/// Whether a container could not start because its image has no bash.
pub(crate) fn is_missing_bash(error: &Docker) -> bool {
    mentions(error, &["\"bash\""])
}

/// Whether the daemon's message mentions one of these texts.
pub(crate) fn is_about(error: &Error, texts: &[&str]) -> bool {
    let Error::Service { source, .. } = error else { return false };
    source.downcast_ref().is_some_and(|error| mentions(error, texts))
}

/// Whether an upload failed over what already exists at its destination.
pub(crate) fn is_about_destination(error: &Docker) -> bool {
    mentions(error, &["not a directory", "overwrite", "file exists", "name too long"])
}

/// The kind of the error that a program of the image printed.
pub(crate) fn kind_of(printed: &str) -> io::ErrorKind {
    match printed.contains("No space left on device") {
        true => io::ErrorKind::StorageFull,
        false => io::ErrorKind::Other,
    }
}
