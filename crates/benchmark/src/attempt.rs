//! One attempt: made, made again after failures of ours, graded and kept.

use std::time::Duration;

use model::Model;
use problems::Grading;
use results::{Attempt, Mode, Tokens, VERSION};
use sandbox::Runtime;
use serde_json::Value;
use tokio::task::JoinError;
use trajectory::{Outcome, Spent};

use crate::{
    Error, News,
    error::chain,
    journal::Record,
    plan::Job,
    run::{Done, Shared},
};

/// No wait between two tries is longer.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// An episode that says something about the model.
#[derive(Debug)]
pub(crate) struct Played {
    pub(crate) answer: String,
    pub(crate) outcome: Outcome,
    pub(crate) spent: Spent,
    /// What its grade is, or takes.
    pub(crate) grading: Grading,
    pub(crate) started: u64,
    pub(crate) wall_ms: u64,
    pub(crate) peak_memory: Option<u64>,
}

/// An episode that says nothing about the model.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// Somebody stopped it.
    Stopped,
    /// Our side failed.
    Failed {
        /// What failed.
        cause: String,
        /// What it used up until then.
        spent: Box<Spent>,
    },
    /// What the problem asks for cannot be had, however often it is tried: an image that is not there. That says
    /// nothing about the other problems either.
    Unfit {
        /// Why.
        cause: String,
    },
}

impl Trouble {
    /// A failure before the model was asked anything.
    pub(crate) fn failed(cause: impl Into<String>) -> Self {
        Self::Failed { cause: cause.into(), spent: Box::default() }
    }

    /// A sandbox that could not be made or filled.
    pub(crate) fn of_sandbox(error: &sandbox::Error) -> Self {
        match error.is_usage() {
            true => Self::Unfit { cause: chain(error) },
            false => Self::failed(chain(error)),
        }
    }

    /// What the end of an episode says about us, if anything.
    pub(crate) fn of(outcome: &Outcome, spent: Spent) -> Result<(), Self> {
        match outcome {
            Outcome::Cancelled => Err(Self::Stopped),
            Outcome::Infrastructure { cause } => {
                Err(Self::Failed { cause: cause.clone(), spent: Box::new(spent) })
            }
            _ => Ok(()),
        }
    }
}

impl<M: Model, R: Runtime> Shared<M, R> {
    /// Makes an attempt until it says something about the model, or our side has failed too often.
    pub(crate) async fn attempt(&self, job: &Job) -> Result<Done, Error> {
        let mut tries = 1;
        loop {
            let record = self.record(job)?;
            let played = match job.key.mode {
                Mode::Llm => self.plain(job, &record).await,
                Mode::Sandbox => self.sandboxed(job, &record).await,
            };
            let (cause, spent) = match played {
                Ok(played) => {
                    self.breaker.succeeded();
                    return self.keep(job, played, record, tries).await;
                }
                Err(Trouble::Stopped) => {
                    record.discard();
                    return Ok(Done::Stopped);
                }
                Err(Trouble::Unfit { cause }) => {
                    return self.keep_failure(job, cause, Spent::default(), record, tries);
                }
                Err(Trouble::Failed { cause, spent }) => (cause, spent),
            };
            if self.watch.is_stopped() {
                record.discard();
                return Ok(Done::Stopped);
            }
            if tries >= self.pace.tries {
                // Attempts count, not tries: few rows that never work must not end the run.
                self.breaker.failed(&cause);
                return self.keep_failure(job, cause, *spent, record, tries);
            }
            self.wait(job, tries, &cause).await;
            tries += 1;
        }
    }

    /// Grades an answer that has no grade yet.
    pub(crate) async fn grade_again(&self, job: &Job) -> Result<Done, Error> {
        let Some(attempt) = self.folder.attempt(&job.key).map_err(Error::Results)? else {
            return self.attempt(job).await;
        };
        let (task, problem) = self.plan.of(job);
        let grading = task.grading(problem, &attempt.answer);
        self.keep_graded(job, attempt, grading).await
    }

