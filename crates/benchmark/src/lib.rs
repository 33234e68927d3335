//! Many problems, with and without a computer: scheduled, graded, kept, resumed.
//!
//! Generic over the model and the runtime. Reads no flags and shows nothing: the caller hands over a plan and
//! hears how it goes on.

mod attempt;
mod breaker;
mod claim;
mod computer;
mod digest;
mod error;
mod gate;
mod grading;
mod journal;
mod judge;
mod plain;
mod plan;
mod progress;
mod run;
mod sandboxed;
mod summary;

pub use claim::claim;
pub use error::Error;
pub use plan::{
    Capability, Caps, Context, Method, Plan, Questions, Selection, SelectionError,
    UnknownCapability,
};
pub use progress::{Group, News, Progress, Tally};
pub use run::{Benchmark, End, Finished, Pace};
pub use summary::{Summary, reference_mode};

/// Milliseconds since 1970.
pub fn now() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::try_from(now.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

/// How long ago that was, in milliseconds.
fn millis_since(began: std::time::Instant) -> u64 {
    u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
}
