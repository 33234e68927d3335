//! What is known about a session, for its client.

use std::{sync::Arc, time::Duration};

use attempt::Attempt;
use serde_json::Value;
use trajectory::{Fault, Outcome, Spent, Validity};

use crate::{GoneReason, Turn};

/// What a session is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Its sandbox is being created, or waits for a permit.
    Starting,
    /// It waits for a response.
    Ready,
    /// It executes the calls of a response.
    Stepping,
    /// The episode is over, and its sandbox is gone.
    Done,
    /// The session is gone.
    Gone(GoneReason),
}

impl Phase {
    /// The name in answers.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Stepping => "stepping",
            Self::Done => "done",
            Self::Gone(_) => "gone",
        }
    }
}

/// A row of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowId {
    /// Its id.
    pub id: String,
    /// Its place among the rows, from 0.
    pub index: usize,
}

/// Something other than the policy failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What is at fault.
    pub fault: Fault,
    /// What failed.
    pub cause: String,
    /// Whether another session at this problem may do better.
    pub retry: bool,
    /// Whether the policy may have caused it: its commands ran in the sandbox that failed, or its answer is what could not
    /// be graded. A policy that is never blamed for such failures can learn to cause them.
    pub policy_may_be_at_fault: bool,
}

impl Failure {
    /// `turns` is how often the policy has responded.
    fn new(fault: Fault, cause: &str, turns: u32) -> Self {
        let retry = fault.is_transient();
        let policy_may_be_at_fault = turns > 0 && matches!(fault, Fault::Sandbox | Fault::Grader);
        Self { fault, cause: cause.to_owned(), retry, policy_may_be_at_fault }
    }
}

/// The grade of a session.
#[derive(Clone, Debug)]
pub struct Score {
    /// The score, from 0 to 1. Present exactly where there is no failure.
    pub score: Option<f64>,
    /// Why there is no score. It says nothing about the policy.
    pub failure: Option<Failure>,
    /// Details of the grade, by grader.
    pub grade: Value,
    /// How the episode ended.
    pub outcome: Outcome,
    /// What the episode has spent.
    pub spent: Spent,
}

impl Score {
    /// The score of a graded attempt.
    pub(crate) fn of(attempt: &Attempt) -> Self {
        let turns = attempt.usage.turns;
        let failure = match &attempt.validity {
            Validity::Valid => None,
            Validity::Cancelled => Some(Failure::new(Fault::Unknown, "the session ended", turns)),
            Validity::Invalid { fault, cause } => Some(Failure::new(*fault, cause, turns)),
        };
        Self {
            score: attempt.score.filter(|_| failure.is_none()),
            failure,
            grade: attempt.grade.clone(),
            outcome: attempt.outcome.clone(),
            spent: attempt.usage,
        }
    }
}

/// A session at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Its id, which cannot be guessed.
    pub id: String,
    /// The task.
    pub task: String,
    /// The row it plays.
    pub row: RowId,
    /// What it is doing.
    pub phase: Phase,
    /// The number of the last result: 0 after the reset.
    pub step: u32,
    /// The last result; `None` while the session starts.
    pub turn: Option<Arc<Turn>>,
    /// How the episode ended.
    pub outcome: Option<Outcome>,
    /// The score, once it was asked for and is known.
    pub score: Option<Arc<Score>>,
    /// Whether the score is being computed.
    pub is_scoring: bool,
    /// The length of its lease.
    pub lease: Duration,
    /// How long it stays without a request.
    pub lease_left: Duration,
}

impl Snapshot {
    /// The failure that ended the episode, if one did.
    pub fn failure(&self) -> Option<Failure> {
        match &self.outcome {
            Some(Outcome::Infrastructure { cause, fault }) => {
                Some(Failure::new(*fault, cause, self.step))
            }
            _ => None,
        }
    }

    /// Whether a result is on its way.
    pub fn is_pending(&self) -> bool {
        matches!(self.phase, Phase::Starting | Phase::Stepping) || self.is_scoring
    }
}
