//! What can go wrong, and the exceptions it becomes. The classes are those of `llm_in_sandbox.errors`.

use std::io;

use pyo3::{exceptions::PyRuntimeError, prelude::*};
use sandbox::Error;

/// A failed operation.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The sandbox or its runtime failed.
    Sandbox(Error),
    /// An exception of a class of `llm_in_sandbox.errors`, with its message.
    Raise(&'static str, String),
    /// An exception that is raised already.
    Python(PyErr),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Sandbox(error)
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl Failure {
    /// The arguments of a call are wrong.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::Raise("UsageError", message.into())
    }

    /// The sandbox does not exist any more.
    pub(crate) fn closed(message: impl Into<String>) -> Self {
        Self::Raise("SandboxClosed", message.into())
    }

    /// The machine or a service failed.
    pub(crate) fn infrastructure(message: impl Into<String>) -> Self {
        Self::Raise("InfrastructureError", message.into())
    }

    /// As an error of sandboxes, where no exception can be raised.
    pub(crate) fn into_error(self) -> Error {
        let text = match self {
            Self::Sandbox(error) => return error,
            Self::Raise(_, message) => message,
            Self::Python(error) => error.to_string(),
        };
        Error::Service { what: "starting the runtime".into(), source: text.into() }
    }

    /// The exception.
    pub(crate) fn into_exception(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Python(error) => error,
            Self::Raise(class, message) => exception(py, class, (message,)),
            Self::Sandbox(Error::Path { path, source } | Error::HostPath { path, source }) => {
                let class = match source.kind() {
                    io::ErrorKind::NotFound => "PathNotFound",
                    _ => "PathError",
                };
                // The system's text without its number, which is an attribute.
                let text = source.to_string();
                let text = text.split(" (os error").next().unwrap_or(&text).to_owned();
                let number = source.raw_os_error();
                exception(py, class, (text, path.to_string_lossy().into_owned(), number))
            }
            Self::Sandbox(error) => exception(py, class_of(&error), (error.chain(),)),
        }
    }
}

/// The class of an error of sandboxes.
fn class_of(error: &Error) -> &'static str {
    match error {
        Error::Spec(_) | Error::BadRequest(_) => "UsageError",
        Error::UnknownImage { .. } => "ImageNotFound",
        Error::Path { .. } | Error::HostPath { .. } => "PathError",
        Error::Unsupported { .. } | Error::Denied { .. } | Error::NoDaemon { .. } => {
            "SandboxUnavailable"
        }
        Error::Gone(_) => "SandboxGone",
        Error::Stalled { .. } => "StalledError",
        Error::HostFull(_) | Error::Command { .. } | Error::Io { .. } | Error::Service { .. } => {
            "InfrastructureError"
        }
    }
}

/// Creates an exception of a class of `llm_in_sandbox.errors`.
fn exception<'py, A>(py: Python<'py>, class: &str, arguments: A) -> PyErr
where
    A: pyo3::call::PyCallArgs<'py>,
{
    let made = py
        .import("llm_in_sandbox.errors")
        .and_then(|module| module.getattr(class))
        .and_then(|class| class.call1(arguments));
    match made {
        Ok(value) => PyErr::from_value(value),
        Err(error) => {
            let wrapped = PyRuntimeError::new_err(format!("cannot raise {class}"));
            wrapped.set_cause(py, Some(error));
            wrapped
        }
    }
}
