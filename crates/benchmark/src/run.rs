//! The run: plays the attempts that are due, a bounded number at once, until none is left or nothing works any more;
//! and its summary, `results.json`, with every field of the reference's and more.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use attempt::Sandboxes;
use model::Model;
use results::{AttemptRecord, Mode, ResultsDir, Run, TaskInfo, VERSION};
use sandbox::Runtime;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use trajectory::{Usage, error_chain};

use crate::{
    Due, Error, Plan, Progress, ProgressEvent, Tally, breaker::Breaker, due::Work, judge::Judge,
    limited_model::LimitedModel,
};

/// Sandboxes created ahead, where a run is long enough for it to matter.
const WARM_SANDBOXES: usize = 2;

/// Runs with fewer attempts create none ahead.
const LONG_RUN: usize = 8;

/// A run about to start.
pub struct Benchmark<M, R> {
    /// What is played and graded now.
    pub plan: Plan,
    /// What of it is not done yet.
    pub due: Due,
    /// All attempts of the run, those of earlier commands included, for the summary.
    pub all: Plan,
    /// The directory, opened with [`crate::prepare_run`].
    pub dir: ResultsDir,
    /// What is recorded about the run.
    pub run: Run,
    /// The model under test.
    pub model: M,
    /// The judge, where one is configured.
    pub judge: Option<M>,
    /// Creates sandboxes. May be absent where neither the modes nor the graders need any.
    pub runtime: Option<Arc<R>>,
    /// How much is done at once.
    pub concurrency: Concurrency,
    /// The settings under the reference's names, for the summary.
    pub config: Value,
    /// Rows that could not be used, for the summary.
    pub bad_rows: Vec<String>,
    /// Receives the progress.
    pub progress: Arc<dyn Progress>,
}

/// How much is done at once, and how patiently. No result depends on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Concurrency {
    /// Sandboxes with an episode in them.
    pub sandboxes: usize,
    /// Concurrent calls to the model, and as many to the judge.
    pub model_calls: usize,
    /// Conversations the model caches. With more of them in progress it would read each from the start at every turn.
    pub conversations: usize,
    /// Tries of an attempt before it counts as failed.
    pub tries: u32,
    /// The wait before the second try; each later one is twice as long.
    pub first_wait: Duration,
    /// The run ends after this many consecutive failed attempts.
    pub max_failures: u32,
}

impl Default for Concurrency {
    fn default() -> Self {
        Self {
            sandboxes: 4,
            model_calls: 4,
            conversations: usize::MAX,
            tries: 3,
            first_wait: Duration::from_secs(1),
            max_failures: 10,
        }
    }
}

impl Concurrency {
    /// Attempts in progress. Those without a sandbox only wait for the model, so both bounds count.
    fn attempts(&self) -> usize {
        self.sandboxes.saturating_add(self.model_calls).min(self.conversations).max(1)
    }
}

/// The outcome of a run.
#[derive(Debug)]
pub struct RunOutcome {
    /// The summary of the run, as in `results.json`.
    pub summary: Summary,
    /// The attempts of this command that are not finished.
    pub unfinished: usize,
    /// How the run ended.
    pub end: RunEnd,
}

/// How a run ended. Finished attempts are stored in any case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// Every attempt was played.
    Complete,
    /// The caller cancelled the run.
    Cancelled,
    /// Nothing worked any more.
    Failed {
        /// What failed.
        cause: String,
    },
}

/// What the attempts of a run share.
pub(crate) struct Runner<M, R: Runtime> {
    pub(crate) plan: Plan,
    pub(crate) run: Run,
    pub(crate) dir: ResultsDir,
    pub(crate) model: LimitedModel<M>,
    pub(crate) judge: Option<Judge<M>>,
    pub(crate) sandboxes: Sandboxes<R>,
    pub(crate) concurrency: Concurrency,
    pub(crate) progress: Arc<dyn Progress>,
    pub(crate) cancel: CancellationToken,
    pub(crate) breaker: Arc<Breaker>,
}

/// The result of a unit of work.
#[derive(Debug)]
pub(crate) enum Finished {
    /// The attempt is stored.
    Stored(Box<AttemptRecord>),
    /// It was cancelled, and is due again when the run is resumed.
    Cancelled,
}

