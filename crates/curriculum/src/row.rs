//! One row in the format of tasks, with an optional demonstration: shell commands that solve it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The directory of a row's files in the sandbox, as in the folder's `task.toml`.
pub const INPUT_DIR: &str = "/testbed/input";
/// The directory of the answer file, `answer.txt`.
pub const OUTPUT_DIR: &str = "/testbed/output";

/// The maximum number of commands of a demonstration.
const MAX_COMMANDS: usize = 32;
/// The maximum size of a command, in bytes.
const MAX_COMMAND_BYTES: usize = 16 << 10;

/// A training task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Its id: its source and a digest of its question.
    pub id: String,
    /// Its domain, which selects the grader.
    pub domain: String,
    /// `Free-form` or `Multiple Choice`.
    pub qa_type: String,
    /// The kind of a synthetic task, or the input file of another.
    pub subject: String,
    /// The level of a synthetic task, from 1 to 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<u8>,
    /// The question.
    pub problem_statement: String,
    /// The correct answer.
    pub ground_truth: String,
    /// All accepted answers, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<String>,
    /// Files by name.
    pub input_files: BTreeMap<String, String>,
    /// Commands that solve the task; empty where no short solution is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub demonstration: Vec<String>,
}

/// The shell commands of a row's demonstration, if it has a valid one: two to four short ones that inspect, compute, and
/// write the answer to `answer.txt` in [`OUTPUT_DIR`]. Submitting is left to the caller. Takes the row as JSON, or any
/// part of it with the field `demonstration`.
pub fn solve(row: &Map<String, Value>) -> Option<Vec<String>> {
    let commands = row.get("demonstration")?.as_array()?;
    if commands.is_empty() || commands.len() > MAX_COMMANDS {
        return None;
    }
    let usable = |command: &&str| !command.trim().is_empty() && command.len() <= MAX_COMMAND_BYTES;
    commands.iter().map(|command| command.as_str().filter(usable).map(str::to_owned)).collect()
}

/// The command that writes the output of another as the answer, and shows it.
pub(crate) fn write_output_of(command: &str) -> String {
    format!("{command} > {OUTPUT_DIR}/answer.txt\ncat {OUTPUT_DIR}/answer.txt")
}

/// The command that writes a text as the answer, and shows it.
pub(crate) fn write_answer(text: &str) -> String {
    write_output_of(&format!("printf '%s\\n' {}", quoted(text)))
}

/// Quotes a text for the shell.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn solved(demonstration: Value) -> Option<Vec<String>> {
        let Value::Object(row) = json!({ "demonstration": demonstration }) else { return None };
        solve(&row)
    }

    #[test]
    fn invalid_demonstrations_are_ignored() {
        assert_eq!(solved(json!(["ls", "cat x"])), Some(vec!["ls".into(), "cat x".into()]));
        for bad in [json!(null), json!([]), json!("ls"), json!(["ls", 1]), json!(["ls", " "])] {
            assert_eq!(solved(bad), None);
        }
        assert_eq!(solved(json!(vec!["ls"; MAX_COMMANDS + 1])), None);
        assert_eq!(solved(json!(["x".repeat(MAX_COMMAND_BYTES + 1)])), None);
        assert_eq!(solve(&Map::new()), None);
    }

    #[test]
    fn quotes_stay_quotes() {
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert!(write_answer("5%").starts_with("printf '%s\\n' '5%' > /testbed/output/answer.txt"));
    }
}
