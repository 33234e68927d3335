//! One attempt of a run: played, repeated after failures of the infrastructure, graded, stored.

use attempt::{Attempt, Cancelled, EventLog, Fault, Graded, Play, RetryPolicy};
use model::Model;
use results::{AttemptRecord, GradingHistory, Tokens, VERSION};
use sandbox::Runtime;
use serde_json::{Value, json};
use tokio::task::JoinError;
use trajectory::{Outcome, Spent};

use crate::{
    Error, ProgressEvent,
    limited_model::LimitedModel,
    plan::PlannedAttempt,
    run::{Finished, Runner},
};

/// Why an answer has no grade.
#[derive(Debug, thiserror::Error)]
enum Ungraded {
    #[error("the run was cancelled")]
    Cancelled,
    #[error("{0}")]
    Cause(String),
}

impl<M: Model, R: Runtime> Runner<M, R> {
    /// Plays an attempt until it says something about the model, or the infrastructure has failed too often.
    pub(crate) async fn play(&self, planned: &PlannedAttempt) -> Result<Finished, Error> {
        let play = self.play_of(planned);
        let retry =
            RetryPolicy { tries: self.concurrency.tries, first_wait: self.concurrency.first_wait };
        let played = retry
            .run(
                &self.cancel,
                |attempt: &Result<Attempt, Error>| attempt.as_ref().ok()?.retry_cause(),
                |retrying| {
                    self.progress
                        .on_event(&ProgressEvent::Retrying { key: &planned.key, retrying });
                },
                || async {
                    let attempt = attempt::answer(&play, self.event_log(planned)?).await;
                    for warning in &attempt.warnings {
                        self.progress.on_event(&ProgressEvent::Warning(warning));
                    }
                    Ok(attempt)
                },
            )
            .await;
        let (attempt, tries) = match played {
            Ok((attempt, tries)) => (attempt?, tries),
            Err(Cancelled) => return Ok(self.cancelled(planned)),
        };
        let failed_late = self.cancel.is_cancelled() && !attempt.is_answered();
        if attempt.outcome == Outcome::Cancelled || failed_late {
            return Ok(self.cancelled(planned));
        }
        self.count(&attempt.outcome);
        self.dir.save_trajectory(&planned.key).map_err(Error::Results)?;
        let record = AttemptRecord { tries, ..self.record(planned, &attempt) };
        if !attempt.is_answered() {
            self.dir.save(&record).map_err(Error::Results)?;
            return Ok(Finished::Stored(Box::new(record)));
        }
        self.grade_and_store(planned, record).await
    }

    /// Removes the events of an attempt that was cancelled; it is due again when the run is resumed.
    fn cancelled(&self, planned: &PlannedAttempt) -> Finished {
        self.dir.discard_trajectory(&planned.key);
        Finished::Cancelled
    }

    /// Grades an answer that was stored without a grade.
    pub(crate) async fn grade_stored(&self, planned: &PlannedAttempt) -> Result<Finished, Error> {
        match self.dir.attempt(&planned.key).map_err(Error::Results)? {
            Some(record) => self.grade_and_store(planned, record).await,
            None => self.play(planned).await,
        }
    }

    /// Stores what is known of an attempt whose task panicked: a defect of ours that the other attempts have no part in.
    pub(crate) fn panicked(
        &self,
        planned: &PlannedAttempt,
        panic: &JoinError,
    ) -> Result<Finished, Error> {
        let cause = format!("the attempt panicked: {panic}");
        if let Ok(Some(record)) = self.dir.attempt(&planned.key)
            && record.is_answered()
        {
            self.progress.on_event(&ProgressEvent::Ungraded { key: &planned.key, cause: &cause });
            return Ok(Finished::Stored(Box::new(self.run.current(record))));
        }
        self.breaker.failed(&cause);
        let outcome = Outcome::Infrastructure { cause, fault: Fault::Unknown };
        let record = AttemptRecord { outcome, ..self.blank(planned) };
        // What it recorded before it panicked.
        self.dir.save_trajectory(&planned.key).map_err(Error::Results)?;
        self.dir.save(&record).map_err(Error::Results)?;
        Ok(Finished::Stored(Box::new(record)))
    }

