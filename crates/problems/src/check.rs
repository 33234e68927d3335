//! A check that has to run in a sandbox, and how its output becomes a grade.
//!
//! A description only: the caller runs it. The sandbox has to be a new one that no model has used.

use std::{path::PathBuf, sync::Arc, time::Duration};

use serde_json::json;

use crate::{Grade, swe::TestLog};

/// The most characters that are kept of what a grader prints besides its score.
const MAX_EXPLANATION: usize = 4000;

/// A file of a grading sandbox: its path there, and its bytes, shared by all checks with that file.
pub type GraderFile = (PathBuf, Arc<[u8]>);

/// A command that grades an answer in a new sandbox.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// The image of the sandbox. `None`: the default image.
    pub image: Option<String>,
    /// Files to write first: absolute path and contents.
    pub files: Vec<GraderFile>,
    /// The shell command. Capture at least the first and the last 8 MB of its standard output.
    pub command: String,
    /// Time limit; beyond it the check has failed.
    pub timeout: Duration,
    /// How the output becomes a score.
    pub score: ScoreFrom,
}

/// How the output of a check becomes a score.
#[derive(Clone, Debug, PartialEq)]
pub enum ScoreFrom {
    /// The last line of standard output that is not blank is a number from 0 to 1.
    LastNumber,
    /// Standard output is the log of a repository's tests.
    Tests(TestLog),
}

impl Check {
    /// The grade, or why the check itself failed. `exit_code` is `None` if the command exceeded its time limit.
    pub fn grade(&self, stdout: &str, exit_code: Option<i32>) -> Result<Grade, String> {
        match &self.score {
            ScoreFrom::LastNumber => last_number(stdout, exit_code, self.timeout),
            ScoreFrom::Tests(log) => log.grade(stdout, exit_code),
        }
    }
}

fn last_number(stdout: &str, exit_code: Option<i32>, timeout: Duration) -> Result<Grade, String> {
    let last = stdout.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or("");
    let shown: String = last.chars().take(200).collect();
    match exit_code {
        None => return Err(format!("the grader ran longer than {} s", timeout.as_secs())),
        Some(0) => {}
        Some(code) => {
            return Err(format!(
                "the grader ended with exit code {code}; its last line: {shown:?}"
            ));
        }
    }
    match last.parse::<f64>() {
        Ok(score) if (0.0..=1.0).contains(&score) => {
            Ok(Grade { score, details: json!({ "output": explanation(stdout) }) })
        }
        Ok(score) => Err(format!("the grader's score is {score}, not from 0 to 1")),
        Err(_) => Err(format!("the grader's last line is not a number: {shown:?}")),
    }
}

/// The end of what a grader printed before its score.
fn explanation(stdout: &str) -> String {
    let printed = stdout.trim_end();
    let before = printed.rsplit_once('\n').map_or("", |(before, _)| before).trim_end();
    let start = before.char_indices().rev().nth(MAX_EXPLANATION - 1).map_or(0, |(start, _)| start);
    before[start..].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_the_score() {
        let minute = Duration::from_secs(60);
        let grade = |stdout: &str, code| last_number(stdout, code, minute);
        assert_eq!(grade("working\n0.25\n\n", Some(0)).unwrap().score, 0.25);
        assert_eq!(grade("1", Some(0)).unwrap().score, 1.0);
        let said = |stdout: &str| grade(stdout, Some(0)).unwrap().details["output"].clone();
        assert_eq!(said("two of\nthree tests pass\n0.6\n"), "two of\nthree tests pass");
        assert_eq!(said("0.6"), "");
        assert_eq!(said(&format!("{}\n1", "é".repeat(9000))), "é".repeat(MAX_EXPLANATION));
        for (stdout, code, why) in [
            ("", Some(0), "not a number: \"\""),
            ("1\nTraceback", Some(0), "not a number: \"Traceback\""),
            ("1.5", Some(0), "not from 0 to 1"),
            ("NaN", Some(0), "not from 0 to 1"),
            ("1", Some(3), "exit code 3"),
            ("1", None, "longer than 60 s"),
        ] {
            let error = grade(stdout, code).unwrap_err();
            assert!(error.contains(why), "{stdout:?}: {error}");
        }
    }
}
