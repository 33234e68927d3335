//! Measures what things cost on this machine, side by side with an alternative where there is one.
//!
//! Start with [`sandbox::measure`] or [`grade::measure`]; every module has one such function, which returns plain
//! numbers. These are measurements, not tests: nothing fails for being slow.
//!
//! ```
//! let cases = lis_perf::grade::synthetic_cases(1, 100);
//! let report = lis_perf::grade::measure(&cases);
//! assert_eq!(report.scores.len(), 100);
//! assert!(report.per_second > 0.0);
//! ```

pub mod agent;
pub mod benchmark;
pub mod grade;
mod machine;
mod memory;
pub mod model;
pub mod sandbox;
pub mod serve;

pub use machine::{Machine, meminfo};
pub use memory::MemoryPerSandbox;

/// Rounds to five decimal places: a pooled sandbox takes microseconds.
pub(crate) fn round(value: f64) -> f64 {
    (value * 100_000.0).round() / 100_000.0
}
