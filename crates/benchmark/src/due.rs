//! What a run still has to do: attempts to play, and answers to grade.

use std::collections::VecDeque;

use problems::{Grader, Task};
use results::{Mode, ResultsDir, Run};
use trajectory::error_chain;

use crate::{Plan, Tally, plan::PlannedAttempt};

/// What a command may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Play attempts that are missing or failed, and grade answers.
    All,
    /// Only grade answers.
    Grades,
}

/// What a run still has to do.
#[derive(Debug)]
pub struct Due {
    /// The attempts that are finished, including their grade.
    pub tally: Tally,
    /// The number of attempts to play.
    pub to_play: usize,
    /// The number of stored answers to grade.
    pub to_grade: usize,
    /// Attempts that cannot be read and are played again.
    pub warnings: Vec<String>,
    pub(crate) work: VecDeque<Work>,
}

/// A unit of work.
#[derive(Debug)]
pub(crate) enum Work {
    /// Play an attempt.
    Play(PlannedAttempt),
    /// Grade a stored answer. It is read when its turn comes: all of them could be large.
    Grade(PlannedAttempt),
}

/// Whether a judge can be queried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JudgeAccess {
    /// One is configured.
    Available,
    /// There is none: answers that need one stay ungraded.
    Missing,
}

impl Work {
    pub(crate) fn attempt(&self) -> &PlannedAttempt {
        match self {
            Self::Play(planned) | Self::Grade(planned) => planned,
        }
    }
}

impl Due {
    /// Compares a plan with what its directory holds. Attempts that failed before come last: they may fail again, and
    /// nothing else should have to wait for them.
    pub fn of(plan: &Plan, dir: &ResultsDir, run: &Run, judge: JudgeAccess, scope: Scope) -> Self {
        let mut tally = Tally::new(plan, &plan.modes);
        let (mut work, mut failed, mut warnings) = (VecDeque::new(), Vec::new(), Vec::new());
        for planned in plan.attempts(&plan.modes) {
            let attempt = dir.attempt(&planned.key).unwrap_or_else(|error| {
                warnings.push(format!("an attempt is played again: {}", error_chain(&error)));
                None
            });
            let attempt = attempt.map(|attempt| run.current(attempt));
            match attempt {
                Some(attempt) if attempt.score.is_some() => tally.add(&attempt),
                Some(attempt) if attempt.is_answered() => {
                    match can_grade(plan.of(&planned).0, judge) {
                        true => work.push_back(Work::Grade(planned)),
                        false => tally.add(&attempt),
                    }
                }
                Some(attempt) if scope == Scope::Grades => tally.add(&attempt),
                None if scope == Scope::Grades => {}
                Some(_) => failed.push(Work::Play(planned)),
                None => work.push_back(Work::Play(planned)),
            }
        }
        work.extend(failed);
        let to_grade = work.iter().filter(|work| matches!(work, Work::Grade(_))).count();
        Self { tally, to_play: work.len() - to_grade, to_grade, warnings, work }
    }

    /// The number of attempts to play of a task in a mode.
    pub fn to_play_of(&self, task: &str, mode: Mode) -> usize {
        let is_one = |work: &&Work| match work {
            Work::Play(planned) => planned.key.task == task && planned.key.mode == mode,
            Work::Grade(_) => false,
        };
        self.work.iter().filter(is_one).count()
    }

    /// The number of attempts to play or grade.
    pub fn len(&self) -> usize {
        self.work.len()
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.work.is_empty()
    }
}

/// Whether an answer without a grade can get one.
fn can_grade(task: &Task, judge: JudgeAccess) -> bool {
    task.grader != Grader::Judge || judge == JudgeAccess::Available
}
