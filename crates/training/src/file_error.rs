//! A file operation that failed: the one error type for reading and writing the files of a run.

use std::{
    io,
    path::{Path, PathBuf},
};

/// A file or directory cannot be read, written or used otherwise.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}", path.display())]
pub struct FileError {
    /// What was attempted, as a verb.
    pub action: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// The error of the operating system.
    #[source]
    pub source: io::Error,
}

impl FileError {
    /// Adds what was attempted and where to an I/O error; for `map_err`.
    pub fn new(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self { action, path, source }
    }
}
