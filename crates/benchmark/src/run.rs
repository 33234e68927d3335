//! The run: attempts that are due are made, so many at once, until none is left or nothing works any more.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use agent::Watch;
use model::Model;
use problems::Grader;
use results::{Attempt, Folder, Run};
use sandbox::Runtime;
use serde_json::Value;
use tokio::task::{JoinError, JoinSet};

use crate::{
    Error, News, Plan, Progress, Summary, Tally, breaker::Breaker, computer::Computers,
    error::chain, gate::Gated, judge::Judge, plan::Job,
};

/// Sandboxes made ahead, where a run is long enough for it to matter.
const AHEAD: usize = 2;

/// Shorter runs make none ahead.
const LONG: usize = 8;

/// A run about to begin.
pub struct Benchmark<M, R> {
    /// What is to be measured.
    pub plan: Plan,
    /// Where it is kept; claimed before.
    pub folder: Folder,
    /// What is written there about it.
    pub run: Run,
    /// Who is measured.
    pub model: M,
    /// Who judges, where somebody does.
    pub judge: Option<M>,
    /// Who makes sandboxes. May be absent where neither the modes nor the graders need any.
    pub runtime: Option<Arc<R>>,
    /// How much is done at once.
    pub pace: Pace,
    /// The settings with the reference's names, for the summary.
    pub config: Value,
    /// Rows that could not be used, for the summary.
    pub bad_rows: Vec<String>,
    /// Who hears how it goes on.
    pub progress: Arc<dyn Progress>,
}

/// How much is done at once, and how patiently. No result depends on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Pace {
    /// Sandboxes with an episode in them.
    pub sandboxes: usize,
    /// Calls to the model under way; as many to the judge.
    pub model_calls: usize,
    /// Conversations the model remembers. With more of them under way it would read each anew at every turn.
    pub conversations: usize,
    /// How often an attempt is begun before it counts as failed on our side.
    pub tries: u32,
    /// The wait before the second time; each later one is twice as long.
    pub first_wait: Duration,
    /// After so many failures of ours in a row, with no attempt finished between, the run ends.
    pub failures_in_a_row: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            sandboxes: 4,
            model_calls: 4,
            conversations: usize::MAX,
            tries: 3,
            first_wait: Duration::from_secs(1),
            failures_in_a_row: 10,
        }
    }
}

impl Pace {
    /// Attempts under way. Those without a sandbox wait for the model only, so both bounds count.
    fn attempts(&self) -> usize {
        self.sandboxes.saturating_add(self.model_calls).min(self.conversations).max(1)
    }
}

/// What came of a run.
#[derive(Debug)]
pub struct Finished {
    /// The figures; also in `results.json`.
    pub summary: Summary,
    /// How it ended.
    pub end: End,
}

/// How a run ended. Whatever was finished is kept in any case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Every attempt was made.
    Complete,
    /// The caller stopped it.
    Stopped,
    /// Nothing worked any more.
    Broken {
        /// What failed.
        cause: String,
    },
}

/// What the attempts of a run share.
pub(crate) struct Shared<M, R: Runtime> {
    pub(crate) plan: Plan,
    pub(crate) folder: Folder,
    pub(crate) model: Gated<M>,
    pub(crate) judge: Option<Judge<M>>,
    pub(crate) computers: Computers<R>,
    pub(crate) pace: Pace,
    pub(crate) progress: Arc<dyn Progress>,
    pub(crate) watch: Watch,
    pub(crate) breaker: Breaker,
}

/// Something to be done.
#[derive(Debug)]
pub(crate) enum Work {
    /// An attempt to be made.
    Make(Job),
    /// An answer to be graded. It is read when its turn comes: all of them could be large.
    Grade(Job),
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum Done {
    /// It is kept.
    Kept(Box<Attempt>),
    /// It was stopped, and is due again when the run is taken up.
    Stopped,
}

impl<M: Model, R: Runtime> Benchmark<M, R> {
    /// Runs until all is done, somebody stops it, or nothing works any more.
    pub async fn run(self, stop: Watch) -> Result<Finished, Error> {
        let began = Instant::now();
        let Self { folder, run, config, bad_rows, .. } = &self;
        let (folder, run, config, bad_rows) =
            (folder.clone(), run.clone(), config.clone(), bad_rows.clone());
        let shared = Arc::new(self.share());
        let mut tally = Tally::new(&shared.plan, &shared.plan.modes);
        let mut due = shared.due(&mut tally);
        shared.progress.tell(&News::Begun { tally: &tally, due: due.len() });
        let stopping = tokio::spawn({
            let (shared, mut stop) = (Arc::clone(&shared), stop.clone());
            async move {
                stop.stopped().await;
                shared.breaker.stop();
            }
        });
        let undone = shared.work_off(&mut due, &mut tally).await + due.len();
        stopping.abort();
        if let Err(error) = shared.computers.close().await {
            shared.progress.tell(&News::Note(&format!("a sandbox may be left: {}", chain(&error))));
        }
        let seconds = began.elapsed().as_secs_f64();
        let summary = Summary::of(&folder, &shared.plan, &run, config, bad_rows, seconds);
        let kept = folder.keep_results(&summary).map_err(Error::Results);
        let end = match (shared.breaker.cause(), stop.is_stopped()) {
            (Some(cause), _) => End::Broken { cause },
            (None, true) if undone + summary.ungraded > 0 => End::Stopped,
            (None, _) => kept.map(|()| End::Complete)?,
        };
        Ok(Finished { summary, end })
    }

