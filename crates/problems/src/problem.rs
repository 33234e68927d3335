//! One problem: a row of a data set, validated. Rows are untrusted: names, types and sizes are checked here.
//!
//! Knows no file format and no grader.

use std::{
    collections::BTreeMap,
    path::{Component, Path},
};

use serde::Serialize;
use serde_json::{Map, Value};

/// The longest id, in bytes.
const MAX_ID: usize = 1024;
/// The longest path of an input file, in bytes.
const MAX_PATH: usize = 1024;
/// The longest file name in such a path, in bytes: the limit of Linux.
const MAX_NAME: usize = 255;

/// Why a row is not a problem, or not one its grader can grade.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RowError {
    /// The row is not a JSON object.
    #[error("the row is {found}, not an object")]
    NotAnObject {
        /// Its JSON type.
        found: &'static str,
    },
    /// A required field is absent.
    #[error("there is no field `{field}`")]
    Missing {
        /// The field.
        field: &'static str,
    },
    /// A required field has no content.
    #[error("field `{field}` is empty")]
    Empty {
        /// The field.
        field: &'static str,
    },
    /// A field has the wrong JSON type.
    #[error("field `{field}` is {found}, not {expected}")]
    Type {
        /// The field.
        field: &'static str,
        /// Its JSON type.
        found: &'static str,
        /// What it has to be.
        expected: &'static str,
    },
    /// A field has the right type, but cannot be used.
    #[error("field `{field}` {why}")]
    Invalid {
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// An input file has a bad name or bad contents.
    #[error("input file {name} {why}")]
    File {
        /// Its name, quoted and shortened.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// The grader of the task cannot grade this row.
    #[error("{0}")]
    Ungradable(String),
}

/// A problem to be solved.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Problem {
    /// Unique within its rows.
    pub id: String,
    /// The subject area; may be empty.
    pub domain: String,
    /// A finer subject area, where the row has one.
    pub subject: Option<String>,
    /// The kind of question, as the data set names it.
    pub qa_type: Option<String>,
    /// The question or task.
    pub statement: String,
    /// The reference answer. A value that is not a string is stored as compact JSON.
    pub ground_truth: String,
    /// Input files: relative path and text.
    pub files: BTreeMap<String, String>,
    /// All other fields of the row, and `ground_truth` where it is not a string.
    pub extra: Map<String, Value>,
    /// How many equal rows the data has; at least 1. Data sets repeat a row to have it sampled more than once.
    pub repeats: u32,
}

impl Problem {
    /// Validates a row.
    ///
    /// Required fields are `id` (or `instance_id`), `problem_statement`, and `ground_truth` unless the row lists
    /// tests that have to pass. `input_files` is an object of names and texts, or a string with such an object as
    /// JSON.
    pub fn from_row(row: Value) -> Result<Self, RowError> {
        let Value::Object(mut row) = row else {
            return Err(RowError::NotAnObject { found: kind(&row) });
        };
        let id = id(&mut row)?;
        let statement = required_text(&mut row, "problem_statement")?;
        if statement.trim().is_empty() {
            return Err(RowError::Empty { field: "problem_statement" });
        }
        let ground_truth = ground_truth(&mut row)?;
        let files = files(row.remove("input_files"))?;
        Ok(Self {
            id,
            domain: optional_text(&mut row, "domain")?.unwrap_or_default(),
            subject: optional_text(&mut row, "subject")?,
            qa_type: optional_text(&mut row, "qa_type")?,
            statement,
            ground_truth,
            files,
            extra: row,
            repeats: 1,
        })
    }

    /// The row this problem was made of, with its defaults filled in.
    pub fn row(&self) -> Map<String, Value> {
        let mut row = Map::new();
        let files = self.files.iter().map(|(name, text)| (name.clone(), text.as_str().into()));
        row.insert("id".into(), self.id.as_str().into());
        row.insert("domain".into(), self.domain.as_str().into());
        row.insert("problem_statement".into(), self.statement.as_str().into());
        row.insert("ground_truth".into(), self.ground_truth.as_str().into());
        row.insert("input_files".into(), Value::Object(files.collect()));
        for (key, value) in [("subject", &self.subject), ("qa_type", &self.qa_type)] {
            if let Some(value) = value {
                row.insert(key.into(), value.as_str().into());
            }
        }
        row.extend(self.extra.clone());
        row
    }

    /// Whether two rows with the same id are equal.
    pub(crate) fn is_repeat_of(&self, other: &Self) -> bool {
        let same_kind = self.domain == other.domain
            && self.subject == other.subject
            && self.qa_type == other.qa_type;
        let same_text =
            self.statement == other.statement && self.ground_truth == other.ground_truth;
        same_kind && same_text && self.files == other.files && self.extra == other.extra
    }

    /// A string of [`Self::extra`]. `None` where it is empty.
    pub(crate) fn field(&self, key: &str) -> Option<&str> {
        self.extra.get(key)?.as_str().filter(|text| !text.is_empty())
    }
}

