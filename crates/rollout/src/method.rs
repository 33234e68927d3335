//! How episodes are played and what they are worth: plain settings, and the two rules of rewards.

use std::{fmt, sync::Arc, time::Duration};

use agent::{Compaction, Limits};
use model::ToolFormat;
use problems::Problem;
use sandbox::Spec;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use trajectory::Outcome;

use crate::{End, Loss};

/// Whether the policy has a computer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// It works in a sandbox until it submits.
    #[default]
    Sandbox,
    /// It has one reply, and that is the answer.
    Llm,
}

/// Where the policy finds the documents of a problem.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Context {
    /// In files. Mode `llm` has none, and puts them into the prompt.
    #[default]
    Files,
    /// In its prompt.
    Prompt,
}

/// What becomes of episodes that took all their turns or tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlong {
    /// They are worth nothing, whatever they left.
    #[default]
    Zero,
    /// Their tokens are not trained on, nor are those of episodes whose time was up; rewards stay what they are.
    Mask,
    /// They are episodes like others.
    Keep,
}

/// How episodes are played.
#[derive(Clone, Debug)]
pub struct Method {
    /// What the policy is called in records.
    pub name: String,
    /// Whether it has a computer.
    pub mode: Mode,
    /// Where it finds documents.
    pub context: Context,
    /// How its calls are written.
    pub format: ToolFormat,
    /// What an episode may use up. The time begins when its sandbox is there.
    pub limits: Limits,
    /// How long a command may take.
    pub command_timeout: Duration,
    /// Characters of each output stream that the policy gets to see.
    pub shown: usize,
    /// Whether and when old results are shortened. That changes the context, so a new segment begins each time.
    pub compaction: Option<Compaction>,
    /// What sandboxes are like. Their image is the task's where it names one.
    pub spec: Spec,
    /// Sandboxes at once.
    pub sandboxes: usize,
    /// Sandboxes made ahead.
    pub ahead: usize,
    /// How often an episode is tried when our side fails.
    pub tries: u32,
    /// How long to wait before the second try; each further wait is longer.
    pub wait: Duration,
    /// What becomes of overlong episodes.
    pub overlong: Overlong,
    /// The settings in force, for the records.
    pub settings: Value,
    /// The version of the program, for the records.
    pub program: String,
}

impl Default for Method {
    fn default() -> Self {
        Self {
            name: "policy".into(),
            mode: Mode::default(),
            context: Context::default(),
            format: ToolFormat::Fenced,
            limits: Limits::default(),
            command_timeout: Duration::from_secs(120),
            shown: 12_000,
            compaction: None,
            spec: Spec::default(),
            sandboxes: 64,
            ahead: 8,
            tries: 3,
            wait: Duration::from_secs(2),
            overlong: Overlong::default(),
            settings: Value::Null,
            program: env!("CARGO_PKG_VERSION").into(),
        }
    }
}

impl Method {
    /// How long to wait after so many tries.
    pub(crate) fn wait_after(&self, tries: u32) -> Duration {
        self.wait.saturating_mul(tries.saturating_pow(2))
    }
}

/// A reward of somebody's own: from a problem and an answer.
pub type OwnReward = Arc<dyn Fn(&Problem, &str) -> f64 + Send + Sync>;

/// What answers are worth.
#[derive(Clone, Default)]
pub enum Reward {
    /// What the task's grader says.
    #[default]
    Grader,
    /// What somebody's function says.
    Own(OwnReward),
}

impl fmt::Debug for Reward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Grader => "Grader",
            Self::Own(_) => "Own",
        })
    }
}

impl Overlong {
    /// What an episode is worth to the trainer, from what its answer is worth and from how it ended.
    pub(crate) fn reward(self, end: End, raw: f64) -> f64 {
        match (self, end) {
            (Self::Zero, End::MaxTurns | End::Truncated) => 0.0,
            _ => raw,
        }
    }

    /// Whether its tokens are trained on.
    pub(crate) fn loss(self, end: End) -> Loss {
        match (self, end) {
            (Self::Mask, End::MaxTurns | End::Truncated | End::Timeout) => Loss::Masked,
            _ => Loss::Counted,
        }
    }
}

impl End {
    /// The end of an episode, as far as it says something about the policy.
    pub(crate) fn of(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Submitted => Self::Submitted,
            Outcome::MaxTurns => Self::MaxTurns,
            Outcome::MaxTokens | Outcome::ContextFull | Outcome::Cost => Self::Truncated,
            Outcome::Deadline => Self::Timeout,
            Outcome::NoToolCalls => Self::NoCalls,
            Outcome::Cancelled | Outcome::Infrastructure { .. } => Self::Infrastructure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDS: [End; 5] =
        [End::Submitted, End::MaxTurns, End::Truncated, End::Timeout, End::NoCalls];

    #[test]
    fn waits_outlast_a_hiccup_and_grow() {
        let waits = [1, 2].map(|tries| Method::default().wait_after(tries).as_secs());
        assert_eq!(waits, [2, 8]);
    }

    #[test]
    fn overlong_episodes_are_worth_nothing_or_left_out() {
        let rewards = |overlong: Overlong| ENDS.map(|end| overlong.reward(end, 0.75));
        assert_eq!(rewards(Overlong::Zero), [0.75, 0.0, 0.0, 0.75, 0.75]);
        assert_eq!(rewards(Overlong::Mask), [0.75; 5]);
        assert_eq!(rewards(Overlong::Keep), [0.75; 5]);
        let masked = |overlong: Overlong| ENDS.map(|end| overlong.loss(end) == Loss::Masked);
        assert_eq!(masked(Overlong::Zero), [false; 5]);
        assert_eq!(masked(Overlong::Mask), [false, true, true, true, false]);
        assert_eq!(masked(Overlong::Keep), [false; 5]);
    }
}
