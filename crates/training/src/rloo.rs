//! RLOO, the default: the recipe that LLM-in-Sandbox was trained with.
//!
//! For a group of n episodes of one problem, with rewards r, and N episodes in the batch:
//! ```text
//! A_i = r_i - mean of the other r_j                          (n = 1: A = r)
//! rho = exp(clamp(log pi - log pi_old, -20, 20))
//! l   = max(-A rho, -A clamp(rho, 1 - 0.2, 1 + 0.28));  A < 0: l = min(l, -3 A)
//! J   = 1/N sum over episodes, sum over sampled tokens of l
//! ```
//! No division by the spread of rewards, no KL term, no bonus for entropy.
//!
//! Deviations from the released recipe:
//! - Trained are the very ids that were sampled, never text that was tokenised again; ends of turns that the template
//!   and not the model wrote are not trained on.
//! - A conversation that was rewritten (old thinking dropped, results shortened) is trained in segments, each as it was
//!   sampled; all carry the episode's advantage, and N counts episodes.
//! - An episode our side spoilt leaves its group, and A is computed with those that stayed. The last one of a group has
//!   A = 0. The released code aborts.
//! - Groups whose rewards are all equal are not computed at all. They count in N, so the result is the same. A batch of
//!   nothing but such groups takes no step; the released code takes one with a gradient of 0, in which decay and former
//!   gradients move the weights.
//! - With one step per batch `pi_old` is `pi` itself, so the ratio is exactly 1 and nothing is scored twice; the released
//!   code scores twice to find 1 up to rounding. `old = "recomputed"` does so too.
//! - An episode ends after five replies in a row without a call that can be read, and is worth its answer; the released
//!   one goes on until it is out of turns and worth nothing. All calls of a reply are carried out, not the first alone. The
//!   limit of tokens is that of the whole episode, its prompt included.
//! - Optional: `importance`, see [`crate::Importance`]; `resample`, which plays other problems in the place of those whose
//!   rewards are all equal, and so asks more of what is neither easy nor hopeless.

use tch::{TchError, Tensor};

use crate::objective::{Aggregation, Clip, Objective, Scores, leave_one_out};

/// Leave-one-out advantages, clipped, summed over tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rloo {
    /// How far ratios count.
    pub clip: Clip,
    /// How tokens add up.
    pub aggregation: Aggregation,
}

impl Default for Rloo {
    fn default() -> Self {
        Self {
            clip: Clip { low: 0.2, high: 0.28, dual: Some(3.0) },
            aggregation: Aggregation::TokenSum,
        }
    }
}

impl Objective for Rloo {
    fn name(&self) -> &'static str {
        "rloo"
    }

    fn advantages(&self, rewards: &[Option<f64>]) -> Vec<f64> {
        leave_one_out(rewards)
    }

    fn aggregation(&self) -> Aggregation {
        self.aggregation
    }

    fn loss(&self, scores: &Scores<'_>, advantage: &Tensor) -> Result<Tensor, TchError> {
        self.clip.loss(&scores.ratio()?, advantage)
    }

    fn clip(&self) -> Clip {
        self.clip
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objective::Totals;

    /// The loss of one token whose ratio and advantage these are.
    fn token(advantage: f64, ratio: f64) -> f64 {
        let (new, old) = (Tensor::from(ratio.ln()), Tensor::from(0.0));
        let scores = Scores { new: &new, old: &old, reference: None };
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
    fn a_ratio_beyond_all_measure_is_cut_and_stays_a_number() {
        let (new, old) = (Tensor::from(1e30), Tensor::from(0.0));
        let scores = Scores { new: &new, old: &old, reference: None };
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
        let scores = Scores { new: &zeros, old: &zeros, reference: None };
        let advantage = Tensor::from_slice(&[1.0, -1.0]).view([2, 1]);
        let mask = Tensor::from_slice(&[1.0, 0.0, 1.0, 1.0, 1.0, 1.0]).view([2, 3]);
        let weight = [2, 3].map(|tokens| rloo.aggregation.weight(tokens, batch));
        let weight = Tensor::from_slice(&weight).view([2, 1]);
        let loss = rloo.loss(&scores, &advantage).unwrap() * mask * weight;
        let loss = loss.sum(tch::Kind::Double);
        near(&[loss.double_value(&[])], &[0.5]);
    }
}