    fn share(self) -> Shared<M, R> {
        let (stopper, watch) = agent::stopper();
        let Pace { sandboxes, model_calls, failures_in_a_row, .. } = self.pace;
        let patience = self.plan.method.caps.time;
        let attempts: usize = self.plan.tasks.iter().map(|asked| asked.attempts()).sum();
        let ahead = if attempts >= LONG { AHEAD } else { 0 };
        Shared {
            computers: Computers::new(self.runtime, sandboxes, ahead),
            model: Gated::new(self.model, model_calls),
            judge: self
                .judge
                .map(|judge| Judge::new(judge, model_calls, failures_in_a_row, patience)),
            plan: self.plan,
            folder: self.folder,
            pace: self.pace,
            progress: self.progress,
            watch,
            breaker: Breaker::new(stopper, failures_in_a_row),
        }
    }
}

impl<M: Model, R: Runtime> Shared<M, R> {
    /// The main loop: begins what is due, takes what is done. Says how much of what it began was stopped.
    async fn work_off(self: &Arc<Self>, due: &mut VecDeque<Work>, tally: &mut Tally) -> usize {
        let crowd = self.pace.attempts();
        let (mut running, mut begun) = (JoinSet::new(), HashMap::new());
        let mut stopped = 0;
        loop {
            while running.len() < crowd && !self.watch.is_stopped() {
                let Some(work) = due.pop_front() else { break };
                let job = work.job().clone();
                begun.insert(running.spawn(Arc::clone(self).work(work)).id(), job);
            }
            let Some(joined) = running.join_next_with_id().await else { return stopped };
            let id = joined.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
            let done = match (joined, begun.remove(&id)) {
                (Ok((_, done)), _) => done,
                (Err(lost), Some(job)) => self.broken_off(&job, &lost),
                (Err(_), None) => Ok(Done::Stopped),
            };
            match done {
                Ok(Done::Kept(attempt)) => {
                    tally.add(&attempt);
                    self.progress.tell(&News::Finished { attempt: &attempt, tally });
                }
                Ok(Done::Stopped) => stopped += 1,
                Err(error) => self.breaker.end(chain(&error)),
            }
        }
    }

    async fn work(self: Arc<Self>, work: Work) -> Result<Done, Error> {
        match work {
            Work::Make(job) => self.attempt(&job).await,
            Work::Grade(job) => self.grade_again(&job).await,
        }
    }

    /// What is not finished yet; what is, is counted. What failed before comes last: it may fail again, and nothing
    /// else should have to wait for it.
    fn due(&self, tally: &mut Tally) -> VecDeque<Work> {
        let (mut due, mut failed) = (VecDeque::new(), Vec::new());
        for job in self.plan.jobs(&self.plan.modes) {
            let attempt = match self.folder.attempt(&job.key) {
                Ok(attempt) => attempt,
                Err(error) => {
                    self.progress.tell(&News::Note(&format!("made again: {}", chain(&error))));
                    None
                }
            };
            match attempt {
                Some(attempt) if attempt.score.is_some() => tally.add(&attempt),
                Some(attempt) if attempt.is_of_the_model() => match self.is_gradable(&job) {
                    true => due.push_back(Work::Grade(job)),
                    false => tally.add(&attempt),
                },
                Some(_) => failed.push(Work::Make(job)),
                None => due.push_back(Work::Make(job)),
            }
        }
        due.extend(failed);
        due
    }

    /// Whether an answer without a grade can get one.
    fn is_gradable(&self, job: &Job) -> bool {
        let (task, _) = self.plan.of(job);
        task.grader != Grader::Judge || self.judge.is_some()
    }
}

impl Work {
    fn job(&self) -> &Job {
        match self {
            Self::Make(job) | Self::Grade(job) => job,
        }
    }
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
