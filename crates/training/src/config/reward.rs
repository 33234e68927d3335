//! How the score of an answer becomes the reward of its episode.

use rollout::Shaping;
use serde::{Deserialize, Serialize};

use super::{ConfigError, check};

/// Reward shaping. The defaults leave scores as they are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RewardSettings {
    /// Whether scores between 0 and 1 count as they are. If not, an answer is right or wrong: 1 or 0.
    pub partial: bool,
    /// The score from which an answer counts as right: where `partial` is false, and in pass rates.
    pub threshold: f64,
    /// Subtracted for every response of an episode.
    pub turn_cost: f64,
    /// What `turn_cost` never goes below.
    pub floor: f64,
}

impl Default for RewardSettings {
    fn default() -> Self {
        Self { partial: true, threshold: 1.0, turn_cost: 0.0, floor: 0.0 }
    }
}

impl RewardSettings {
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// The shaping of the rollout engine.
    pub fn shaping(&self) -> Shaping {
        let Self { partial, threshold, turn_cost, floor } = *self;
        Shaping { pass_at: (!partial).then_some(threshold), turn_cost, floor }
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let threshold = self.threshold > 0.0 && self.threshold <= 1.0;
        check("reward.threshold", self.threshold, threshold, "above 0 and at most 1")?;
        let cost = (0.0..=1.0).contains(&self.turn_cost);
        check("reward.turn_cost", self.turn_cost, cost, "between 0 and 1")?;
        check("reward.floor", self.floor, (-1.0..=1.0).contains(&self.floor), "between -1 and 1")
    }
}
