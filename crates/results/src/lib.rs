//! The files of a benchmark run: how they are written, and how they are read back.
//!
//! A run is a directory: `run.json` holds what was requested, `attempts` one file per finished attempt, `trajectories` the
//! events of each, `judgements` the votes of a judge, and `results.json` the summary. Start reading at [`ResultsDir`]. This
//! crate plays nothing and grades nothing.
//!
//! ```no_run
//! use lis_results::ResultsDir;
//!
//! # fn main() -> Result<(), lis_results::Error> {
//! let results = ResultsDir::new("study");
//! for attempt in results.attempts()? {
//!     let attempt = attempt?;
//!     println!("{} {:?} {:?}", attempt.key.id, attempt.score, attempt.validity());
//! }
//! # Ok(())
//! # }
//! ```

mod attempt;
mod directory;
mod judgement;
mod name;
mod open;
mod run;
mod tokens;

pub use attempt::{AttemptKey, AttemptRecord, EarlierGrade, GradingHistory, Tokens};
pub use directory::{DirLock, Error, ResultsDir, has_no_locks};
pub use judgement::Judgement;
pub use open::open_below;
pub use run::{JudgeRecord, ProblemRequest, Run, RunSettings, Selection, TaskInfo};
pub use trajectory::{Mode, Validity};

/// The version of the files this program writes. It reads all versions from 1 up to this one.
pub const VERSION: u32 = 1;
