//! GRPO, as in the paper that introduced it (Shao et al., "DeepSeekMath", 2024).
//!
//! For a group of n episodes of one problem with rewards r, N episodes in the batch, and |o| sampled tokens in one:
//! ```text
//! A_i = (r_i - mean r) / (std r + 1e-6)                      (n = 1: A = r)
//! l   = max(-A rho, -A clamp(rho, 1 - eps, 1 + eps)) + beta (exp(d) - d - 1),   d = log pi_ref - log pi
//! J   = 1/N sum over episodes, 1/|o| sum over sampled tokens of l
//! ```
//!
//! Deviations from the paper:
//! - `beta` is 0 unless `kl` sets it: a reference costs the memory of a second model. The paper uses 0.04.
//! - The standard deviation is that of a sample (n - 1), as in common implementations.
//! - Log-ratios are clamped to +-20 so that ratios stay finite.
//! - Episodes out of turns or tokens get reward 0, unless `overlong` says otherwise; the paper does not mention them.
//! - Failed episodes, groups without spread, segments, `pi_old`, the ends of episodes and `resample`: as in
//!   [`crate::Rloo`].

use tch::{TchError, Tensor};

use crate::objective::{
    Aggregation, Clip, Logprobs, Objective, Surrogate, group_advantages, kl_estimate,
};

/// Added to the standard deviation before dividing by it.
const EPS: f64 = 1e-6;

/// Advantages in units of the group's standard deviation, clipped, averaged over the tokens of each episode.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grpo {
    /// Clip range and aggregation.
    pub surrogate: Surrogate,
    /// The coefficient beta of the KL term to the initial model; 0 disables it.
    pub kl: f64,
}

impl Default for Grpo {
    fn default() -> Self {
        let clip = Clip { low: 0.2, high: 0.2, dual: None };
        Self { surrogate: Surrogate { clip, aggregation: Aggregation::EpisodeMean }, kl: 0.0 }
    }
}

impl Objective for Grpo {
    fn name(&self) -> &'static str {
        "grpo"
    }

    fn advantages(&self, rewards: &[Option<f64>]) -> Vec<f64> {
        group_advantages(rewards, |valid| {
            let count = valid.len() as f64;
            let mean = valid.iter().sum::<f64>() / count;
            let squares: f64 = valid.iter().map(|reward| (reward - mean).powi(2)).sum();
            let std = (squares / (count - 1.0)).sqrt();
            valid.iter().map(|reward| (reward - mean) / (std + EPS)).collect()
        })
    }

    fn surrogate(&self) -> Surrogate {
        self.surrogate
    }

    fn penalty(&self, logprobs: &Logprobs<'_>) -> Result<Option<Tensor>, TchError> {
        match logprobs.reference {
            Some(reference) if self.kl > 0.0 => {
                kl_estimate(reference, logprobs.new)?.f_mul_scalar(self.kl).map(Some)
            }
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advantages_are_in_units_of_the_standard_deviation() {
        let found = Grpo::default().advantages(&[Some(1.0), Some(0.0), None, Some(0.5)]);
        // Mean 0.5, standard deviation 0.5.
        assert!((found[0] - 1.0).abs() < 1e-5 && (found[1] + 1.0).abs() < 1e-5);
        assert_eq!((found[2], found[3]), (0.0, 0.0));
        assert_eq!(Grpo::default().advantages(&[Some(0.3)]), [0.3]);
        assert_eq!(Grpo::default().advantages(&[Some(0.3), None]), [0.0, 0.0]);
    }

    #[test]
    fn the_clip_is_symmetric_and_there_is_no_dual_clip() {
        let token = |advantage: f64, ratio: f64| {
            let (new, old) = (Tensor::from(ratio.ln()), Tensor::from(0.0));
            let scores = Logprobs { new: &new, old: &old, reference: None };
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
        let scores = Logprobs { new: &new, old: &new, reference: Some(&reference) };
        let found = grpo.penalty(&scores).unwrap().unwrap();
        let found = Vec::<f64>::try_from(found).unwrap();
        // d = -1: exp(-1) + 1 - 1.
        assert!(
            found[0].abs() < 1e-12 && (found[1] - 0.5 * (-1f64).exp()).abs() < 1e-12,
            "{found:?}"
        );
    }
}
