//! Tasks from folders: our own form, described by `task.toml`, and the reference's, described by `config.yaml`.
//!
//! Everything is checked when the folder is read, so that nothing is left to fail once a model has worked. Code in
//! a folder is never run here; graders that are code run in a sandbox.

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

use crate::{CarriedFile, Task};

/// A description may have this many bytes.
const LARGEST_DESCRIPTION: u64 = 1 << 20;
/// The files that go along with a grader may have this many bytes together.
const LARGEST_FOLDER: u64 = 64 << 20;
/// And be this many.
const MOST_FILES: usize = 1000;
/// And lie this deep.
const DEEPEST: usize = 8;

/// Why a folder is no task.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TaskError {
    /// The disk or its rights.
    #[error("cannot read {path}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// A folder without a description.
    #[error("{dir} is no task: it has neither task.toml nor config.yaml")]
    NoTask {
        /// The folder.
        dir: PathBuf,
    },
    /// A description with an error in it.
    #[error("{path}, line {line}: {why}")]
    Line {
        /// The description.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What is wrong there.
        why: String,
    },
    /// A description that lacks something, or something it speaks of.
    #[error("{path}: {why}")]
    Incomplete {
        /// The description.
        path: PathBuf,
        /// What is missing.
        why: String,
    },
    /// Prompts that cannot be filled in.
    #[error("{path}: the prompts cannot be used")]
    Prompt {
        /// The description.
        path: PathBuf,
        /// Why not.
        #[source]
        source: PromptError,
    },
    /// More files than a grader can take along.
    #[error("{dir} has more than {MOST_FILES} files or {LARGEST_FOLDER} bytes besides its rows")]
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

/// The folder's own name, for tasks that do not say theirs.
fn name_of(dir: &Path) -> String {
    let named = dir.canonicalize().ok();
    let name = named.as_deref().and_then(Path::file_name);
    name.map_or_else(|| "task".to_owned(), |name| name.to_string_lossy().into_owned())
}

fn description(path: &Path) -> Result<String, TaskError> {
    let failed = |source| TaskError::Io { path: path.to_owned(), source };
    let size = fs::metadata(path).map_err(failed)?.len();
    if size > LARGEST_DESCRIPTION {
        return Err(incomplete(
            path,
            format!("it has {size} bytes, more than {LARGEST_DESCRIPTION}"),
        ));
    }
    fs::read_to_string(path).map_err(failed)
}

fn incomplete(path: &Path, why: impl Into<String>) -> TaskError {
    TaskError::Incomplete { path: path.to_owned(), why: why.into() }
}

/// Whether a file belongs to a folder, wherever links lead. Somebody else may have made the folder, and its rows are
/// sent to the model.
fn lies_in(dir: &Path, path: &Path) -> bool {
    let whole = dir.canonicalize().ok().zip(path.canonicalize().ok());
    whole.is_some_and(|(dir, path)| path.starts_with(dir))
}

/// What goes along with a grader: all files but hidden ones, links, and the rows.
fn files(dir: &Path, rows: Option<&Path>) -> Result<Vec<CarriedFile>, TaskError> {
    let mut found = Vec::new();
    let mut left = LARGEST_FOLDER;
    walk(dir, Path::new(""), rows, &mut left, &mut found)?;
    found.sort();
    Ok(found)
}

fn walk(
    dir: &Path,
    below: &Path,
    rows: Option<&Path>,
    left: &mut u64,
    found: &mut Vec<CarriedFile>,
) -> Result<(), TaskError> {
    let here = dir.join(below);
    let failed = |source| TaskError::Io { path: here.clone(), source };
    let too_large = || TaskError::TooLarge { dir: dir.to_owned() };
    for entry in fs::read_dir(&here).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let (kind, name) = (entry.file_type().map_err(failed)?, entry.file_name());
        let hidden = name.to_string_lossy().starts_with('.') || name == "__pycache__";
        // These two are the answer and the row to be graded.
        let ours = below.as_os_str().is_empty() && (name == "answer.txt" || name == "row.json");
        if hidden || ours || rows == Some(entry.path().as_path()) {
            continue;
        }
        let path = below.join(&name);
        if kind.is_dir() {
            if path.components().count() >= DEEPEST {
                return Err(too_large());
            }
            walk(dir, &path, rows, left, found)?;
        } else if kind.is_file() {
            let size = entry.metadata().map_err(failed)?.len();
            *left = left.checked_sub(size).ok_or_else(too_large)?;
            if found.len() >= MOST_FILES {
                return Err(too_large());
            }
            found.push((path, fs::read(entry.path()).map_err(failed)?.into()));
        }
    }
    Ok(())
}
