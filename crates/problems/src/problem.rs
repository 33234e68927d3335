//! One problem: a row of a data set, checked. Rows are hostile: names, types and sizes are looked at here.
//!
//! Knows no file format and no grader.

use std::{
    collections::BTreeMap,
    path::{Component, Path},
};

use serde::Serialize;
use serde_json::{Map, Value};

/// The longest id, in bytes.
const LONGEST_ID: usize = 1024;
/// The longest name of an input file, in bytes.
const LONGEST_NAME: usize = 1024;
/// The longest part of such a name, as file systems have it.
const LONGEST_PART: usize = 255;

/// A problem to be solved.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Problem {
    /// Its name, unique within its rows.
    pub id: String,
    /// The field it belongs to; may be empty.
    pub domain: String,
    /// A finer grouping, where the row has one.
    pub subject: Option<String>,
    /// The kind of question in the data set's own words.
    pub qa_type: Option<String>,
    /// What is asked.
    pub statement: String,
    /// The right answer. JSON that is no text is kept as compact JSON.
    pub ground_truth: String,
    /// Input files: relative path and text.
    pub files: BTreeMap<String, String>,
    /// All other fields of the row, and `ground_truth` where it was no text.
    pub extra: Map<String, Value>,
    /// How many equal rows the data has for it; at least 1. Data sets write repetitions this way.
    pub repeats: u32,
}

impl Problem {
    /// Checks a row. The error says what is wrong with it.
    ///
    /// Required are `id` (or `instance_id`), `problem_statement`, and `ground_truth` unless the row lists tests
    /// that have to pass. `input_files` maps names to texts, or is such a mapping as JSON text.
    pub fn from_row(row: Value) -> Result<Self, String> {
        let Value::Object(mut row) = row else {
            return Err(format!("the row is {}, not an object", kind(&row)));
        };
        let id = id(&mut row)?;
        let statement = required_text(&mut row, "problem_statement")?;
        if statement.trim().is_empty() {
            return Err("field `problem_statement` is empty".into());
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

    /// The row again, for graders that want to see it.
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

    /// Whether two rows are the same problem asked again.
    pub(crate) fn is_repeat_of(&self, other: &Self) -> bool {
        let same_kind = self.domain == other.domain
            && self.subject == other.subject
            && self.qa_type == other.qa_type;
        let same_text =
            self.statement == other.statement && self.ground_truth == other.ground_truth;
        same_kind && same_text && self.files == other.files && self.extra == other.extra
    }

    /// A text field beyond the common ones.
    pub(crate) fn field(&self, key: &str) -> Option<&str> {
        self.extra.get(key)?.as_str().filter(|text| !text.is_empty())
    }
}

fn id(row: &mut Map<String, Value>) -> Result<String, String> {
    let value = row.remove("id").filter(|value| !value.is_null());
    let id = match value.or_else(|| row.get("instance_id").cloned()) {
        Some(Value::String(id)) => id,
        Some(Value::Number(number)) if !number.is_f64() => number.to_string(),
        Some(other) => return Err(format!("field `id` is {}, not a text", kind(&other))),
        None => return Err("there is no field `id`".into()),
    };
    if id.trim().is_empty() {
        return Err("field `id` is empty".into());
    }
    if id.len() > LONGEST_ID {
        return Err(format!("field `id` has {} bytes, more than {LONGEST_ID}", id.len()));
    }
    if id.contains(char::is_control) {
        return Err(format!("field `id` holds control characters: {}", shown(&id)));
    }
    Ok(id)
}

fn ground_truth(row: &mut Map<String, Value>) -> Result<String, String> {
    match row.remove("ground_truth") {
        Some(Value::String(text)) => Ok(text),
        Some(Value::Null) => Err("field `ground_truth` is null".into()),
        Some(value) => {
            let text = value.to_string();
            row.insert("ground_truth".into(), value);
            Ok(text)
        }
        None if row.contains_key("FAIL_TO_PASS") => Ok(String::new()),
        None => Err("there is no field `ground_truth`".into()),
    }
}

fn required_text(row: &mut Map<String, Value>, key: &str) -> Result<String, String> {
    match row.remove(key) {
        Some(Value::String(text)) => Ok(text),
        Some(other) => Err(format!("field `{key}` is {}, not a text", kind(&other))),
        None => Err(format!("there is no field `{key}`")),
    }
}

fn optional_text(row: &mut Map<String, Value>, key: &str) -> Result<Option<String>, String> {
    match row.remove(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text).filter(|text| !text.is_empty())),
        Some(other) => Err(format!("field `{key}` is {}, not a text", kind(&other))),
    }
}

fn files(value: Option<Value>) -> Result<BTreeMap<String, String>, String> {
    let value = match value {
        Some(Value::String(text)) if text.trim().is_empty() => None,
        Some(Value::String(text)) => Some(
            serde_json::from_str(&text)
                .map_err(|error| format!("field `input_files` is text, but not JSON: {error}"))?,
        ),
        value => value,
    };
    let entries = match value {
        None | Some(Value::Null) => return Ok(BTreeMap::new()),
        Some(Value::Object(entries)) => entries,
        Some(other) => {
            return Err(format!("field `input_files` is {}, not an object", kind(&other)));
        }
    };
    let mut files = BTreeMap::new();
    for (name, content) in entries {
        let path = normal(&name)?;
        let text = match content {
            Value::Null => continue,
            Value::String(text) => text,
            other => {
                return Err(format!("input file {} is {}, not a text", shown(&name), kind(&other)));
            }
        };
        if files.insert(path, text).is_some() {
            return Err(format!("two input files are called {}", shown(&name)));
        }
    }
    match files.keys().find(|name| under_a_file(&files, name)) {
        Some(name) => Err(format!("input file {} lies below another file", shown(name))),
        None => Ok(files),
    }
}

fn under_a_file(files: &BTreeMap<String, String>, name: &str) -> bool {
    name.match_indices('/').any(|(at, _)| files.contains_key(&name[..at]))
}

/// A relative path without `.` and `..`, or why the name cannot be one.
fn normal(name: &str) -> Result<String, String> {
    let refused = |why: &str| Err(format!("the name of input file {} {why}", shown(name)));
    if name.len() > LONGEST_NAME {
        return refused("is too long");
    }
    if name.contains(char::is_control) {
        return refused("holds control characters");
    }
    let mut parts = Vec::new();
    for part in Path::new(name).components() {
        match part {
            Component::Normal(part) if part.len() > LONGEST_PART => return refused("is too long"),
            Component::Normal(part) => parts.push(part.to_string_lossy()),
            Component::CurDir => {}
            Component::ParentDir => return refused("leads out of its directory"),
            Component::RootDir | Component::Prefix(_) => return refused("is absolute"),
        }
    }
    if parts.is_empty() || name.ends_with('/') {
        return refused("names no file");
    }
    Ok(parts.join("/"))
}

/// What a JSON value is, in words.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Text of a row for a message: quoted, escaped, cut.
pub(crate) fn shown(text: &str) -> String {
    const SHOWN: usize = 60;
    let start: String = text.chars().take(SHOWN).collect();
    let more = if start.len() < text.len() { "…" } else { "" };
    format!("`{}{more}`", start.escape_debug())
}

#[cfg(test)]
#[path = "problem_tests.rs"]
mod tests;
