//! What is to be measured and how: tasks with their problems, modes, and everything that may change a result.
//!
//! Plain data. Flags and files are the caller's business.

use std::{collections::BTreeSet, fmt, str::FromStr, time::Duration};

use agent::Limits;
use model::{Price, Sampling};
use problems::{Problem, Task};
use results::{Key, Mode, TaskInfo};
use sandbox::Spec;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::digest;

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The tasks.
    pub tasks: Vec<Questions>,
    /// How each problem is put.
    pub modes: Vec<Mode>,
    /// How attempts are made.
    pub method: Method,
}

/// A task, and those of its problems that are asked.
#[derive(Clone, Debug)]
pub struct Questions {
    /// The task.
    pub task: Task,
    /// The problems.
    pub problems: Vec<Problem>,
    /// How often each is asked. Data may list a problem several times: then as often for each time.
    pub repeats: u32,
    /// A digest of the rows they come from.
    pub rows_sha256: String,
}

/// How attempts are made. All of it may change a result.
#[derive(Clone, Debug)]
pub struct Method {
    /// The sandbox. A task may bring its own image, and its prompts say where commands start.
    pub spec: Spec,
    /// What an attempt may use up.
    pub caps: Caps,
    /// A command may take this long.
    pub command_timeout: Duration,
    /// Whether the model can look at pictures.
    pub vision: agent::tools::Vision,
    /// How the model chooses its words. A seed is mixed with each attempt's key.
    pub sampling: Sampling,
    /// What the model costs, where that is known.
    pub price: Option<Price>,
    /// Whether and when old results are shortened.
    pub compaction: Option<agent::Compaction>,
    /// Where documents are.
    pub context: Context,
    /// What the model has to do without.
    pub without: BTreeSet<Capability>,
    /// The settings as they are recorded with each episode, without secrets.
    pub settings: Value,
    /// The version of the program.
    pub program: String,
}

/// What an attempt may use up. What is absent is the task's to say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Caps {
    /// Replies of the model.
    pub turns: Option<u32>,
    /// Tokens of the whole conversation.
    pub tokens: Option<u64>,
    /// Tokens of one reply in a sandbox.
    pub tokens_per_call: u64,
    /// Tokens of a plain reply.
    pub plain_tokens: u64,
    /// Time.
    pub time: Option<Duration>,
    /// Dollars.
    pub cost: Option<f64>,
}

/// Where documents are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Context {
    /// In files of the sandbox.
    #[default]
    Files,
    /// In the prompt.
    Prompt,
}

impl Context {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Prompt => "prompt",
        }
    }
}

/// Something a computer gives a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Capability {
    /// A network.
    External,
    /// Files that can be written.
    Files,
    /// Commands.
    Execution,
}

impl Capability {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::External => "external",
            Self::Files => "files",
            Self::Execution => "execution",
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A capability nobody knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no capability `{0}`; there are external, files and execution")]
pub struct UnknownCapability(pub String);

impl FromStr for Capability {
    type Err = UnknownCapability;

    fn from_str(text: &str) -> Result<Self, UnknownCapability> {
        let all = [Self::External, Self::Files, Self::Execution];
        let found = all.into_iter().find(|capability| capability.name() == text);
        found.ok_or_else(|| UnknownCapability(text.to_owned()))
    }
}

/// Which problems of a task are asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selection {
    /// The first problem, from 0. Rows that repeat another count with it, bad ones not at all.
    pub start: Option<usize>,
    /// The problem after the last.
    pub end: Option<usize>,
    /// These alone; all where there are none. Other tasks may have some of them.
    pub ids: Vec<String>,
    /// No more than these.
    pub limit: Option<usize>,
}

/// There is nothing to ask.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectionError {
    /// These problems are not there.
    #[error("there is no problem {0}; ids are those of the rows")]
    Unknown(String),
    /// There is none to select from.
    #[error("there is no row that can be used")]
    NoRows,
    /// No problem is left.
    #[error("no problem is left of {problems}; widen the selection")]
    Nothing {
        /// How many there were.
        problems: usize,
    },
}