impl<M: Model, R: Runtime> Benchmark<M, R> {
    /// Runs until all attempts are played, `cancel` is cancelled, or nothing works any more.
    pub async fn run(mut self, cancel: CancellationToken) -> Result<RunOutcome, Error> {
        let start = Instant::now();
        let (config, bad_rows) = (self.config.clone(), std::mem::take(&mut self.bad_rows));
        let (all, due) = (self.all.clone(), std::mem::take(&mut self.due.work));
        let mut tally = std::mem::take(&mut self.due.tally);
        let warnings = std::mem::take(&mut self.due.warnings);
        let runner = Arc::new(self.into_runner(cancel.child_token()));
        for warning in &warnings {
            runner.progress.on_event(&ProgressEvent::Warning(warning));
        }
        runner.progress.on_event(&ProgressEvent::Started { tally: &tally, due: due.len() });
        let mut due = due;
        let unfinished = runner.work_off(&mut due, &mut tally).await + due.len();
        if let Err(error) = runner.sandboxes.close().await {
            let warning = format!("a sandbox may be left: {}", error_chain(&error));
            runner.progress.on_event(&ProgressEvent::Warning(&warning));
        }
        let seconds = start.elapsed().as_secs_f64();
        let summary = Summary::of(&runner.dir, &all, &runner.run, config, bad_rows, seconds);
        let saved = runner.dir.save_results(&summary).map_err(Error::Results);
        let end = match (runner.breaker.cause(), cancel.is_cancelled()) {
            (Some(cause), _) => RunEnd::Failed { cause },
            (None, true) if unfinished + summary.ungraded > 0 => RunEnd::Cancelled,
            (None, _) => saved.map(|()| RunEnd::Complete)?,
        };
        Ok(RunOutcome { summary, unfinished, end })
    }

    fn into_runner(self, cancel: CancellationToken) -> Runner<M, R> {
        let Concurrency { sandboxes, model_calls, max_failures, .. } = self.concurrency;
        let time_limit = self.plan.settings.limits.time;
        let attempts: usize = self.plan.tasks.iter().map(|task| task.attempts()).sum();
        let warm = if attempts >= LONG_RUN { WARM_SANDBOXES } else { 0 };
        let breaker = Arc::new(Breaker::new(cancel.clone(), max_failures));
        Runner {
            sandboxes: Sandboxes::new(self.runtime, sandboxes, warm),
            model: LimitedModel::new(self.model, model_calls).breaking(&breaker),
            judge: self.judge.map(|judge| Judge::new(judge, model_calls, max_failures, time_limit)),
            plan: self.plan,
            run: self.run,
            dir: self.dir,
            concurrency: self.concurrency,
            progress: self.progress,
            breaker,
            cancel,
        }
    }
}

impl<M: Model, R: Runtime> Runner<M, R> {
    /// The main loop: starts what is due, receives what is finished. Returns how much of what it started was cancelled.
    async fn work_off(self: &Arc<Self>, due: &mut VecDeque<Work>, tally: &mut Tally) -> usize {
        let limit = self.concurrency.attempts();
        let (mut running, mut started) = (JoinSet::new(), HashMap::new());
        let mut cancelled = 0;
        loop {
            while running.len() < limit && !self.cancel.is_cancelled() {
                let Some(work) = due.pop_front() else { break };
                let planned = work.attempt().clone();
                started.insert(running.spawn(Arc::clone(self).work(work)).id(), planned);
            }
            let Some(joined) = running.join_next_with_id().await else { return cancelled };
            let id = joined.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
            let finished = match (joined, started.remove(&id)) {
                (Ok((_, finished)), _) => finished,
                (Err(panic), Some(planned)) => self.panicked(&planned, &panic),
                (Err(_), None) => Ok(Finished::Cancelled),
            };
            match finished {
                Ok(Finished::Stored(attempt)) => {
                    tally.add(&attempt);
                    let event = ProgressEvent::Finished { attempt: &attempt, tally };
                    self.progress.on_event(&event);
                }
                Ok(Finished::Cancelled) => cancelled += 1,
                Err(error) => self.breaker.trip(error_chain(&error)),
            }
        }
    }

    async fn work(self: Arc<Self>, work: Work) -> Result<Finished, Error> {
        match work {
            Work::Play(planned) => self.play(&planned).await,
            Work::Grade(planned) => self.grade_stored(&planned).await,
        }
    }
}

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
    /// The mean over problems of the mean score of their graded attempts; null where there are none.
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
    /// Summarizes the directory of a run, with the tasks of earlier commands that `plan` lacks. `seconds` is how long this
    /// process worked on it.
    fn of(
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
                tally.add(&run.current(attempt));
            }
        }
        let mut names: Vec<&str> = plan.tasks.iter().map(|task| task.task.name.as_str()).collect();
        let is_absent = |task: &&TaskInfo| !names.contains(&task.name.as_str());
        let absent: Vec<&TaskInfo> = run.tasks.iter().filter(is_absent).collect();
        if !absent.is_empty() {
            for task in &absent {
                tally.add_task(&task.name, &run.modes, task.planned());
            }
            // Their problems are not loaded: what is stored counts.
            for attempt in dir.attempts().into_iter().flatten().flatten() {
                if absent.iter().any(|task| task.name == attempt.key.task) {
                    tally.add(&run.current(attempt));
                }
            }
            names.extend(absent.iter().map(|task| task.name.as_str()));
        }
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

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
