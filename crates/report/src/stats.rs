//! The statistics of a report: plain functions from numbers to numbers, the same on every machine.
//!
//! Knows problems only as clusters of scores; nothing of tasks, files or pages.

mod estimate;
mod paired;
mod pass;
mod random;

pub use estimate::{Estimate, clustered, mean, median};
pub use paired::{Paired, Test, holm, mcnemar, paired, sign_flips};
pub use pass::{PASS, PassAt, pass_at, pass_at_k};

/// The confidence of every interval.
pub const CONFIDENCE: f64 = 0.95;

/// The normal quantile at 97.5%: half the width of such an interval, in standard errors.
pub const HALF_WIDTH: f64 = 1.959_963_984_540_054;

/// The normal quantile at 80%, the power of the least difference a comparison can be expected to see.
const POWER: f64 = 0.841_621_233_572_914_3;

/// Where every pseudo-random sequence begins.
pub const SEED: u64 = 20_260_116;
