//! What the algorithms share: advantages from the rewards of a group, and the clipped surrogate loss per token.
//!
//! The algorithms themselves are `rloo`, `grpo` and `grpo_plus_plus`, one file each; start with `rloo`. Nothing here
//! knows models, batches or files.

use tch::{TchError, Tensor};

/// Log-ratios are clamped to this magnitude, so that their exponentials stay finite.
const MAX_LOG_RATIO: f64 = 20.0;

/// A policy-gradient algorithm on groups of episodes that share a problem.
pub trait Objective: Send + Sync {
    /// Its name in configurations.
    fn name(&self) -> &'static str;

    /// The advantage of each member over its group. A member without reward (`None`) gets 0 and affects no other.
    fn advantages(&self, rewards: &[Option<f64>]) -> Vec<f64>;

    /// How ratios are clipped and how tokens are aggregated.
    fn surrogate(&self) -> Surrogate;

    /// The policy-gradient loss of each token; all tensors have the same shape, or broadcast to it.
    fn loss(&self, logprobs: &Logprobs<'_>, advantage: &Tensor) -> Result<Tensor, TchError> {
        self.surrogate().clip.loss(&logprobs.ratio()?, advantage)
    }

    /// What is added to the loss of each token whatever its advantage, such as a KL term; `None` for nothing. Importance
    /// sampling does not weight it.
    fn penalty(&self, _logprobs: &Logprobs<'_>) -> Result<Option<Tensor>, TchError> {
        Ok(None)
    }
}

/// The settings of a clipped surrogate objective.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Surrogate {
    /// How probability ratios are clipped.
    pub clip: Clip,
    /// How token losses become the loss of a batch.
    pub aggregation: Aggregation,
}

/// The size of a batch, for [`Aggregation::weight`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Requested episodes: problems times members, whether or not all of them are trained on.
    pub episodes: usize,
    /// Tokens that are trained on.
    pub tokens: usize,
}

/// How token losses become the loss of a batch.
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
    /// The weight of one token in an episode with `episode_tokens` trained tokens.
    pub fn weight(self, episode_tokens: usize, batch: Totals) -> f64 {
        let episodes = batch.episodes.max(1) as f64;
        1.0 / match self {
            Self::TokenSum => episodes,
            Self::Constant(length) => episodes * length,
            Self::EpisodeMean => episodes * episode_tokens.max(1) as f64,
            Self::TokenMean => batch.tokens.max(1) as f64,
        }
    }

    /// The factor from weights in a batch of one size to weights in one of another.
    pub fn rescale(self, from: Totals, to: Totals) -> f64 {
        self.weight(1, to) / self.weight(1, from)
    }
}

/// The log-probabilities of the same tokens under different weights.
#[derive(Clone, Copy, Debug)]
pub struct Logprobs<'a> {
    /// Under the weights being trained.
    pub new: &'a Tensor,
    /// Under the weights before the batch's first step (`pi_old`).
    pub old: &'a Tensor,
    /// Under the weights the run started from (`pi_ref`), where the algorithm has a KL term.
    pub reference: Option<&'a Tensor>,
}

impl Logprobs<'_> {
    /// The probability ratio `pi / pi_old`.
    pub fn ratio(&self) -> Result<Tensor, TchError> {
        log_ratio(self.new, self.old)?.f_exp()
    }
}

/// `log(p / q)` from two log-probabilities, clamped so that its exponential is finite.
pub(crate) fn log_ratio(p: &Tensor, q: &Tensor) -> Result<Tensor, TchError> {
    p.f_sub(q)?.f_clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
}

/// The non-negative KL estimator `exp(d) - d - 1` with `d = log p - log q` (Schulman's k3), for tokens sampled from `q`.
pub(crate) fn kl_estimate(p: &Tensor, q: &Tensor) -> Result<Tensor, TchError> {
    let d = log_ratio(p, q)?;
    d.f_exp()?.f_sub(&d)?.f_sub_scalar(1.0)
}

/// The clip range of probability ratios, as in PPO with separate bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clip {
    /// Lower bound: 1 minus this.
    pub low: f64,
    /// Upper bound: 1 plus this.
    pub high: f64,
    /// Dual clip: the loss of a token with negative advantage A is at most `-dual * A`.
    pub dual: Option<f64>,
}

