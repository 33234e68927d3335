//! The specs of the built-in tools, as models read them: names, descriptions, and schemas of the arguments.
//!
//! Change the texts only with scores from before and after.

use std::time::Duration;

use model::ToolSpec;
use serde_json::{Value, json};

use super::{
    EDIT, EXECUTE, SUBMIT, ToolSet,
    tool_set::{ANSWER, MAX_ANSWER},
};

/// The specs of a set of tools.
pub(crate) fn specs(set: ToolSet, timeout: Duration) -> Vec<ToolSpec> {
    match set {
        ToolSet::All => vec![bash(timeout, WITH_FILES), edit(), submit()],
        ToolSet::WithoutExecution => vec![edit(), submit()],
        ToolSet::WithoutFiles => vec![bash(timeout, NO_FILES), submit_answer()],
    }
}

/// About commands with a long run time or a long output.
const WITH_FILES: &str = " Start what takes longer in the background with its output in a file \
     (`long_job > job.log 2>&1 &`) and look at the file later.\n\
     - Of long output only start and end are shown; the reply names the file that holds all of it.";

/// The same where no file can be written.
const NO_FILES: &str = "\n\
     - Of long output only start and end are shown, and the rest is lost: print little.\n\
     - No file can be written: every directory is read-only.";

fn spec(name: &str, description: String, parameters: Value) -> ToolSpec {
    ToolSpec { name: name.into(), description, parameters }
}

fn bash(timeout: Duration, more: &str) -> ToolSpec {
    let description = format!(
        "Run a command in the computer's bash shell and get its exit code, stdout and stderr.\n\
         - It is one shell: directory, variables and functions carry on from call to call.\n\
         - Nobody answers questions: pass options such as -y, and do not start editors or pagers.\n\
         - A command is killed after {} s.{more}",
        timeout.as_secs_f64()
    );
    let parameters = json!({
        "type": "object",
        "properties": {
            "command": {
                "type": "string",
                "description": "What bash evaluates; several lines are fine.",
            },
        },
        "required": ["command"],
    });
    spec(EXECUTE, description, parameters)
}

fn edit() -> ToolSpec {
    let description = "Look at and change files.\n\
         - `view`: a text file with line numbers, or a part of it (`view_range`); a directory, two levels \
         deep, without hidden entries; a picture.\n\
         - `create`: write `file_text` to a file, replacing what was there. Missing directories are made.\n\
         - `str_replace`: put `new_str` in the place of `old_str`, which must occur exactly once in the \
         file, character by character, white space included and without line numbers. Add \
         neighbouring lines until it is unique.\n\
         - `insert`: put `new_str` as new lines after line `insert_line`."
        .into();
    let parameters = json!({
        "type": "object",
        "properties": {
            "command": {
                "type": "string",
                "enum": ["view", "create", "str_replace", "insert"],
                "description": "What to do.",
            },
            "path": {
                "type": "string",
                "description": "The file or directory, best as an absolute path.",
            },
            "file_text": {
                "type": "string",
                "description": "For `create`: everything the file is to hold.",
            },
            "old_str": {
                "type": "string",
                "description": "For `str_replace`: the text to be replaced.",
            },
            "new_str": {
                "type": "string",
                "description": "For `str_replace`: the text that takes its place; nothing if left out. \
                                For `insert`: the lines to be inserted.",
            },
            "insert_line": {
                "type": "integer",
                "description": "For `insert`: the line after which to insert; 0 is the top of the file.",
            },
            "view_range": {
                "type": "array",
                "items": {"type": "integer"},
                "description": "For `view`: the first and the last line to show, counted from 1, such as \
                                [11, 40]; -1 as the last stands for the end.",
            },
        },
        "required": ["command", "path"],
    });
    spec(EDIT, description, parameters)
}

fn submit() -> ToolSpec {
    let description =
        "Declare the task done. Call it once, alone, when everything that was asked for is in \
                       place and checked: nothing can be done afterwards."
            .into();
    spec(SUBMIT, description, json!({"type": "object", "properties": {}, "required": []}))
}

fn submit_answer() -> ToolSpec {
    let description =
        "Give the answer and end the work. Call it once, alone, when the answer is checked: nothing can be \
         done afterwards."
            .into();
    let parameters = json!({
        "type": "object",
        "properties": {
            ANSWER: {
                "type": "string",
                "description": format!(
                    "The answer, complete and in the form that was asked for; at most {MAX_ANSWER} bytes."
                ),
            },
        },
        "required": [ANSWER],
    });
    spec(SUBMIT, description, parameters)
}
