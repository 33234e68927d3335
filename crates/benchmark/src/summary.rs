//! What a run comes to: `results.json`, with every field of the reference's and more.

use results::{Folder, Mode, Run, VERSION};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use trajectory::Usage;

use crate::{Plan, Tally};

/// What a run comes to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The version of this file.
    pub v: u32,
    /// How it was asked, with the reference's names.
    pub config: Value,
    /// The task; several are joined by commas.
    pub task: String,
    /// How many attempts are finished.
    pub total: usize,
    /// The mean over all of them; what failed or is not graded counts as 0.
    pub mean_score: f64,
    /// How many attempts failed on our side.
    pub num_errors: usize,
    /// How long processes worked on it, all of them together.
    pub elapsed_time_seconds: f64,
    /// The model.
    pub model: String,
    /// How many attempts there are to be.
    pub asked: usize,
    /// How many of them are missing: they are made when the run is taken up again.
    pub missing: usize,
    /// How many answers are not graded yet.
    pub ungraded: usize,
    /// Tokens of all attempts, as they were counted for payment.
    pub usage: Usage,
    /// Dollars, where prices are known.
    pub cost: Option<f64>,
    /// The figures of each task and mode.
    pub groups: Tally,
    /// Rows that could not be used, and why.
    pub bad_rows: Vec<String>,
}

impl Summary {
    /// Sums up what lies in a run's directory. `seconds` is how long this process worked on it.
    pub(crate) fn of(
        folder: &Folder,
        plan: &Plan,
        run: &Run,
        config: Value,
        bad_rows: Vec<String>,
        seconds: f64,
    ) -> Self {
        let mut tally = Tally::new(plan, &run.modes);
        for job in plan.jobs(&run.modes) {
            // What cannot be read counts as missing, and is made again.
            if let Ok(Some(attempt)) = folder.attempt(&job.key) {
                tally.add(&attempt);
            }
        }
        let names: Vec<&str> = plan.tasks.iter().map(|asked| asked.task.name.as_str()).collect();
        Self {
            v: VERSION,
            config,
            task: names.join(","),
            total: tally.finished(),
            mean_score: tally.mean_score(),
            num_errors: tally.infrastructure(),
            elapsed_time_seconds: earlier(folder) + seconds,
            model: run.model.clone(),
            asked: tally.asked(),
            missing: tally.asked().saturating_sub(tally.finished()),
            ungraded: tally.ungraded(),
            usage: tally.usage(),
            cost: tally.cost(),
            groups: tally,
            bad_rows,
        }
    }
}

/// How the reference calls these modes.
pub fn reference_mode(modes: &[Mode]) -> &'static str {
    match modes {
        [Mode::Llm] => "llm",
        [Mode::Sandbox] => "llm-in-sandbox",
        _ => "both",
    }
}

/// How long earlier processes worked, as far as they could still say so.
fn earlier(folder: &Folder) -> f64 {
    #[derive(Deserialize)]
    struct Then {
        elapsed_time_seconds: f64,
    }
    let then = folder.results().map(|then: Then| then.elapsed_time_seconds);
    then.filter(|seconds| seconds.is_finite() && *seconds >= 0.0).unwrap_or(0.0)
}
