//! Scores of attempts whose rows the grader has come to reject: an earlier version graded what it could not judge.

use std::collections::{BTreeMap, HashSet};

use results::{EarlierGrade, ResultsDir};
use serde_json::json;

use crate::{Error, TaskRows};

/// Takes the score from attempts at problems that the rows of their task no longer have, and keeps it as an earlier grade.
/// They count as ungraded from then on. Returns the number of attempts without a valid row, by task.
///
/// To be called with the rows that the run was started with, by the holder of the directory's lock.
///
/// # Errors
/// If an attempt cannot be stored.
pub fn withdraw_scores(
    dir: &ResultsDir,
    rows: &[TaskRows],
) -> Result<BTreeMap<String, usize>, Error> {
    let valid: BTreeMap<&str, HashSet<&str>> = rows
        .iter()
        .map(|rows| {
            let ids = rows.problems.iter().map(|problem| problem.id.as_str());
            (rows.task.name.as_str(), ids.collect())
        })
        .collect();
    let mut withdrawn = BTreeMap::new();
    for mut attempt in dir.attempts().into_iter().flatten().flatten() {
        let key = &attempt.key;
        let is_valid = |ids: &HashSet<&str>| ids.contains(key.id.as_str());
        if valid.get(key.task.as_str()).is_none_or(is_valid) {
            continue;
        }
        *withdrawn.entry(key.task.clone()).or_insert(0) += 1;
        if let Some(score) = attempt.score.take() {
            let ungraded =
                json!({ "ungraded": "the grader does not accept the row of this problem" });
            let grade = std::mem::replace(&mut attempt.grade, ungraded);
            attempt.grading.earlier.push(EarlierGrade { score, grade });
            dir.save(&attempt).map_err(Error::Results)?;
        }
    }
    Ok(withdrawn)
}