    /// Keeps what there is of work that panicked: a defect of ours that the other attempts have no part in.
    pub(crate) fn broken_off(&self, job: &Job, lost: &JoinError) -> Result<Done, Error> {
        let cause = format!("it broke off: {lost}");
        match self.folder.attempt(&job.key) {
            Ok(Some(attempt)) if attempt.is_of_the_model() => {
                self.progress.tell(&News::Ungraded { key: &job.key, cause: &cause });
                Ok(Done::Kept(Box::new(attempt)))
            }
            _ => {
                self.breaker.failed(&cause);
                self.keep_failure(job, cause, Spent::default(), self.record(job)?, 1)
            }
        }
    }

    async fn keep(
        &self,
        job: &Job,
        played: Played,
        record: Record,
        tries: u32,
    ) -> Result<Done, Error> {
        let tokens = self.settle(job, record)?;
        let attempt = Attempt {
            answer: played.answer,
            outcome: played.outcome,
            spent: played.spent,
            tokens,
            started: played.started,
            wall_ms: played.wall_ms,
            peak_memory: played.peak_memory,
            tries,
            ..self.blank(job)
        };
        if let Grading::Judge(_) | Grading::InSandbox(_) = played.grading {
            // The answer cost more than its grade will: it is not lost while somebody else thinks.
            self.folder.keep(&attempt).map_err(Error::Results)?;
        }
        self.keep_graded(job, attempt, played.grading).await
    }

    async fn keep_graded(
        &self,
        job: &Job,
        mut attempt: Attempt,
        grading: Grading,
    ) -> Result<Done, Error> {
        match self.grade(job, &grading).await {
            Ok(grade) => (attempt.score, attempt.grade) = (Some(grade.score), grade.details),
            Err(cause) => {
                self.progress.tell(&News::Ungraded { key: &job.key, cause: &cause });
                attempt.grade = serde_json::json!({ "ungraded": cause });
            }
        }
        self.folder.keep(&attempt).map_err(Error::Results)?;
        Ok(Done::Kept(Box::new(attempt)))
    }

    fn keep_failure(
        &self,
        job: &Job,
        cause: String,
        spent: Spent,
        record: Record,
        tries: u32,
    ) -> Result<Done, Error> {
        let tokens = self.settle(job, record)?;
        let outcome = Outcome::Infrastructure { cause };
        let attempt = Attempt { outcome, spent, tokens, tries, ..self.blank(job) };
        self.folder.keep(&attempt).map_err(Error::Results)?;
        Ok(Done::Kept(Box::new(attempt)))
    }

    /// Waits before the next try; not any longer once the run is to stop.
    async fn wait(&self, job: &Job, tries: u32, cause: &str) {
        let wait = self.pace.first_wait.saturating_mul(1 << (tries - 1).min(16)).min(LONGEST_WAIT);
        self.progress.tell(&News::Retried { key: &job.key, tries, wait, cause });
        let mut watch = self.watch.clone();
        tokio::select! {
            () = watch.stopped() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }

    fn record(&self, job: &Job) -> Result<Record, Error> {
        let (path, file) = self.folder.begin_trajectory(&job.key).map_err(Error::Results)?;
        Ok(Record::new(path, file))
    }

    /// Gives the record its name and counts its tokens.
    fn settle(&self, job: &Job, record: Record) -> Result<Tokens, Error> {
        let path = self.folder.trajectory_path(&job.key);
        let lines = record.settle(&path).map_err(|source| Error::Record { path, source })?;
        Ok(Tokens::of(&lines))
    }

    /// An attempt of which nothing is known but its problem.
    fn blank(&self, job: &Job) -> Attempt {
        let (_, problem) = self.plan.of(job);
        Attempt {
            v: VERSION,
            key: job.key.clone(),
            domain: problem.domain.clone(),
            subject: problem.subject.clone(),
            problem_statement: problem.statement.clone(),
            ground_truth: problem.ground_truth.clone(),
            answer: String::new(),
            score: None,
            grade: Value::Null,
            outcome: Outcome::Submitted,
            spent: Spent::default(),
            tokens: Tokens::default(),
            started: crate::now(),
            wall_ms: 0,
            peak_memory: None,
            tries: 1,
        }
    }
}
