//! GRPO++, the recipe of DeepSWE (Luo et al., 2025): GRPO with what made it stable on long episodes.
//!
//! For a group of n episodes of one problem with rewards r, N episodes in the batch, and a constant L:
//! ```text
//! A_i = r_i - mean of the other r_j                          (leave one out, no division by the standard deviation)
//! l   = max(-A rho, -A clamp(rho, 1 - 0.2, 1 + 0.28))        (clip higher; no KL term, no entropy bonus)
//! J   = 1/(N L) sum over episodes, sum over sampled tokens of l
//! ```
//! Compact filtering: an episode that ran out of turns, tokens or time is masked; its reward still counts in the
//! baseline of its group.
//!
//! Deviations from its description:
//! - L is 1024, or the token limit of an episode where that is less, unless `length` sets it; the description names no
//!   value. The token limit of long episodes would make gradients so small that AdamW's epsilon counts.
//! - Failed episodes, groups without spread, segments, and `pi_old`: as in [`crate::Rloo`].

use crate::{
    objective::{Aggregation, Clip, Objective, Surrogate},
    rloo::leave_one_out,
};

/// Leave-one-out advantages, clipped higher, divided by a constant length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GrpoPlusPlus(pub Surrogate);

impl GrpoPlusPlus {
    /// The recipe with this constant length.
    pub fn new(length: f64) -> Self {
        let clip = Clip { low: 0.2, high: 0.28, dual: None };
        Self(Surrogate { clip, aggregation: Aggregation::Constant(length.max(1.0)) })
    }
}

impl Objective for GrpoPlusPlus {
    fn name(&self) -> &'static str {
        "grpo++"
    }

    fn advantages(&self, rewards: &[Option<f64>]) -> Vec<f64> {
        leave_one_out(rewards)
    }

    fn surrogate(&self) -> Surrogate {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use tch::Tensor;

    use super::*;
    use crate::objective::Logprobs;

    #[test]
    fn good_tokens_may_grow_further_than_bad_ones_shrink() {
        let algorithm = GrpoPlusPlus::new(1.0);
        let token = |advantage: f64, ratio: f64| {
            let (new, old) = (Tensor::from(ratio.ln()), Tensor::from(0.0));
            let scores = Logprobs { new: &new, old: &old, reference: None };
            algorithm.loss(&scores, &Tensor::from(advantage)).unwrap().double_value(&[])
        };
        assert!((token(1.0, 2.0) + 1.28).abs() < 1e-12);
        assert!((token(-1.0, 0.1) - 0.8).abs() < 1e-12);
        assert!((token(-1.0, 9.0) - 9.0).abs() < 1e-12, "there is no dual clip");
    }
}
