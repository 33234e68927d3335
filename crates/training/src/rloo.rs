//! RLOO, the default: the recipe that LLM-in-Sandbox was trained with.
//!
//! For a group of n episodes of one problem with rewards r, and N episodes in the batch:
//! ```text
//! A_i = r_i - mean of the other r_j                          (n = 1: A = r)
//! rho = exp(clamp(log pi - log pi_old, -20, 20))
//! l   = max(-A rho, -A clamp(rho, 1 - 0.2, 1 + 0.28));  A < 0: l = min(l, -3 A)
//! J   = 1/N sum over episodes, sum over sampled tokens of l
//! ```
//! No division by the standard deviation of rewards, no KL term, no entropy bonus.
//!
//! References: Ahmadian et al., "Back to basics: revisiting REINFORCE-style optimization", 2024 (leave-one-out);
//! Yu et al., "DAPO", 2025 (asymmetric clip); Ye et al., "Mastering complex control in MOBA games", 2020 (dual clip).
//!
//! Deviations from the released recipe:
//! - The sampled token ids themselves are trained on, never re-tokenised text; end-of-turn tokens that the template and
//!   not the model wrote are masked.
//! - A conversation that was rewritten (old thinking dropped, results shortened) is trained in segments, each as it was
//!   sampled; all have the episode's advantage, and N counts episodes.
//! - An episode that failed on our side is excluded from its group, and A is computed from the others. If only one is
//!   left, A = 0. The released code aborts.
//! - Groups whose rewards are all equal are not computed. They count in N, so the result is the same. A batch of only
//!   such groups takes no step; the released code takes one with a gradient of 0, in which weight decay and momentum
//!   move the weights.
//! - With one step per batch `pi_old` is `pi` itself, so the ratio is exactly 1 and nothing is scored twice; the released
//!   code scores twice to obtain 1 up to rounding. `old = "recomputed"` does so too.
//! - An episode ends after five responses in a row without a readable call, and its answer is graded; the released one
//!   continues until it runs out of turns and gets 0. All calls of a response are executed, not only the first. The
//!   token limit is that of the whole episode, prompt included.
//! - Optional: `importance`, see [`crate::ImportanceSampling`]; `resample`, which plays other problems in place of those
//!   whose rewards are all equal, and so samples more from problems that are neither easy nor hopeless.

use crate::objective::{Aggregation, Clip, Objective, Surrogate, group_advantages};

/// Leave-one-out advantages, clipped, summed over tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rloo(pub Surrogate);

impl Default for Rloo {
    fn default() -> Self {
        let clip = Clip { low: 0.2, high: 0.28, dual: Some(3.0) };
        Self(Surrogate { clip, aggregation: Aggregation::TokenSum })
    }
}

impl Objective for Rloo {
    fn name(&self) -> &'static str {
        "rloo"
    }

    fn advantages(&self, rewards: &[Option<f64>]) -> Vec<f64> {
        leave_one_out(rewards)
    }

    fn surrogate(&self) -> Surrogate {
        self.0
    }
}

/// Each reward minus the mean of the others (the leave-one-out baseline); see [`group_advantages`].
pub(crate) fn leave_one_out(rewards: &[Option<f64>]) -> Vec<f64> {
    group_advantages(rewards, |valid| {
        let (sum, others) = (valid.iter().sum::<f64>(), valid.len() as f64 - 1.0);
        valid.iter().map(|reward| reward - (sum - reward) / others).collect()
    })
}

#[cfg(test)]
mod tests {
    use tch::Tensor;

    use super::*;
    use crate::objective::{Logprobs, Totals};

    /// The loss of one token with this advantage and ratio.
    fn token(advantage: f64, ratio: f64) -> f64 {
        let (new, old) = (Tensor::from(ratio.ln()), Tensor::from(0.0));
        let scores = Logprobs { new: &new, old: &old, reference: None };
        Rloo::default().loss(&scores, &Tensor::from(advantage)).unwrap().double_value(&[])
    }

    fn near(found: &[f64], wanted: &[f64]) {
        assert_eq!(found.len(), wanted.len());
        let close = found.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-12);
        assert!(close, "{found:?} is not {wanted:?}");
    }

    #[test]
    fn advantages_are_those_of_the_recipe() {
        let of = |rewards: &[f64]| {
            let rewards: Vec<Option<f64>> = rewards.iter().copied().map(Some).collect();
            Rloo::default().advantages(&rewards)
        };
        near(&of(&[1.0, 0.0, 0.0, 1.0]), &[2.0 / 3.0, -2.0 / 3.0, -2.0 / 3.0, 2.0 / 3.0]);
        near(&of(&[1.0; 4]), &[0.0; 4]);
        near(&of(&[0.5, 0.0, 0.0, 0.0]), &[0.5, -1.0 / 6.0, -1.0 / 6.0, -1.0 / 6.0]);
        near(&of(&[0.3]), &[0.3]);
    }

    #[test]
    fn losses_are_those_of_the_recipe() {
        near(&[token(1.0, 1.5), token(1.0, 0.5)], &[-1.28, -0.5]);
        near(&[token(-1.0, 0.5), token(-1.0, 1.5), token(-1.0, 5.0)], &[0.8, 1.5, 3.0]);
    }

    #[test]
    fn a_huge_ratio_is_clamped_and_stays_finite() {
        let (new, old) = (Tensor::from(1e30), Tensor::from(0.0));
        let scores = Logprobs { new: &new, old: &old, reference: None };
        assert!((scores.ratio().unwrap().double_value(&[]) - 20f64.exp()).abs() < 1.0);
        let loss = Rloo::default().loss(&scores, &Tensor::from(-1.0)).unwrap();
        assert!((loss.double_value(&[]) - 3.0).abs() < 1e-9);
    }

    #[test]
    fn tokens_are_summed_and_episodes_averaged() {
        // Two episodes, A = +1 and -1, with two and three sampled tokens: (1/2)(-2 + 3).
        let rloo = Rloo::default();
        let batch = Totals { episodes: 2, tokens: 5 };
        let zeros = Tensor::zeros([2, 3], (tch::Kind::Double, tch::Device::Cpu));
        let scores = Logprobs { new: &zeros, old: &zeros, reference: None };
        let advantage = Tensor::from_slice(&[1.0, -1.0]).view([2, 1]);
        let mask = Tensor::from_slice(&[1.0, 0.0, 1.0, 1.0, 1.0, 1.0]).view([2, 3]);
        let weight = [2, 3].map(|tokens| rloo.0.aggregation.weight(tokens, batch));
        let weight = Tensor::from_slice(&weight).view([2, 1]);
        let loss = rloo.loss(&scores, &advantage).unwrap() * mask * weight;
        let loss = loss.sum(tch::Kind::Double);
        near(&[loss.double_value(&[])], &[0.5]);
    }
}