fn id(row: &mut Map<String, Value>) -> Result<String, RowError> {
    let invalid = |why| Err(RowError::Invalid { field: "id", why });
    let value = row.remove("id").filter(|value| !value.is_null());
    let id = match value.or_else(|| row.get("instance_id").cloned()) {
        Some(Value::String(id)) => id,
        Some(Value::Number(number)) if !number.is_f64() => number.to_string(),
        Some(other) => return Err(not_a_string("id", &other)),
        None => return Err(RowError::Missing { field: "id" }),
    };
    if id.trim().is_empty() {
        return Err(RowError::Empty { field: "id" });
    }
    if id.len() > MAX_ID {
        return invalid(format!("has {} bytes, more than {MAX_ID}", id.len()));
    }
    if id.contains(char::is_control) {
        return invalid(format!("has control characters: {}", shown(&id)));
    }
    Ok(id)
}

fn ground_truth(row: &mut Map<String, Value>) -> Result<String, RowError> {
    match row.remove("ground_truth") {
        Some(Value::String(text)) => Ok(text),
        Some(Value::Null) => {
            Err(RowError::Invalid { field: "ground_truth", why: "is null".into() })
        }
        Some(value) => {
            let text = value.to_string();
            row.insert("ground_truth".into(), value);
            Ok(text)
        }
        None if row.contains_key("FAIL_TO_PASS") => Ok(String::new()),
        None => Err(RowError::Missing { field: "ground_truth" }),
    }
}

fn required_text(row: &mut Map<String, Value>, field: &'static str) -> Result<String, RowError> {
    match row.remove(field) {
        Some(Value::String(text)) => Ok(text),
        Some(other) => Err(not_a_string(field, &other)),
        None => Err(RowError::Missing { field }),
    }
}

fn optional_text(
    row: &mut Map<String, Value>,
    field: &'static str,
) -> Result<Option<String>, RowError> {
    match row.remove(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text).filter(|text| !text.is_empty())),
        Some(other) => Err(not_a_string(field, &other)),
    }
}

fn not_a_string(field: &'static str, value: &Value) -> RowError {
    RowError::Type { field, found: kind(value), expected: "a string" }
}

fn files(value: Option<Value>) -> Result<BTreeMap<String, String>, RowError> {
    let field = "input_files";
    let value = match value {
        Some(Value::String(text)) if text.trim().is_empty() => None,
        Some(Value::String(text)) => Some(serde_json::from_str(&text).map_err(|error| {
            RowError::Invalid { field, why: format!("is a string, but not JSON: {error}") }
        })?),
        value => value,
    };
    let entries = match value {
        None | Some(Value::Null) => return Ok(BTreeMap::new()),
        Some(Value::Object(entries)) => entries,
        Some(other) => {
            return Err(RowError::Type { field, found: kind(&other), expected: "an object" });
        }
    };
    let mut files = BTreeMap::new();
    for (name, content) in entries {
        let invalid = |why: String| RowError::File { name: shown(&name), why };
        let path = normal_path(&name).map_err(|why| invalid(why.into()))?;
        let text = match content {
            Value::Null => continue,
            Value::String(text) => text,
            other => return Err(invalid(format!("is {}, not a string", kind(&other)))),
        };
        if files.insert(path, text).is_some() {
            return Err(invalid("is there twice".into()));
        }
    }
    match files.keys().find(|name| is_below_a_file(&files, name)) {
        Some(name) => {
            let why = "is in a directory with the name of another file".into();
            Err(RowError::File { name: shown(name), why })
        }
        None => Ok(files),
    }
}

fn is_below_a_file(files: &BTreeMap<String, String>, name: &str) -> bool {
    name.match_indices('/').any(|(at, _)| files.contains_key(&name[..at]))
}

/// A relative path without `.` and `..`, or why the name cannot be one.
fn normal_path(name: &str) -> Result<String, &'static str> {
    const TOO_LONG: &str = "has a name that is too long";
    if name.len() > MAX_PATH {
        return Err(TOO_LONG);
    }
    if name.contains(char::is_control) {
        return Err("has control characters in its name");
    }
    let mut parts = Vec::new();
    for part in Path::new(name).components() {
        match part {
            Component::Normal(part) if part.len() > MAX_NAME => return Err(TOO_LONG),
            Component::Normal(part) => parts.push(part.to_string_lossy()),
            Component::CurDir => {}
            Component::ParentDir => return Err("is outside its directory"),
            Component::RootDir | Component::Prefix(_) => return Err("has an absolute path"),
        }
    }
    if parts.is_empty() || name.ends_with('/') {
        return Err("has no file name");
    }
    Ok(parts.join("/"))
}

/// The JSON type of a value, for messages.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// Text of a row for a message: in backticks, escaped, at most 60 characters.
pub(crate) fn shown(text: &str) -> String {
    const SHOWN: usize = 60;
    let start: String = text.chars().take(SHOWN).collect();
    let more = if start.len() < text.len() { "…" } else { "" };
    format!("`{}{more}`", start.escape_debug())
}

#[cfg(test)]
#[path = "problem_tests.rs"]
mod tests;
