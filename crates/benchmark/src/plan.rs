//! What is measured: tasks with their problems, modes and settings, and the attempts that follow from them.
//!
//! Plain data. Flags and files are the caller's business.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use attempt::Settings;
use problems::{Problem, Task};
use results::{AttemptKey, Mode, ProblemRequest, Selection, TaskInfo};

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

/// A task, and all valid problems of its data.
#[derive(Clone, Debug)]
pub struct TaskRows {
    /// The task.
    pub task: Arc<Task>,
    /// The problems, in the order of their rows.
    pub problems: Vec<Arc<Problem>>,
    /// A digest of the rows they come from.
    pub rows_sha256: String,
}

/// A task, and the selected problems.
#[derive(Clone, Debug)]
pub struct TaskProblems {
    /// The task.
    pub task: Arc<Task>,
    /// The problems.
    pub problems: Vec<SelectedProblem>,
    /// A digest of the rows they come from.
    pub rows_sha256: String,
}

/// A problem, and how often it is played in each mode.
#[derive(Clone, Debug)]
pub struct SelectedProblem {
    /// The problem.
    pub problem: Arc<Problem>,
    /// The number of attempts.
    pub repeats: u32,
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

/// The selected problems, in the order of their rows. Ids that are found are removed from `missing`.
pub fn select(
    selection: &Selection,
    problems: &[Arc<Problem>],
    missing: &mut BTreeSet<String>,
) -> Result<Vec<Arc<Problem>>, SelectionError> {
    let Selection { start, end, ids, limit } = selection;
    if problems.is_empty() {
        return Err(SelectionError::NoRows);
    }
    let (start, end) = (start.unwrap_or(0), end.unwrap_or(usize::MAX));
    let within = problems.iter().take(end).skip(start);
    let wanted: BTreeSet<&str> = ids.iter().map(String::as_str).collect();
    let mut chosen: Vec<Arc<Problem>> = within
        .filter(|problem| wanted.is_empty() || wanted.contains(problem.id.as_str()))
        .inspect(|problem| {
            missing.remove(&problem.id);
        })
        .cloned()
        .collect();
    if chosen.is_empty() && !wanted.is_empty() {
        return Err(SelectionError::unknown(ids));
    }
    chosen.truncate(limit.unwrap_or(usize::MAX));
    if chosen.is_empty() {
        return Err(SelectionError::Nothing { problems: problems.len() });
    }
    Ok(chosen)
}

impl SelectionError {
    /// The error for unknown ids.
    pub fn unknown<'a>(ids: impl IntoIterator<Item = &'a String>) -> Self {
        let names: Vec<String> = ids.into_iter().take(5).map(|id| format!("{id:?}")).collect();
        Self::Unknown(names.join(", "))
    }
}

impl TaskRows {
    /// The problems that any of these requests selects, each as often as the request that wants it most.
    pub fn select(&self, requests: &[ProblemRequest]) -> TaskProblems {
        let mut repeats: HashMap<&str, u32> = HashMap::new();
        let requests = requests.iter().filter(|request| request.tasks.contains(&self.task.name));
        let selected = requests.flat_map(|request| {
            // A selection without problems of this task adds none.
            let chosen = select(&request.selection, &self.problems, &mut BTreeSet::new());
            chosen.unwrap_or_default().into_iter().map(|problem| (problem, request.repeats))
        });
        let selected: Vec<(Arc<Problem>, u32)> = selected.collect();
        for (problem, number) in &selected {
            let number = number.saturating_mul(problem.repeats.max(1));
            let most = repeats.entry(&problem.id).or_default();
            *most = number.max(*most);
        }
        let problems = self.problems.iter().filter_map(|problem| {
            let repeats = *repeats.get(problem.id.as_str())?;
            Some(SelectedProblem { problem: Arc::clone(problem), repeats })
        });
        TaskProblems {
            task: Arc::clone(&self.task),
            problems: problems.collect(),
            rows_sha256: self.rows_sha256.clone(),
        }
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
        self.problems.iter().map(|selected| selected.repeats as usize).sum()
    }

    /// The repetitions of the problem that has most.
    fn max_repeats(&self) -> u32 {
        self.problems.iter().map(|selected| selected.repeats).max().unwrap_or(0)
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
                let problems = problems.filter(move |(_, selected)| repeat < selected.repeats);
                problems.flat_map(move |(index, selected)| {
                    modes.iter().map(move |mode| {
                        let name = task_problems.task.name.clone();
                        let id = selected.problem.id.clone();
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
        (&task_problems.task, &task_problems.problems[planned.problem].problem)
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
