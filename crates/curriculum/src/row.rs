//! One row in the format of tasks, and the demonstration that may come with it.
//!
//! Knows no generator: a demonstration is shell commands in a field of the row, whoever wrote it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Where the files of a row lie in the sandbox, as the folder's `task.toml` has it.
pub const INPUT_DIR: &str = "/testbed/input";
/// Where answers are looked for, in `answer.txt`.
pub const OUTPUT_DIR: &str = "/testbed/output";

/// A demonstration may have this many commands.
const MOST_COMMANDS: usize = 32;
/// And each of them so many bytes.
const LONGEST_COMMAND: usize = 16 << 10;

/// A row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Its name, made of where it comes from and a digest of what it asks.
    pub id: String,
    /// The field it belongs to; decides about the grader.
    pub domain: String,
    /// `Free-form` or `Multiple Choice`.
    pub qa_type: String,
    /// The kind of a made-up task, or the input file of another.
    pub subject: String,
    /// From 1 to 5, for made-up tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<u8>,
    /// What is asked.
    pub problem_statement: String,
    /// The right answer.
    pub ground_truth: String,
    /// All answers that were given as right, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<String>,
    /// Files by their names.
    pub input_files: BTreeMap<String, String>,
    /// Commands that lead to the answer; none where no short ones are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub demonstration: Vec<String>,
}

/// The shell commands of a row's demonstration, or none: two to four short ones that look, compute, and write the
/// answer to `answer.txt` in [`OUTPUT_DIR`]. Submitting is left to the caller. Takes the row as it was read, or any
/// part of it that holds the field `demonstration`.
pub fn solve(row: &Map<String, Value>) -> Option<Vec<String>> {
    let commands = row.get("demonstration")?.as_array()?;
    if commands.is_empty() || commands.len() > MOST_COMMANDS {
        return None;
    }
    let usable = |command: &&str| !command.trim().is_empty() && command.len() <= LONGEST_COMMAND;
    commands.iter().map(|command| command.as_str().filter(usable).map(str::to_owned)).collect()
}

/// The command that writes what another prints as the answer, and shows it.
pub(crate) fn answered(by: &str) -> String {
    format!("{by} > {OUTPUT_DIR}/answer.txt\ncat {OUTPUT_DIR}/answer.txt")
}

/// The command that writes a text as the answer, and shows it.
pub(crate) fn answered_with(text: &str) -> String {
    answered(&format!("printf '%s\\n' {}", quoted(text)))
}

/// A text as one word of a shell command.
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
    fn demonstrations_are_taken_as_they_stand_or_not_at_all() {
        assert_eq!(solved(json!(["ls", "cat x"])), Some(vec!["ls".into(), "cat x".into()]));
        for bad in [json!(null), json!([]), json!("ls"), json!(["ls", 1]), json!(["ls", " "])] {
            assert_eq!(solved(bad), None);
        }
        assert_eq!(solved(json!(vec!["ls"; MOST_COMMANDS + 1])), None);
        assert_eq!(solved(json!(["x".repeat(LONGEST_COMMAND + 1)])), None);
        assert_eq!(solve(&Map::new()), None);
    }

    #[test]
    fn quotes_stay_quotes() {
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert!(
            answered_with("5%").starts_with("printf '%s\\n' '5%' > /testbed/output/answer.txt")
        );
    }
}
