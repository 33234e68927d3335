//! Reward shaping: from the score of an answer to the reward that is trained on.

/// How a score becomes a reward. The default leaves scores as they are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shaping {
    /// Scores from this one on count 1, others 0. `None`: scores between 0 and 1 count as they are.
    pub pass_at: Option<f64>,
    /// Subtracted for every response of the policy.
    pub turn_cost: f64,
    /// What `turn_cost` never goes below. An answer that is worth less anyway keeps its score.
    pub floor: f64,
}

impl Default for Shaping {
    fn default() -> Self {
        Self { pass_at: None, turn_cost: 0.0, floor: 0.0 }
    }
}

impl Shaping {
    /// The reward of an episode with this score and this many responses.
    pub(crate) fn reward(&self, score: f64, turns: u32) -> f64 {
        let score = match self.pass_at {
            Some(pass) => f64::from(u8::from(score >= pass)),
            None => score,
        };
        let cost = self.turn_cost * f64::from(turns);
        if cost == 0.0 { score } else { score.min((score - cost).max(self.floor)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_stay_as_they_are_by_default() {
        for score in [-3.0, 0.0, 0.1, 0.25, 1.0, 7.0] {
            assert_eq!(Shaping::default().reward(score, 9), score);
        }
    }

    #[test]
    fn partial_credit_can_be_taken_away() {
        let shaping = Shaping { pass_at: Some(0.5), ..Shaping::default() };
        let rewards = [0.0, 0.49, 0.5, 1.0].map(|score| shaping.reward(score, 1));
        assert_eq!(rewards, [0.0, 0.0, 1.0, 1.0]);
    }

    #[test]
    fn turns_cost_down_to_the_floor() {
        let shaping = Shaping { turn_cost: 0.125, ..Shaping::default() };
        let rewards = [1, 2, 8, 100].map(|turns| shaping.reward(1.0, turns));
        assert_eq!(rewards, [0.875, 0.75, 0.0, 0.0]);
        assert_eq!(shaping.reward(0.0, 4), 0.0, "giving up early must not pay off");
        let lower = Shaping { floor: -1.0, ..shaping };
        assert_eq!(lower.reward(0.0, 4), -0.5);
        assert_eq!(lower.reward(-3.0, 4), -3.0, "the floor raises no reward");
    }
}
