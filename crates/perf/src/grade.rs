//! What grading costs: answers per second of our math grader, beside the official Math-Verify on the same cases, one
//! CPU each.

mod answers;

use std::{
    ffi::OsStr,
    hint, io,
    process::Stdio,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use tokio::{io::AsyncWriteExt, process::Command};

pub use self::answers::synthetic_cases;

/// Runs the official library on JSON lines from standard input.
const MATH_VERIFY: &str = include_str!("grade/math_verify.py");

/// The cases are graded repeatedly for at least this long, since one pass is too short to be measured.
const MIN_TIME: Duration = Duration::from_millis(500);

/// An answer and the right answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Case {
    /// The right answer.
    pub gold: String,
    /// The answer to grade.
    pub pred: String,
}

/// The speed of our math grader.
#[derive(Clone, Debug)]
pub struct GraderFigures {
    /// The score of each case.
    pub scores: Vec<f64>,
    /// Answers graded per second.
    pub per_second: f64,
}

/// Grades the cases with our math grader, repeatedly.
pub fn measure(cases: &[Case]) -> GraderFigures {
    let all = || cases.iter().map(|case| grade::math::reward(&case.gold, &case.pred)).collect();
    // Compiles patterns and fills caches before the clock starts.
    let scores: Vec<f64> = all();
    let began = Instant::now();
    let mut rounds = 0_u32;
    while rounds == 0 || began.elapsed() < MIN_TIME {
        let again: Vec<f64> = all();
        hint::black_box(again);
        rounds += 1;
    }
    let graded = f64::from(rounds) * cases.len() as f64;
    GraderFigures { scores, per_second: graded / began.elapsed().as_secs_f64().max(1e-9) }
}

/// What the official library printed.
#[derive(Clone, Debug, Deserialize)]
pub struct MathVerifyFigures {
    /// Version of the package.
    pub version: String,
    /// Time for all cases, in seconds.
    pub seconds: f64,
    /// The score of each case.
    pub scores: Vec<f64>,
}

/// The official library could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum MathVerifyError {
    /// Python cannot be started.
    #[error("cannot start {python}")]
    Start {
        /// The interpreter.
        python: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// Python does not have the package.
    #[error("{python} does not have the package math-verify")]
    Missing {
        /// The interpreter.
        python: String,
    },
    /// The script failed.
    #[error("{python} did not grade the cases: {why}")]
    Failed {
        /// The interpreter.
        python: String,
        /// The last line it printed on standard error, or what is wrong with its output.
        why: String,
    },
}

/// Grades the cases with the official Math-Verify, by a Python interpreter that has it.
///
/// # Errors
/// If Python or the package is missing, or the script fails.
pub async fn measure_math_verify(
    python: &OsStr,
    cases: &[Case],
) -> Result<MathVerifyFigures, MathVerifyError> {
    let name = || python.to_string_lossy().into_owned();
    let start = |source| MathVerifyError::Start { python: name(), source };
    let failed = |why: String| MathVerifyError::Failed { python: name(), why };
    let mut child = Command::new(python)
        .args(["-c", MATH_VERIFY])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(start)?;
    let mut lines = Vec::new();
    for case in cases {
        serde_json::to_writer(&mut lines, case).map_err(|error| failed(error.to_string()))?;
        lines.push(b'\n');
    }
    let stdin = child.stdin.take();
    // Concurrently: the script may fill its output before it has read all of its input.
    let (_, output) = tokio::join!(
        async move {
            if let Some(mut stdin) = stdin {
                // A script that stops reading reports the reason itself.
                let _ = stdin.write_all(&lines).await;
            }
        },
        child.wait_with_output()
    );
    let output = output.map_err(start)?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let last = errors.lines().rev().find(|line| !line.trim().is_empty());
        // Python's own message is the only sign of a missing package.
        if last.is_some_and(|line| line.starts_with("ModuleNotFoundError")) {
            return Err(MathVerifyError::Missing { python: name() });
        }
        return Err(failed(last.unwrap_or("no reason given").to_owned()));
    }
    let figures: MathVerifyFigures =
        serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))?;
    match figures.scores.len() == cases.len() {
        true => Ok(figures),
        false => Err(failed(format!("{} of {} scores", figures.scores.len(), cases.len()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_graded_and_counted() {
        let case = |gold: &str| Case { gold: gold.into(), pred: "\\boxed{3}".into() };
        let figures = measure(&[case("3"), case("4")]);
        assert_eq!(figures.scores, [1.0, 0.0]);
        assert!(figures.per_second > 1.0, "{}", figures.per_second);
    }
}