    async fn grade_and_store(
        &self,
        planned: &PlannedAttempt,
        mut record: AttemptRecord,
    ) -> Result<Finished, Error> {
        let (task, _) = self.plan.of(planned);
        if !task.grader.is_immediate() {
            // The answer cost more than its grade will: it is not lost while a judge or a command takes its time.
            self.dir.save(&record).map_err(Error::Results)?;
        }
        let regradings = self.run.regradings(&planned.key.task);
        match self.grade(planned, &record.answer).await {
            Ok((score, details)) => record.regrade(Some(score), details, regradings),
            // An answer that has a grade keeps it until its turn comes again.
            Err(Ungraded::Cancelled) if record.score.is_some() => return Ok(Finished::Cancelled),
            Err(ungraded) => {
                let cause = ungraded.to_string();
                self.progress
                    .on_event(&ProgressEvent::Ungraded { key: &planned.key, cause: &cause });
                record.regrade(None, json!({ "ungraded": cause }), regradings);
            }
        }
        self.dir.save(&record).map_err(Error::Results)?;
        Ok(Finished::Stored(Box::new(record)))
    }

    /// The score of an answer and its details, or why there is none.
    async fn grade(
        &self,
        planned: &PlannedAttempt,
        answer: &str,
    ) -> Result<(f64, Value), Ungraded> {
        let grade = match attempt::grade(&self.play_of(planned), answer).await {
            Graded::Done(grade) => grade,
            Graded::Judge(request) => {
                let judge = self.judge.as_ref();
                let judge =
                    judge.ok_or_else(|| Ungraded::Cause("no judge is configured".into()))?;
                tokio::select! {
                    biased;
                    () = self.cancel.cancelled() => return Err(Ungraded::Cancelled),
                    judged = judge.grade(&self.dir, &planned.key, &request) => {
                        judged.map_err(Ungraded::Cause)?
                    }
                }
            }
            Graded::Failed { cause, .. } => return Err(Ungraded::Cause(cause)),
            Graded::Cancelled => return Err(Ungraded::Cancelled),
        };
        Ok((grade.score, grade.details))
    }

    fn play_of<'a>(&'a self, planned: &PlannedAttempt) -> Play<'a, LimitedModel<M>, R> {
        let (task, problem) = self.plan.of(planned);
        Play {
            problem,
            task,
            mode: planned.key.mode,
            model: &self.model,
            sandboxes: &self.sandboxes,
            settings: &self.plan.settings,
            seed: self.plan.seed(&planned.key),
            cancel: self.cancel.clone(),
        }
    }

    /// Counts failures in a row. Attempts count, not tries: a few rows that never work must not end the run.
    fn count(&self, outcome: &Outcome) {
        match outcome {
            Outcome::Infrastructure { fault: Fault::Problem, .. } => {}
            Outcome::Infrastructure { cause, .. } => self.breaker.failed(cause),
            _ => self.breaker.succeeded(),
        }
    }

    fn event_log(&self, planned: &PlannedAttempt) -> Result<EventLog, Error> {
        let file = self.dir.begin_trajectory(&planned.key).map_err(Error::Results)?;
        EventLog::to_file(file).map_err(Error::Events)
    }

    fn record(&self, planned: &PlannedAttempt, attempt: &Attempt) -> AttemptRecord {
        AttemptRecord {
            answer: attempt.answer.clone(),
            outcome: attempt.outcome.clone(),
            spent: attempt.usage,
            tokens: Tokens::of(&attempt.events),
            started: attempt.started_ms,
            wall_ms: attempt.wall_ms,
            peak_memory: attempt.peak_memory,
            ..self.blank(planned)
        }
    }

    /// A record that holds nothing but the problem.
    fn blank(&self, planned: &PlannedAttempt) -> AttemptRecord {
        let (_, problem) = self.plan.of(planned);
        AttemptRecord {
            v: VERSION,
            key: planned.key.clone(),
            domain: problem.domain.clone(),
            subject: problem.subject.clone(),
            problem_statement: problem.statement.clone(),
            ground_truth: problem.ground_truth.clone(),
            answer: String::new(),
            score: None,
            grade: Value::Null,
            grading: GradingHistory {
                regradings: self.run.regradings(&planned.key.task),
                ..GradingHistory::default()
            },
            outcome: Outcome::Submitted,
            spent: Spent::default(),
            tokens: Tokens::default(),
            started: attempt::now_ms(),
            wall_ms: 0,
            peak_memory: None,
            tries: 1,
        }
    }
}
