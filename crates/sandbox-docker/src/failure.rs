//! What the daemon's refusals mean in the words every runtime shares.

use bollard::errors::Error as Docker;
use sandbox::Error;

/// The error for a failed request, made where the context is known.
pub(crate) fn during(what: impl Into<String>) -> impl FnOnce(Docker) -> Error {
    let what = what.into();
    move |error| match &error {
        Docker::DockerResponseServerError { status_code: 404 | 409, message }
            if message.contains("No such container") || message.contains("is not running") =>
        {
            Error::Gone(message.clone())
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

/// The daemon's own words, if it had any.
pub(crate) fn message(error: &Docker) -> Option<&str> {
    match error {
        Docker::DockerResponseServerError { message, .. } => Some(message),
        _ => None,
    }
}
