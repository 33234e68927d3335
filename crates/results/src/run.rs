//! What a run was requested to do.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::Mode;

/// A task of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskInfo {
    /// The task's name.
    pub name: String,
    /// The number of problems.
    pub problems: usize,
    /// The most repetitions of one problem: rows may repeat some problems and not others.
    pub repeats: u32,
    /// The number of attempts in one mode; 0 in records of versions that did not count them.
    #[serde(default)]
    pub attempts: usize,
    /// The grader's name.
    pub grader: String,
    /// The public names of the benchmark the rows come from, for the leak check.
    #[serde(default)]
    pub known_as: Vec<String>,
    /// A digest of the rows, so that a run is not resumed with other rows.
    #[serde(default)]
    pub rows_sha256: String,
    /// A digest of the prompts, the limits and the image.
    #[serde(default, rename = "words_sha256")]
    pub prompts_sha256: String,
    /// A digest of the grader: of its command and files, where it is a command.
    #[serde(default)]
    pub grader_sha256: String,
}

/// What a run was requested to do: `run.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The version of this file.
    pub v: u32,
    /// The version of the program.
    pub program: String,
    /// The first start, in milliseconds since 1970.
    pub started: u64,
    /// The model.
    pub model: String,
    /// The tasks.
    pub tasks: Vec<TaskInfo>,
    /// The modes.
    pub modes: Vec<Mode>,
    /// The capabilities taken away from the model: `external`, `files`, `execution`.
    #[serde(default)]
    pub without: Vec<String>,
    /// Where documents are: `files` or `prompt`.
    #[serde(default, rename = "context")]
    pub documents: String,
    /// All other settings, without secrets.
    #[serde(default, deserialize_with = "null_as_default")]
    pub settings: RunSettings,
}

/// Reads `null` as the default.
fn null_as_default<'de, D: Deserializer<'de>>(deserializer: D) -> Result<RunSettings, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// The settings of a run as they are recorded. What they mean is the caller's business; this crate compares them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunSettings {
    /// Everything that may change a result and must not differ when a run is resumed.
    #[serde(default, rename = "same")]
    pub fixed: Value,
    /// Everything that was requested, to resume from.
    #[serde(default, rename = "asked")]
    pub requested: Value,
    /// The judge, once one is named.
    #[serde(default)]
    pub judge: Option<JudgeRecord>,
    /// Proves that this user wrote the settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<String>,
}

/// The judge of a run. Early versions recorded the name alone, as a string.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "RecordedJudge")]
pub struct JudgeRecord {
    /// The model's name.
    pub name: String,
    /// How it was requested, to resume from.
    #[serde(default, rename = "asked", skip_serializing_if = "Value::is_null")]
    pub requested: Value,
}

/// A judge as any version recorded it.
#[derive(Deserialize)]
#[serde(untagged)]
enum RecordedJudge {
    Name(String),
    Full {
        name: String,
        #[serde(default, rename = "asked")]
        requested: Value,
    },
}

impl From<RecordedJudge> for JudgeRecord {
    fn from(recorded: RecordedJudge) -> Self {
        match recorded {
            RecordedJudge::Name(name) => Self { name, requested: Value::Null },
            RecordedJudge::Full { name, requested } => Self { name, requested },
        }
    }
}
