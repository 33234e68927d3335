//! GRPO, as in the paper that introduced it (DeepSeekMath, 2024).
//!
//! For a group of n episodes of one problem, with rewards r, N episodes in the batch, and |o| sampled tokens in one:
//! ```text
//! A_i = (r_i - mean r) / (std r + 1e-6)                      (n = 1: A = r)
//! l   = max(-A rho, -A clamp(rho, 1 - eps, 1 + eps)) + beta (exp(d) - d - 1),   d = log pi_ref - log pi
//! J   = 1/N sum over episodes, 1/|o| sum over sampled tokens of l
//! ```
//!
//! Deviations from the paper:
//! - `beta` is 0 unless `kl` asks for it: a reference costs the memory of a second model. The paper has 0.04.
//! - The spread is that of a sample (n - 1), as the implementations in use have it.
//! - Ratios are cut at exp(+-20) so that they stay numbers.
//! - Episodes out of turns or tokens are worth nothing, unless `overlong` says otherwise; the paper does not speak of them.
//! - Episodes that left, groups without spread, segments, and `pi_old`: as in [`crate::Rloo`], and so are the ends of
//!   episodes and `resample`.

use tch::{TchError, Tensor};

use crate::objective::{Aggregation, Clip, Objective, Scores, distance, has_spread, stayed};

/// Keeps the division by a tiny spread a number.
const LEAST: f64 = 1e-6;

/// Advantages in units of the group's spread, clipped, averaged over the tokens of each episode.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grpo {
    /// How far ratios count.
    pub clip: Clip,
    /// How tokens add up.
    pub aggregation: Aggregation,
    /// How strongly it is held to the model it began with.
    pub kl: f64,
}

impl Default for Grpo {
    fn default() -> Self {
        Self {
            clip: Clip { low: 0.2, high: 0.2, dual: None },
            aggregation: Aggregation::EpisodeMean,
            kl: 0.0,
        }
    }
}

impl Objective for Grpo {
    fn name(&self) -> &'static str {
        "grpo"
    }

    fn advantages(&self, rewards: &[Option<f64>]) -> Vec<f64> {
        let mut advantages = vec![0.0; rewards.len()];
        let stayed = stayed(rewards);
        if let ([only], 1) = (stayed.as_slice(), rewards.len()) {
            return vec![only.1];
        }
        if !has_spread(rewards) {
            return advantages;
        }
        let count = stayed.len() as f64;
        let mean = stayed.iter().map(|(_, reward)| reward).sum::<f64>() / count;
        let squares: f64 = stayed.iter().map(|(_, reward)| (reward - mean).powi(2)).sum();
        let spread = (squares / (count - 1.0)).sqrt();
        for (at, reward) in stayed {
            advantages[at] = (reward - mean) / (spread + LEAST);
        }
        advantages
    }

    fn aggregation(&self) -> Aggregation {
        self.aggregation
    }

    fn loss(&self, scores: &Scores<'_>, advantage: &Tensor) -> Result<Tensor, TchError> {
        let loss = self.clip.loss(&scores.ratio()?, advantage)?;
        match scores.reference {
            Some(reference) if self.kl > 0.0 => {
                loss.f_add(&distance(reference, scores.new)?.f_mul_scalar(self.kl)?)
            }
            _ => Ok(loss),
        }
    }

    fn clip(&self) -> Clip {
        self.clip
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advantages_are_measured_in_spreads() {
        let found = Grpo::default().advantages(&[Some(1.0), Some(0.0), None, Some(0.5)]);
        // Mean 0.5, spread 0.5.
        assert!((found[0] - 1.0).abs() < 1e-5 && (found[1] + 1.0).abs() < 1e-5);
        assert_eq!((found[2], found[3]), (0.0, 0.0));
        assert_eq!(Grpo::default().advantages(&[Some(0.3)]), [0.3]);
        assert_eq!(Grpo::default().advantages(&[Some(0.3), None]), [0.0, 0.0]);
    }

    #[test]
    fn both_sides_are_cut_alike_and_nothing_is_cut_twice() {
        let token = |advantage: f64, ratio: f64| {
            let (new, old) = (Tensor::from(ratio.ln()), Tensor::from(0.0));
            let scores = Scores { new: &new, old: &old, reference: None };
            Grpo::default().loss(&scores, &Tensor::from(advantage)).unwrap().double_value(&[])
        };
        assert!((token(1.0, 1.5) + 1.2).abs() < 1e-12);
        assert!((token(-1.0, 5.0) - 5.0).abs() < 1e-12);
    }

    #[test]
    fn leaving_the_reference_costs_and_staying_does_not() {
        let grpo = Grpo { kl: 0.5, ..Grpo::default() };
        let (new, reference) =
            (Tensor::from_slice(&[-1.0, -1.0]), Tensor::from_slice(&[-1.0, -2.0]));
        let scores = Scores { new: &new, old: &new, reference: Some(&reference) };
        let found = grpo.loss(&scores, &Tensor::from(0.0)).unwrap();
        let found = Vec::<f64>::try_from(found).unwrap();
        // d = -1: exp(-1) + 1 - 1.
        assert!(
            found[0].abs() < 1e-12 && (found[1] - 0.5 * (-1f64).exp()).abs() < 1e-12,
            "{found:?}"
        );
    }
}
