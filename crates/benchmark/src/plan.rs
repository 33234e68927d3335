//! What is measured: tasks with their problems, modes and settings, and the attempts that follow from them.
//!
//! Plain data. Flags and files are the caller's business.

use std::{collections::BTreeSet, sync::Arc};

use attempt::Settings;
use problems::{Problem, Task};
use results::{AttemptKey, Mode, TaskInfo};
use serde::{Deserialize, Serialize};

use crate::digest;

/// What is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The tasks.
    pub tasks: Vec<TaskProblems>,
    /// The modes each problem is played in.
    pub modes: Vec<Mode>,
    /// How attempts are played. A seed in there is mixed with each attempt's key.
    pub settings: Settings,
}

/// A task, and the selected problems.
#[derive(Clone, Debug)]
pub struct TaskProblems {
    /// The task.
    pub task: Arc<Task>,
    /// The problems.
    pub problems: Vec<Arc<Problem>>,
    /// Repetitions of each problem. A problem that the data lists several times is repeated as often for each.
    pub repeats: u32,
    /// A digest of the rows they come from.
    pub rows_sha256: String,
}

/// Which problems of a task are selected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selection {
    /// The first problem, from 0. Rows that repeat another count with it, invalid ones not at all.
    pub start: Option<usize>,
    /// The problem after the last.
    pub end: Option<usize>,
    /// The ids; all where this is empty. Some may belong to other tasks.
    pub ids: Vec<String>,
    /// The most problems.
    pub limit: Option<usize>,
}

/// Nothing is selected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectionError {
    /// These problems do not exist.
    #[error("there is no problem {0}; ids are those of the rows")]
    Unknown(String),
    /// There is no valid row.
    #[error("there is no valid row")]
    NoRows,
    /// The selection leaves no problem.
    #[error("the selection leaves none of {problems} problems; widen it")]
    Nothing {
        /// The number of problems before the selection.
        problems: usize,
    },
}

impl Selection {
    /// The selected problems, in the order of their rows. Ids that are found are removed from `missing`.
    pub fn of(
        &self,
        problems: Vec<Problem>,
        missing: &mut BTreeSet<String>,
    ) -> Result<Vec<Problem>, SelectionError> {
        let all = problems.len();
        if all == 0 {
            return Err(SelectionError::NoRows);
        }
        let (start, end) = (self.start.unwrap_or(0), self.end.unwrap_or(usize::MAX));
        let within = problems.into_iter().take(end).skip(start);
        let wanted: BTreeSet<&str> = self.ids.iter().map(String::as_str).collect();
        let mut chosen: Vec<Problem> = within
            .filter(|problem| wanted.is_empty() || wanted.contains(problem.id.as_str()))
            .inspect(|problem| {
                missing.remove(&problem.id);
            })
            .collect();
        if chosen.is_empty() && !wanted.is_empty() {
            return Err(SelectionError::unknown(&self.ids));
        }
        chosen.truncate(self.limit.unwrap_or(usize::MAX));
        if chosen.is_empty() {
            return Err(SelectionError::Nothing { problems: all });
        }
        Ok(chosen)
    }
}

impl SelectionError {
    /// The error for unknown ids.
    pub fn unknown<'a>(ids: impl IntoIterator<Item = &'a String>) -> Self {
        let names: Vec<String> = ids.into_iter().take(5).map(|id| format!("{id:?}")).collect();
        Self::Unknown(names.join(", "))
    }
}

impl TaskProblems {
    /// What is recorded of it.
    pub fn info(&self) -> TaskInfo {
        TaskInfo {
            name: self.task.name.clone(),
            problems: self.problems.len(),
            repeats: self.max_repeats(),
            attempts: self.attempts(),
            grader: self.task.grader.name().to_owned(),
            known_as: self.task.known_as.clone(),
            rows_sha256: self.rows_sha256.clone(),
            prompts_sha256: digest::prompts(&self.task),
            grader_sha256: digest::grader(&self.task),
        }
    }

    /// The number of attempts in one mode.
    pub fn attempts(&self) -> usize {
        self.problems.iter().map(|problem| self.repeats_of(problem) as usize).sum()
    }

    /// The repetitions of the problem that has most.
    fn max_repeats(&self) -> u32 {
        self.problems.iter().map(|problem| self.repeats_of(problem)).max().unwrap_or(0)
    }

    /// The repetitions of a problem.
    fn repeats_of(&self, problem: &Problem) -> u32 {
        self.repeats.saturating_mul(problem.repeats.max(1))
    }
}

/// One attempt of the plan: the positions of its task and problem, and its key.
#[derive(Clone, Debug)]
pub(crate) struct PlannedAttempt {
    task: usize,
    problem: usize,
    pub(crate) key: AttemptKey,
}

impl Plan {
    /// Every attempt, the modes of a problem side by side, so that an unfinished run compares what it has.
    pub(crate) fn attempts<'a>(
        &'a self,
        modes: &'a [Mode],
    ) -> impl Iterator<Item = PlannedAttempt> + use<'a> {
        self.tasks.iter().enumerate().flat_map(move |(task, task_problems)| {
            (0..task_problems.max_repeats()).flat_map(move |repeat| {
                let problems = task_problems.problems.iter().enumerate();
                let problems =
                    problems.filter(move |(_, problem)| repeat < task_problems.repeats_of(problem));
                problems.flat_map(move |(index, problem)| {
                    modes.iter().map(move |mode| {
                        let (name, id) = (task_problems.task.name.clone(), problem.id.clone());
                        let key = AttemptKey { task: name, mode: *mode, id, repeat };
                        PlannedAttempt { task, problem: index, key }
                    })
                })
            })
        })
    }

    /// The task and the problem of an attempt.
    pub(crate) fn of(&self, planned: &PlannedAttempt) -> (&Arc<Task>, &Arc<Problem>) {
        let task_problems = &self.tasks[planned.task];
        (&task_problems.task, &task_problems.problems[planned.problem])
    }

    /// The seed of an attempt: one for all would make repetitions equal.
    pub(crate) fn seed(&self, key: &AttemptKey) -> Option<u64> {
        self.settings.sampling.seed.map(|seed| mixed(seed, key))
    }
}

/// FNV-1a over the seed and the key, in 31 bits: servers take no more.
fn mixed(seed: u64, key: &AttemptKey) -> u64 {
    let AttemptKey { task, mode, id, repeat } = key;
    let text = format!("{seed}\0{task}\0{mode}\0{id}\0{repeat}");
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, mix);
    (hash ^ (hash >> 32)) & 0x7fff_ffff
}

#[cfg(test)]
#[path = "plan_tests.rs"]
pub(crate) mod tests;
