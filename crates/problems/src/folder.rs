//! Task folders: ours, described by `task.toml`, and those of the reference implementation, with `config.yaml`.
//!
//! Everything is validated when the folder is loaded, so that nothing can fail after a model has worked. Code in a
//! folder is never run here; graders that are code run in a sandbox.

mod own;
mod reference;

#[cfg(test)]
#[path = "folder/folder_tests.rs"]
mod tests;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use agent::prompt::PromptError;

use crate::{GraderFile, Task};

/// The largest description, in bytes.
const MAX_DESCRIPTION: u64 = 1 << 20;
/// The most bytes of all files of a grader.
const MAX_FOLDER: u64 = 64 << 20;
/// The most files of a grader.
const MAX_FILES: usize = 1000;
/// The deepest directory with files of a grader.
const MAX_DEPTH: usize = 8;

/// Why a task folder cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TaskError {
    /// A file cannot be read.
    #[error("cannot read {path}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The folder has no description.
    #[error("{dir} is not a task: it has neither task.toml nor config.yaml")]
    NoTask {
        /// The folder.
        dir: PathBuf,
    },
    /// An error at a line of the description.
    #[error("{path}, line {line}: {why}")]
    Line {
        /// The description.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What is wrong there.
        why: String,
    },
    /// The data file is outside the task folder. A folder may be someone else's, and its rows are sent to the model.
    #[error("{path}, line {line}: `data` is outside the task folder")]
    DataOutside {
        /// The description.
        path: PathBuf,
        /// From 1.
        line: usize,
    },
    /// Something the description needs or names does not exist.
    #[error("{path}: {why}")]
    Incomplete {
        /// The description.
        path: PathBuf,
        /// What is missing.
        why: String,
    },
    /// The prompts are not valid.
    #[error("{path}: the prompts cannot be used")]
    Prompt {
        /// The description.
        path: PathBuf,
        /// Why not.
        #[source]
        source: PromptError,
    },
    /// The folder is too large to be copied into a grading sandbox.
    #[error("{dir} has more than {MAX_FILES} files or {MAX_FOLDER} bytes besides its rows")]
    TooLarge {
        /// The folder.
        dir: PathBuf,
    },
}

pub(crate) fn load(dir: &Path) -> Result<Task, TaskError> {
    let (own, reference) = (dir.join("task.toml"), dir.join("config.yaml"));
    if own.is_file() {
        own::load(dir, &own)
    } else if reference.is_file() {
        reference::load(dir, &reference)
    } else {
        Err(TaskError::NoTask { dir: dir.to_owned() })
    }
}

/// The name of a task without one: that of its folder.
fn name_of(dir: &Path) -> String {
    let named = dir.canonicalize().ok();
    let name = named.as_deref().and_then(Path::file_name);
    name.map_or_else(|| "task".to_owned(), |name| name.to_string_lossy().into_owned())
}

fn description(path: &Path) -> Result<String, TaskError> {
    let failed = |source| TaskError::Io { path: path.to_owned(), source };
    let size = fs::metadata(path).map_err(failed)?.len();
    if size > MAX_DESCRIPTION {
        return Err(incomplete(path, format!("it has {size} bytes, more than {MAX_DESCRIPTION}")));
    }
    fs::read_to_string(path).map_err(failed)
}

fn incomplete(path: &Path, why: impl Into<String>) -> TaskError {
    TaskError::Incomplete { path: path.to_owned(), why: why.into() }
}

/// Whether a file is in a folder once links are resolved.
fn is_inside(dir: &Path, path: &Path) -> bool {
    let resolved = dir.canonicalize().ok().zip(path.canonicalize().ok());
    resolved.is_some_and(|(dir, path)| path.starts_with(dir))
}

/// The files of a grader: all but hidden files, links, and the rows.
fn grader_files(dir: &Path, rows: Option<&Path>) -> Result<Vec<GraderFile>, TaskError> {
    let mut found = Vec::new();
    let mut left = MAX_FOLDER;
    walk(dir, Path::new(""), rows, &mut left, &mut found)?;
    found.sort();
    Ok(found)
}

fn walk(
    dir: &Path,
    below: &Path,
    rows: Option<&Path>,
    left: &mut u64,
    found: &mut Vec<GraderFile>,
) -> Result<(), TaskError> {
    let here = dir.join(below);
    let failed = |source| TaskError::Io { path: here.clone(), source };
    let too_large = || TaskError::TooLarge { dir: dir.to_owned() };
    for entry in fs::read_dir(&here).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let (kind, name) = (entry.file_type().map_err(failed)?, entry.file_name());
        let hidden = name.to_string_lossy().starts_with('.') || name == "__pycache__";
        // A check writes these two: the answer and the row.
        let reserved = below.as_os_str().is_empty() && (name == "answer.txt" || name == "row.json");
        if hidden || reserved || rows == Some(entry.path().as_path()) {
            continue;
        }
        let path = below.join(&name);
        if kind.is_dir() {
            if path.components().count() >= MAX_DEPTH {
                return Err(too_large());
            }
            walk(dir, &path, rows, left, found)?;
        } else if kind.is_file() {
            let size = entry.metadata().map_err(failed)?.len();
            *left = left.checked_sub(size).ok_or_else(too_large)?;
            if found.len() >= MAX_FILES {
                return Err(too_large());
            }
            found.push((path, fs::read(entry.path()).map_err(failed)?.into()));
        }
    }
    Ok(())
}
