//! The problems of a run: rows of files as the task reads them, without those that cannot be graded.

use std::path::{Path, PathBuf};

use problems::{Problem, RowsError, Task, TaskError};

/// The number of skipped rows that are listed.
const LISTED: usize = 5;

/// Problems cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// The task cannot be used.
    #[error("cannot use task {name:?}; built in are {}", Task::BUILTIN.join(", "))]
    Task {
        /// The name or folder.
        name: String,
        /// The cause.
        #[source]
        source: TaskError,
    },
    /// The files cannot be read.
    #[error("cannot read rows")]
    Rows(#[from] RowsError),
    /// There are no problems.
    #[error("`{key}` has no problems{}; list files with rows that can be graded", because(skipped))]
    Empty {
        /// The configuration key of the files.
        key: String,
        /// Why rows were skipped; none where there are no rows.
        skipped: Vec<String>,
    },
    /// There are too few problems.
    #[error(
        "`{key}` has {found} problems, and a step needs {wanted} different ones; lower `rollout.problems`"
    )]
    Few {
        /// The configuration key of the files.
        key: String,
        /// The number of problems.
        found: usize,
        /// The number a step needs.
        wanted: usize,
    },
}

/// The number of skipped rows, with the first reason.
fn because(skipped: &[String]) -> String {
    match skipped {
        [] => ": the files have no rows".to_owned(),
        [first, ..] => {
            format!(": all {} rows are skipped, the first because of {first}", skipped.len())
        }
    }
}

/// The built-in task of this name, or the one in this folder.
pub(crate) fn task(name: &str) -> Result<Task, DataError> {
    match Task::builtin(name) {
        Some(task) => Ok(task),
        None => Task::load(Path::new(name))
            .map_err(|source| DataError::Task { name: name.to_owned(), source }),
    }
}

/// The problems of files, at least `least`, and notes about skipped rows.
pub(crate) fn problems(
    task: &Task,
    paths: &[PathBuf],
    key: &str,
    least: usize,
) -> Result<(Vec<Problem>, Vec<String>), DataError> {
    let mut rows = task.read_files(paths)?;
    let mut why: Vec<String> = rows.bad.iter().map(ToString::to_string).collect();
    rows.problems.retain(|problem| {
        let answered = !problem.ground_truth.trim().is_empty();
        if !answered {
            let id: String = problem.id.chars().take(80).collect();
            why.push(format!("problem {id}: it has no ground truth"));
        }
        answered
    });
    let found = rows.problems.len();
    if found == 0 {
        return Err(DataError::Empty { key: key.to_owned(), skipped: why });
    }
    let mut notes = Vec::new();
    if !why.is_empty() {
        notes.push(format!("{} rows of `{key}` are skipped", why.len()));
        notes.extend(why.into_iter().take(LISTED));
    }
    match found < least {
        true => Err(DataError::Few { key: key.to_owned(), found, wanted: least }),
        false => Ok((rows.problems, notes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_without_an_answer_are_named_and_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows.jsonl");
        let row = |id: &str, truth: &str| {
            format!(
                "{{\"id\":\"{id}\",\"problem_statement\":\"?\",\"qa_type\":\"Free-form\",\"domain\":\"math\"{truth}}}\n"
            )
        };
        let text = [
            row("a", ",\"ground_truth\":\"1\""),
            row("b", ""),
            row("c", ",\"ground_truth\":\" \""),
        ]
        .concat();
        std::fs::write(&path, text).unwrap();
        let task = task("instruct_pretrain").unwrap();
        let (found, notes) = problems(&task, std::slice::from_ref(&path), "data.train", 1).unwrap();
        assert_eq!(found.len(), 1);
        assert!(notes[0].contains("2 rows"), "{notes:?}");
        assert!(notes.iter().any(|note| note.contains("row 2")), "{notes:?}");
        let error = problems(&task, &[path], "data.train", 2).unwrap_err();
        assert!(error.to_string().contains("has 1 problems"), "{error}");
    }

    #[test]
    fn files_without_problems_say_why() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows.jsonl");
        let task = task("instruct_pretrain").unwrap();
        let fails = |text: &str| {
            std::fs::write(&path, text).unwrap();
            problems(&task, std::slice::from_ref(&path), "data.problems", 1)
                .unwrap_err()
                .to_string()
        };
        let text = fails("");
        assert!(text.contains("`data.problems` has no problems: the files have no rows"), "{text}");
        let row = "{\"id\":\"b\",\"problem_statement\":\"?\",\"qa_type\":\"Free-form\",\"domain\":\"math\"}\n";
        let text = fails(row);
        assert!(
            text.contains("all 1 rows are skipped, the first because of ")
                && text.contains("row 1"),
            "{text}"
        );
    }

    #[test]
    fn an_unknown_task_is_named() {
        let error = task("nowhere/at/all").unwrap_err();
        assert!(error.to_string().contains("nowhere/at/all"), "{error}");
    }
}
