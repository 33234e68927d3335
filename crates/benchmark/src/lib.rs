//! A benchmark run: many attempts, scheduled, graded, stored and resumed.
//!
//! Start reading at [`Benchmark::run`], then [`Plan`]. Playing one attempt is `lis-attempt`'s business, the files of a run
//! are `lis-results`'. Generic over the model and the runtime; reads no flags and shows nothing: the caller passes a plan
//! and receives [`ProgressEvent`]s.
//!
//! ```
//! use lis_benchmark::{Concurrency, Selection};
//!
//! let selection = Selection { limit: Some(50), ..Selection::default() };
//! let concurrency = Concurrency { sandboxes: 16, model_calls: 16, ..Concurrency::default() };
//! # assert_eq!((selection.limit, concurrency.tries), (Some(50), 3));
//! ```

mod attempt;
mod breaker;
mod digest;
mod error;
mod judge;
mod limited_model;
mod plan;
mod progress;
mod resume;
mod run;

pub use error::Error;
pub use plan::{Plan, Selection, SelectionError, TaskProblems};
pub use progress::{Progress, ProgressEvent, Tally, TaskTally};
pub use resume::open_run;
pub use run::{Benchmark, Concurrency, RunEnd, RunOutcome, Summary, reference_mode};
