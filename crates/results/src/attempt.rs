//! One attempt at one problem: what came of it, and what it used up.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use trajectory::{Outcome, Spent};

/// How a problem was put to the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// One plain reply.
    Llm,
    /// A model with a computer.
    Sandbox,
}

impl Mode {
    /// Its name in files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Llm => "llm",
            Self::Sandbox => "sandbox",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which attempt it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    /// The task.
    pub task: String,
    /// How the problem was put.
    pub mode: Mode,
    /// The problem.
    pub id: String,
    /// Which repetition, from 0.
    #[serde(default)]
    pub repeat: u32,
}

/// Tokens by who wrote them. Each counts once, however often it was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tokens {
    /// The first messages.
    pub prompt: u64,
    /// The model's replies.
    pub model: u64,
    /// What the computer answered.
    pub environment: u64,
}

impl Tokens {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.prompt.saturating_add(self.model).saturating_add(self.environment)
    }
}

/// A finished attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// The version of this file.
    pub v: u32,
    /// Which attempt it is.
    #[serde(flatten)]
    pub key: Key,
    /// The field the problem belongs to, as its row says.
    #[serde(default)]
    pub domain: String,
    /// A finer grouping, where the row has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The problem.
    #[serde(default)]
    pub problem_statement: String,
    /// The right answer.
    #[serde(default)]
    pub ground_truth: String,
    /// What the model answered: the file it left, or its plain reply.
    #[serde(default)]
    pub answer: String,
    /// From 0 to 1; absent while it could not be graded.
    pub score: Option<f64>,
    /// What the grader says besides, by grader: votes of a judge, strict and loose verdicts, a cause.
    #[serde(default)]
    pub grade: Value,
    /// How the episode ended. A plain reply that is whole counts as submitted.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// What the episode used up.
    pub spent: Spent,
    /// Tokens by who wrote them.
    #[serde(default)]
    pub tokens: Tokens,
    /// When it began, in milliseconds since 1970.
    #[serde(default)]
    pub started: u64,
    /// How long it took from its first to its last moment. Waiting for a sandbox, or for the only call of a plain
    /// attempt, is before that; waiting for a call between turns is in it.
    #[serde(default)]
    pub wall_ms: u64,
    /// The most memory its sandbox had in use, where the runtime can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory: Option<u64>,
    /// How often it was begun; above 1 after failures of ours.
    #[serde(default = "one")]
    pub tries: u32,
}

fn one() -> u32 {
    1
}

impl Attempt {
    /// Whether it says something about the model. What failed on our side does not, and is done again.
    pub fn is_of_the_model(&self) -> bool {
        !matches!(self.outcome, Outcome::Infrastructure { .. } | Outcome::Cancelled)
    }

    /// Its score in a mean: what failed or could not be graded counts as 0, as in the reference.
    pub fn counted(&self) -> f64 {
        self.score.unwrap_or(0.0)
    }
}
