//! How rollouts are played and rewarded.

use std::{fmt, sync::Arc};

use attempt::{Mode, RetryPolicy, Settings};
use model::ToolFormat;
use problems::Problem;
use serde::{Deserialize, Serialize};
use trajectory::Outcome;

use crate::{End, Loss, Shaping};

/// What becomes of episodes that reached their limit of turns or tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlong {
    /// Their reward is 0, whatever they left.
    #[default]
    Zero,
    /// Their tokens are not trained on, nor are those of episodes that reached the time limit; rewards stay.
    Mask,
    /// They are treated like other episodes.
    Keep,
}

/// How rollouts are played.
#[derive(Clone, Debug)]
pub struct RolloutSettings {
    /// The policy's name in records.
    pub name: String,
    /// Whether the policy has a sandbox.
    pub mode: Mode,
    /// The format of its tool calls.
    pub format: ToolFormat,
    /// How attempts are played.
    pub attempt: Settings,
    /// Concurrent sandboxes.
    pub sandboxes: usize,
    /// Sandboxes created ahead.
    pub warm: usize,
    /// Concurrent episodes, with and without a sandbox, so that none waits for a sampler's slot while its time runs; 0 for
    /// no limit. An episode that is being graded no longer counts.
    pub episodes: usize,
    /// How attempts are repeated when the infrastructure fails.
    pub retry: RetryPolicy,
    /// What becomes of overlong episodes.
    pub overlong: Overlong,
    /// How scores become rewards.
    pub shaping: Shaping,
}

impl Default for RolloutSettings {
    fn default() -> Self {
        Self {
            name: "policy".into(),
            mode: Mode::default(),
            format: ToolFormat::Fenced,
            attempt: Settings::default(),
            sandboxes: 64,
            warm: 8,
            episodes: 0,
            retry: RetryPolicy::default(),
            overlong: Overlong::default(),
            shaping: Shaping::default(),
        }
    }
}

/// A reward function: from a problem and an answer.
pub type CustomReward = Arc<dyn Fn(&Problem, &str) -> f64 + Send + Sync>;

/// How answers are rewarded.
#[derive(Clone, Default)]
pub enum Reward {
    /// By the task's grader.
    #[default]
    Grader,
    /// By a function, instead of the task's grader: for rewards that exist in training only, of any finite size. To grade a
    /// task the same way in benchmarks, use `problems::Grader::custom`.
    Custom(CustomReward),
}

impl fmt::Debug for Reward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Grader => "Grader",
            Self::Custom(_) => "Custom",
        })
    }
}

impl Overlong {
    /// The reward for training, from the raw reward and the end of the episode.
    pub(crate) fn reward(self, end: End, raw: f64) -> f64 {
        match (self, end) {
            (Self::Zero, End::MaxTurns | End::Truncated) => 0.0,
            _ => raw,
        }
    }

    /// Whether the tokens are trained on.
    pub(crate) fn loss(self, end: End) -> Loss {
        match (self, end) {
            (Self::Mask, End::MaxTurns | End::Truncated | End::Timeout) => Loss::Masked,
            _ => Loss::Counted,
        }
    }
}

impl End {
    /// The end that corresponds to an outcome.
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
    fn overlong_episodes_get_no_reward_or_are_masked() {
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