impl Clip {
    /// The clipped loss of each token.
    pub fn loss(&self, ratio: &Tensor, advantage: &Tensor) -> Result<Tensor, TchError> {
        let unclipped = advantage.f_mul(ratio)?.f_neg()?;
        let clipped = ratio.f_clamp(1.0 - self.low, 1.0 + self.high)?.f_mul(advantage)?.f_neg()?;
        let loss = unclipped.f_maximum(&clipped)?;
        match self.dual {
            None => Ok(loss),
            Some(dual) => {
                let bounded = loss.f_minimum(&advantage.f_mul_scalar(-dual)?)?;
                bounded.f_where_self(&advantage.f_lt(0.0)?, &loss)
            }
        }
    }

    /// 1 where a ratio is outside the range, else 0.
    pub fn is_outside(&self, ratio: &Tensor) -> Result<Tensor, TchError> {
        let (below, above) = (ratio.f_lt(1.0 - self.low)?, ratio.f_gt(1.0 + self.high)?);
        below.f_logical_or(&above)?.f_to_kind(ratio.kind())
    }
}

/// The rewards that are present and finite, with their indices.
fn valid_rewards(rewards: &[Option<f64>]) -> Vec<(usize, f64)> {
    let present = rewards.iter().enumerate().filter_map(|(at, reward)| Some((at, (*reward)?)));
    present.filter(|(_, reward)| reward.is_finite()).collect()
}

/// Whether the rewards of a group differ, so that it has a gradient.
pub fn has_spread(rewards: &[Option<f64>]) -> bool {
    let valid = valid_rewards(rewards);
    valid.iter().any(|(_, reward)| Some(*reward) != valid.first().map(|(_, first)| *first))
}

/// Computes the advantages of a group from its valid rewards with `relative`; 0 for members without one.
///
/// A group of one by configuration has nothing to compare with: its advantage is the reward. The only valid member of a
/// larger group was meant to be compared: its advantage is 0.
pub(crate) fn group_advantages(
    rewards: &[Option<f64>],
    relative: impl FnOnce(&[f64]) -> Vec<f64>,
) -> Vec<f64> {
    let mut advantages = vec![0.0; rewards.len()];
    let (indices, valid): (Vec<usize>, Vec<f64>) = valid_rewards(rewards).into_iter().unzip();
    if let ([only], 1) = (valid.as_slice(), rewards.len()) {
        return vec![*only];
    }
    // Where all rewards are equal, rounding must not create a difference.
    if has_spread(rewards) {
        for (at, advantage) in indices.into_iter().zip(relative(&valid)) {
            advantages[at] = advantage;
        }
    }
    advantages
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rloo::leave_one_out;

    #[test]
    fn a_reward_that_is_not_finite_is_ignored() {
        let rewards = [Some(1.0), Some(f64::NAN), Some(0.0), Some(f64::INFINITY)];
        assert_eq!(leave_one_out(&rewards), [1.0, 0.0, -1.0, 0.0]);
    }

    #[test]
    fn the_only_valid_member_of_a_larger_group_gets_nothing() {
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
        let whole = Totals { episodes: 8, tokens: 75 };
        for aggregation in [
            Aggregation::TokenSum,
            Aggregation::Constant(5.0),
            Aggregation::EpisodeMean,
            Aggregation::TokenMean,
        ] {
            let rescaled = aggregation.weight(10, batch) * aggregation.rescale(batch, whole);
            assert!((rescaled - aggregation.weight(10, whole)).abs() < 1e-12, "{aggregation:?}");
        }
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
        fn a_missing_reward_changes_nothing_for_the_others(rewards in prop::collection::vec(0.0..1.0f64, 2..10)) {
            let all: Vec<Option<f64>> = rewards.iter().copied().map(Some).collect();
            let mut fewer = all.clone();
            fewer.push(None);
            let (all, fewer) = (leave_one_out(&all), leave_one_out(&fewer));
            prop_assert_eq!(&all[..], &fewer[..rewards.len()]);
        }
    }
}
