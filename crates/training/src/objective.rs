//! What the algorithms have in common: rewards of a group become advantages, log-probs become a loss per token.
//!
//! The algorithms themselves are `rloo`, `grpo` and `grpo_plus_plus`, one file each. Nothing here knows models,
//! batches or files.

use tch::{TchError, Tensor};

/// Differences of log-probs beyond this are cut before they become ratios.
const WIDEST: f64 = 20.0;

/// A way to learn from groups of rewards.
pub trait Objective: Send + Sync {
    /// The name it has in configurations.
    fn name(&self) -> &'static str;

    /// How much better than its group each member did. A member that left (`None`) gets nothing and counts for
    /// nothing.
    fn advantages(&self, rewards: &[Option<f64>]) -> Vec<f64>;

    /// How the losses of tokens become the loss of a batch.
    fn aggregation(&self) -> Aggregation;

    /// The loss of each token; all tensors have the same shape, or one that spreads to it.
    fn loss(&self, scores: &Scores<'_>, advantage: &Tensor) -> Result<Tensor, TchError>;

    /// How far a ratio may go down and up before it is cut.
    fn clip(&self) -> Clip;
}

/// What a batch holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Episodes that were asked for: problems times members, whether or not all of them are trained on.
    pub episodes: usize,
    /// Tokens that are trained on.
    pub tokens: usize,
}

/// How the losses of tokens become the loss of a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Aggregation {
    /// Summed over the tokens of an episode, averaged over episodes.
    TokenSum,
    /// The same, divided by this length.
    Constant(f64),
    /// Averaged over the tokens of each episode, then over episodes.
    EpisodeMean,
    /// Averaged over all tokens of the batch.
    TokenMean,
}

impl Aggregation {
    /// How much one token weighs, of an episode in which so many are trained on.
    pub fn weight(self, episode: usize, batch: Totals) -> f64 {
        let episodes = batch.episodes.max(1) as f64;
        1.0 / match self {
            Self::TokenSum => episodes,
            Self::Constant(length) => episodes * length,
            Self::EpisodeMean => episodes * episode.max(1) as f64,
            Self::TokenMean => batch.tokens.max(1) as f64,
        }
    }
}

/// The log-probs of tokens.
#[derive(Clone, Copy, Debug)]
pub struct Scores<'a> {
    /// Under the weights that are being changed.
    pub new: &'a Tensor,
    /// Under the weights as they were when the batch began.
    pub old: &'a Tensor,
    /// Under the weights training began with, where the algorithm holds on to them.
    pub reference: Option<&'a Tensor>,
}

impl Scores<'_> {
    /// How much likelier the tokens have become.
    pub fn ratio(&self) -> Result<Tensor, TchError> {
        difference(self.new, self.old)?.f_exp()
    }
}

/// The difference of log-probs, cut so that its exponential stays a number.
pub(crate) fn difference(one: &Tensor, other: &Tensor) -> Result<Tensor, TchError> {
    one.f_sub(other)?.f_clamp(-WIDEST, WIDEST)
}

/// How far log-probs lie from others, never below 0: `exp(d) - d - 1`, where `d = one - other`.
pub(crate) fn distance(one: &Tensor, other: &Tensor) -> Result<Tensor, TchError> {
    let d = difference(one, other)?;
    d.f_exp()?.f_sub(&d)?.f_sub_scalar(1.0)
}

/// How far ratios count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clip {
    /// Down to 1 less this.
    pub low: f64,
    /// Up to 1 plus this.
    pub high: f64,
    /// A token of a bad episode loses at most this many times its advantage.
    pub dual: Option<f64>,
}

impl Clip {
    /// The clipped loss of each token.
    pub fn loss(&self, ratio: &Tensor, advantage: &Tensor) -> Result<Tensor, TchError> {
        let plain = advantage.f_mul(ratio)?.f_neg()?;
        let cut = ratio.f_clamp(1.0 - self.low, 1.0 + self.high)?.f_mul(advantage)?.f_neg()?;
        let loss = plain.f_maximum(&cut)?;
        match self.dual {
            None => Ok(loss),
            Some(most) => {
                let bounded = loss.f_minimum(&advantage.f_mul_scalar(-most)?)?;
                bounded.f_where_self(&advantage.f_lt(0.0)?, &loss)
            }
        }
    }

