//! Errors of the viewer: each has a code for programs and a message for people.

use std::{fmt, io, path::Path};

/// Kinds of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The request makes no sense.
    Invalid,
    /// There is no session.
    Unauthenticated,
    /// The request comes from somewhere else.
    Forbidden,
    /// There is no such thing.
    NotFound,
    /// It is larger than what is read.
    TooLarge,
    /// A file cannot be read, or something is broken here.
    Internal,
}

impl Code {
    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Unauthenticated => "unauthenticated",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::TooLarge => "too_large",
            Self::Internal => "internal",
        }
    }
}

/// Why something cannot be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewError {
    /// The kind.
    pub code: Code,
    /// What failed and why.
    pub message: String,
}

impl ViewError {
    /// An error of this kind.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::Invalid, message)
    }

    pub(crate) fn not_found(what: &str, id: &str) -> Self {
        let id: String = id.chars().take(100).collect();
        Self::new(Code::NotFound, format!("there is no {what} `{id}`"))
    }

    /// A file that cannot be read.
    pub(crate) fn read(path: &Path, error: &io::Error) -> Self {
        let code = match error.kind() {
            io::ErrorKind::NotFound => Code::NotFound,
            io::ErrorKind::InvalidInput => Code::Forbidden,
            _ => Code::Internal,
        };
        Self::new(code, format!("cannot read {}: {error}", path.display()))
    }
}

impl fmt::Display for ViewError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ViewError {}
