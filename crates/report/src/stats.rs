//! Statistics: clustered standard errors, paired comparisons, pass@k. Deterministic on every machine.
//!
//! Pure functions on clusters of scores; tasks, files and pages are unknown here.

mod estimate;
mod paired;
mod pass;
mod significance;

pub use estimate::{Estimate, clustered, mean, median};
pub use paired::{Paired, Scores, paired, paired_average};
pub use pass::{PASS, PassAt, pass_at, pass_at_k};
pub use significance::{Test, holm, mcnemar, sign_flips};

/// Confidence level of every interval.
pub const CONFIDENCE: f64 = 0.95;

/// 97.5% quantile of the normal distribution: half the width of a 95% interval, in standard errors.
pub const Z_975: f64 = 1.959_963_984_540_054;

/// 80% quantile of the normal distribution, for the power of the minimum detectable effect.
const Z_80: f64 = 0.841_621_233_572_914_3;

/// Seed of the bootstrap and the permutation test.
pub const SEED: u64 = 20_260_116;
