//! The summary of a run: `results.json`, with every field of the reference's and more.

use results::{Mode, ResultsDir, Run, VERSION};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use trajectory::Usage;

use crate::{Plan, Tally};

/// The summary of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The version of this file.
    pub v: u32,
    /// The settings under the reference's names.
    pub config: Value,
    /// The task; several are joined by commas.
    pub task: String,
    /// Finished attempts.
    pub total: usize,
    /// The mean score of the graded attempts; null where there are none.
    pub mean_score: Option<f64>,
    /// Attempts that failed because of the infrastructure.
    pub num_errors: usize,
    /// Seconds that all processes together worked on it.
    pub elapsed_time_seconds: f64,
    /// The model.
    pub model: String,
    /// Planned attempts.
    #[serde(rename = "asked")]
    pub planned: usize,
    /// Planned attempts that are not finished: they are played when the run is resumed.
    pub missing: usize,
    /// Answers without a grade.
    pub ungraded: usize,
    /// Billed tokens of all attempts.
    pub usage: Usage,
    /// Cost in dollars, where prices are known.
    pub cost: Option<f64>,
    /// The counts of each task and mode.
    pub groups: Tally,
    /// Rows that could not be used, and why.
    pub bad_rows: Vec<String>,
}

impl Summary {
    /// Summarizes the directory of a run. `seconds` is how long this process worked on it.
    pub(crate) fn of(
        dir: &ResultsDir,
        plan: &Plan,
        run: &Run,
        config: Value,
        bad_rows: Vec<String>,
        seconds: f64,
    ) -> Self {
        let mut tally = Tally::new(plan, &run.modes);
        for planned in plan.attempts(&run.modes) {
            // A file that cannot be read counts as missing, and its attempt is played again.
            if let Ok(Some(attempt)) = dir.attempt(&planned.key) {
                tally.add(&attempt);
            }
        }
        let names: Vec<&str> = plan.tasks.iter().map(|task| task.task.name.as_str()).collect();
        Self {
            v: VERSION,
            config,
            task: names.join(","),
            total: tally.finished(),
            mean_score: tally.mean_score(),
            num_errors: tally.infrastructure(),
            elapsed_time_seconds: earlier_seconds(dir) + seconds,
            model: run.model.clone(),
            planned: tally.planned(),
            missing: tally.planned().saturating_sub(tally.finished()),
            ungraded: tally.ungraded(),
            usage: tally.usage(),
            cost: tally.cost(),
            groups: tally,
            bad_rows,
        }
    }
}

/// The reference's name for these modes.
pub fn reference_mode(modes: &[Mode]) -> &'static str {
    match modes {
        [Mode::Llm] => "llm",
        [Mode::Sandbox] => "llm-in-sandbox",
        _ => "both",
    }
}

/// The seconds that earlier processes worked, as far as they could record them.
fn earlier_seconds(dir: &ResultsDir) -> f64 {
    #[derive(Deserialize)]
    struct Earlier {
        elapsed_time_seconds: f64,
    }
    let earlier = dir.results().map(|earlier: Earlier| earlier.elapsed_time_seconds);
    earlier.filter(|seconds| seconds.is_finite() && *seconds >= 0.0).unwrap_or(0.0)
}