impl Selection {
    /// The problems that are asked, in the order of their rows. What it finds of the ids is taken from `missing`.
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
    /// Nobody knows these.
    pub fn unknown<'a>(ids: impl IntoIterator<Item = &'a String>) -> Self {
        let names: Vec<String> = ids.into_iter().take(5).map(|id| format!("{id:?}")).collect();
        Self::Unknown(names.join(", "))
    }
}

impl Questions {
    /// What is recorded of it.
    pub fn info(&self) -> TaskInfo {
        TaskInfo {
            name: self.task.name.clone(),
            problems: self.problems.len(),
            repeats: self.most(),
            attempts: self.attempts(),
            grader: self.task.grader.name().to_owned(),
            known_as: self.task.known_as.clone(),
            rows_sha256: self.rows_sha256.clone(),
            words_sha256: digest::words(&self.task),
            grader_sha256: digest::grader(&self.task),
        }
    }

    /// How many attempts it makes in one mode.
    pub fn attempts(&self) -> usize {
        self.problems.iter().map(|problem| self.times(problem) as usize).sum()
    }

    /// How often the problem is asked that is asked most often.
    fn most(&self) -> u32 {
        self.problems.iter().map(|problem| self.times(problem)).max().unwrap_or(0)
    }

    /// How often a problem is asked.
    fn times(&self, problem: &Problem) -> u32 {
        self.repeats.saturating_mul(problem.repeats.max(1))
    }
}

/// One attempt to be made: which task and problem of the plan, and its key.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) task: usize,
    pub(crate) problem: usize,
    pub(crate) key: Key,
}

impl Plan {
    /// Every attempt, the modes of a problem side by side, so that an unfinished run compares what it has.
    pub(crate) fn jobs<'a>(&'a self, modes: &'a [Mode]) -> impl Iterator<Item = Job> + use<'a> {
        self.tasks.iter().enumerate().flat_map(move |(task, questions)| {
            (0..questions.most()).flat_map(move |repeat| {
                let asked = questions.problems.iter().enumerate();
                let asked = asked.filter(move |(_, problem)| repeat < questions.times(problem));
                asked.flat_map(move |(problem, asked)| {
                    modes.iter().map(move |mode| {
                        let (name, id) = (questions.task.name.clone(), asked.id.clone());
                        Job { task, problem, key: Key { task: name, mode: *mode, id, repeat } }
                    })
                })
            })
        })
    }

    /// The task and the problem of an attempt.
    pub(crate) fn of(&self, job: &Job) -> (&Task, &Problem) {
        let questions = &self.tasks[job.task];
        (&questions.task, &questions.problems[job.problem])
    }
}

impl Method {
    /// The limits of an episode of this task.
    pub(crate) fn limits(&self, task: &Task) -> Limits {
        Limits {
            turns: self.caps.turns.unwrap_or(task.turns),
            tokens: self.caps.tokens.unwrap_or(task.tokens),
            tokens_per_call: self.caps.tokens_per_call,
            time: self.caps.time,
            cost: self.caps.cost,
            ..Limits::default()
        }
    }

    /// How the model chooses its words in this attempt: one seed for all would make repetitions equal.
    pub(crate) fn sampling(&self, key: &Key) -> Sampling {
        let seed = self.sampling.seed.map(|seed| mixed(seed, key));
        Sampling { seed, ..self.sampling.clone() }
    }

    /// Whether a model can do this.
    pub(crate) fn allows(&self, capability: Capability) -> bool {
        !self.without.contains(&capability)
    }
}

/// FNV-1a over the seed and the key, in 31 bits: servers take no more.
fn mixed(seed: u64, key: &Key) -> u64 {
    let Key { task, mode, id, repeat } = key;
    let text = format!("{seed}\0{task}\0{mode}\0{id}\0{repeat}");
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, mix);
    (hash ^ (hash >> 32)) & 0x7fff_ffff
}

#[cfg(test)]
#[path = "plan_tests.rs"]
pub(crate) mod tests;
