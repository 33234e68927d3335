//! Benchmark tasks: which problems there are, how they are put to a model, and how answers are graded.
//!
//! Asks no model and makes no sandbox: what has to happen in one is handed back as a [`Check`], what has to be
//! put to a judge as a [`JudgeJob`].

mod answer;
mod check;
mod folder;
mod grading;
pub mod hub;
mod problem;
mod rows;
pub mod swe;
mod task;

pub use answer::{Answer, clean_answer};
pub use check::{CarriedFile, Check, ScoreFrom};
pub use folder::TaskError;
pub use grading::{Command, Grade, Grader, Grading, JudgeJob};
pub use problem::Problem;
pub use rows::{BadRow, Rows, RowsError};
pub use task::{PlainForm, Task};
