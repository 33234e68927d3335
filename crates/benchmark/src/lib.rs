//! A benchmark run: many attempts, scheduled, graded, stored and resumed.
//!
//! Start reading at [`Benchmark::run`], then [`Plan`]. Playing one attempt is `lis-attempt`'s business, the files of a run
//! are `lis-results`'. Generic over the model and the runtime; reads no flags and shows nothing: the caller passes a plan
//! and receives [`ProgressEvent`]s.
//!
//! ```
//! use lis_benchmark::{Concurrency, ProblemRequest, Selection};
//!
//! let selection = Selection { limit: Some(50), ..Selection::default() };
//! let request = ProblemRequest { tasks: vec!["math".into()], selection, repeats: 4 };
//! let concurrency = Concurrency { sandboxes: 16, model_calls: 16, ..Concurrency::default() };
//! # assert_eq!((request.repeats, concurrency.tries), (4, 3));
//! ```

mod attempt;
mod breaker;
mod digest;
mod dry_run;
mod due;
mod error;
mod judge;
mod limited_model;
mod plan;
mod progress;
mod resume;
mod run;
mod withdraw;

pub use dry_run::{AnswerCheck, DryRun, PromptCheck, SandboxCheck, TaskCheck};
pub use due::{Due, JudgeAccess, Scope};
pub use error::{Difference, Error};
pub use plan::{Plan, SelectedProblem, SelectionError, TaskProblems, TaskRows, select};
pub use progress::{Progress, ProgressEvent, Tally, TaskTally};
pub use results::{ProblemRequest, Selection};
pub use resume::{PreparedRun, Regrade, prepare_run};
pub use run::{Benchmark, Concurrency, RunEnd, RunOutcome, Summary, reference_mode};
pub use withdraw::withdraw_scores;