    /// Which ratios are beyond the bounds, as ones and zeros.
    pub fn beyond(&self, ratio: &Tensor) -> Result<Tensor, TchError> {
        let (below, above) = (ratio.f_lt(1.0 - self.low)?, ratio.f_gt(1.0 + self.high)?);
        below.f_logical_or(&above)?.f_to_kind(ratio.kind())
    }
}

/// The rewards of those who stayed, with their places. A reward that is no number is none.
pub(crate) fn stayed(rewards: &[Option<f64>]) -> Vec<(usize, f64)> {
    let given = rewards.iter().enumerate();
    given.filter_map(|(at, reward)| Some((at, (*reward)?))).filter(|(_, r)| r.is_finite()).collect()
}

/// Whether a group tells its members apart.
pub fn has_spread(rewards: &[Option<f64>]) -> bool {
    let stayed = stayed(rewards);
    stayed.iter().any(|(_, reward)| Some(*reward) != stayed.first().map(|(_, first)| *first))
}

/// Each reward less the mean of the others': what both leave-one-out algorithms use.
///
/// A group of one by configuration has nothing to compare with: its advantage is the reward. The last one left of a
/// larger group has nothing either, but its reward was meant to be compared: its advantage is 0.
pub(crate) fn leave_one_out(rewards: &[Option<f64>]) -> Vec<f64> {
    let mut advantages = vec![0.0; rewards.len()];
    let stayed = stayed(rewards);
    if let ([only], 1) = (stayed.as_slice(), rewards.len()) {
        return vec![only.1];
    }
    // Where all are equal, rounding must not invent a difference.
    if !has_spread(rewards) {
        return advantages;
    }
    let count = stayed.len() as f64;
    let sum: f64 = stayed.iter().map(|(_, reward)| reward).sum();
    for (at, reward) in stayed {
        advantages[at] = reward - (sum - reward) / (count - 1.0);
    }
    advantages
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_reward_that_is_no_number_counts_for_nothing() {
        let rewards = [Some(1.0), Some(f64::NAN), Some(0.0), Some(f64::INFINITY)];
        assert_eq!(leave_one_out(&rewards), [1.0, 0.0, -1.0, 0.0]);
    }

    #[test]
    fn the_last_of_a_larger_group_is_compared_with_nobody() {
        assert_eq!(leave_one_out(&[None, Some(1.0), None]), [0.0, 0.0, 0.0]);
        assert_eq!(leave_one_out(&[None, None]), [0.0, 0.0]);
        assert_eq!(leave_one_out(&[]), [0.0; 0]);
    }

    #[test]
    fn equal_rewards_have_no_spread_whatever_rounding_says() {
        assert!(!has_spread(&[Some(0.1), None, Some(0.1), Some(0.1)]));
        assert!(has_spread(&[Some(0.1), Some(0.2)]));
        assert_eq!(leave_one_out(&[Some(0.1); 3]), [0.0; 3]);
    }

    #[test]
    fn tokens_weigh_as_the_aggregation_says() {
        let batch = Totals { episodes: 4, tokens: 50 };
        let weight = |aggregation: Aggregation| aggregation.weight(10, batch);
        assert_eq!(weight(Aggregation::TokenSum), 0.25);
        assert_eq!(weight(Aggregation::Constant(5.0)), 0.05);
        assert_eq!(weight(Aggregation::EpisodeMean), 0.025);
        assert_eq!(weight(Aggregation::TokenMean), 0.02);
        let nothing = Totals { episodes: 0, tokens: 0 };
        assert!(Aggregation::EpisodeMean.weight(0, nothing).is_finite());
        assert!(Aggregation::TokenMean.weight(0, nothing).is_finite());
    }

    proptest! {
        #[test]
        fn advantages_of_a_group_sum_to_zero(
            rewards in prop::collection::vec(prop::option::of(-1e3..1e3f64), 2..20),
        ) {
            let sum: f64 = leave_one_out(&rewards).iter().sum();
            prop_assert!(sum.abs() < 1e-9 * 1e3 * rewards.len() as f64, "{sum}");
        }

        #[test]
        fn who_left_changes_nothing_for_the_others(rewards in prop::collection::vec(0.0..1.0f64, 2..10)) {
            let all: Vec<Option<f64>> = rewards.iter().copied().map(Some).collect();
            let mut fewer = all.clone();
            fewer.push(None);
            let (all, fewer) = (leave_one_out(&all), leave_one_out(&fewer));
            prop_assert_eq!(&all[..], &fewer[..rewards.len()]);
        }
    }
}
