//! Pure functions: graders, and trajectories from events.

use grade::lines::Kind;
use pyo3::prelude::*;

use crate::failure::Failure;

/// Grades one object in JSON; returns the grade in JSON and as a number.
#[pyfunction]
pub(crate) fn grade_line(py: Python<'_>, kind: &str, line: &str) -> PyResult<(String, f64)> {
    let refused = |message: String| Failure::usage(message).into_exception(py);
    let kind: Kind =
        kind.parse().map_err(|error: grade::lines::UnknownKind| refused(error.to_string()))?;
    let graded = py
        .detach(|| grade::lines::grade_line(kind, line))
        .map_err(|error| refused(error_text::chain(&error)))?;
    Ok((graded.json, graded.score))
}

/// Checks all constraints of an IFBench row: strict, loose, and the official reward.
#[pyfunction]
pub(crate) fn check_constraints(
    py: Python<'_>,
    ground_truth: &str,
    response: &str,
) -> PyResult<(bool, bool, f64)> {
    if let Some(unknown) = grade::ifbench::first_unknown(ground_truth) {
        let message = format!("unknown constraint `{unknown}`");
        return Err(Failure::usage(message).into_exception(py));
    }
    Ok(py.detach(|| {
        let verdict = grade::ifbench::check_all(ground_truth, response);
        (verdict.strict, verdict.loose, grade::ifbench::score(ground_truth, response))
    }))
}

/// The trajectory of an episode in JSON, and its messages, from the lines of its events.
#[pyfunction]
pub(crate) fn trajectory_of(py: Python<'_>, events: &str) -> PyResult<(String, String)> {
    let refused = |message: String| Failure::usage(message).into_exception(py);
    let lines = trajectory::read(events)
        .map_err(|error| refused(format!("not the events of an episode: {error}")))?;
    let (messages, _) = trajectory::history(&lines);
    let trajectory = trajectory::Trajectory::from_events(&lines);
    let json = |error: serde_json::Error| refused(error.to_string());
    Ok((
        serde_json::to_string(&trajectory).map_err(json)?,
        serde_json::to_string(&messages).map_err(json)?,
    ))
}
