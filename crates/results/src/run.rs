//! What a run was asked to do.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Mode;

/// A task of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskInfo {
    /// Its name.
    pub name: String,
    /// How many problems are asked.
    pub problems: usize,
    /// How often each is asked, at most: rows may repeat some problems and others not.
    pub repeats: u32,
    /// How many attempts that makes in one mode; 0 in records of programs that did not count them.
    #[serde(default)]
    pub attempts: usize,
    /// The grader, by name.
    pub grader: String,
    /// The benchmark the rows come from, by the names it has in public, for the check of leaks.
    #[serde(default)]
    pub known_as: Vec<String>,
    /// A digest of the rows, so that a run is not resumed with others.
    #[serde(default)]
    pub rows_sha256: String,
    /// A digest of the words around the problems, the limits and the image.
    #[serde(default)]
    pub words_sha256: String,
    /// A digest of the grader: of its command and files, where it is a command.
    #[serde(default)]
    pub grader_sha256: String,
}

/// What a run was asked to do. Two runs with the same `settings` may be one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The version of this file.
    pub v: u32,
    /// The version of the program.
    pub program: String,
    /// When it first began, in milliseconds since 1970.
    pub started: u64,
    /// The model.
    pub model: String,
    /// What is asked.
    pub tasks: Vec<TaskInfo>,
    /// How.
    pub modes: Vec<Mode>,
    /// What the model had to do without: `external`, `files`, `execution`.
    #[serde(default)]
    pub without: Vec<String>,
    /// Where documents are: `files` or `prompt`.
    #[serde(default)]
    pub context: String,
    /// Everything else that may change a result, without secrets.
    #[serde(default)]
    pub settings: Value,
}
