//! Benchmark and training tasks: their problems, the prompts for a model, and how answers are graded.
//!
//! Start reading at [`Task`]: it turns a [`Problem`] into a prompt and an answer into a [`Grading`]. Calls no model and
//! creates no sandbox: what has to run in one is returned as a [`Check`], what a judge model has to decide as a
//! [`JudgeRequest`].
//!
//! ```
//! use lis_problems::{Grading, Problem, Task};
//!
//! let task = Task::builtin("math").unwrap();
//! let row = serde_json::json!({"id": "1", "problem_statement": "What is 6 * 7?", "ground_truth": "42"});
//! let problem = Problem::from_row(row).unwrap();
//! assert!(task.plain_prompt(&problem).starts_with("What is 6 * 7?"));
//! let Grading::Done(grade) = task.grading(&problem, "It is \\boxed{42}.") else { panic!() };
//! assert_eq!(grade.score, 1.0);
//! ```

mod answer;
mod check;
mod folder;
mod grading;
pub mod hub;
mod problem;
mod rows;
pub mod swe;
mod task;

pub use answer::{AnswerLocation, clean_answer};
pub use check::{Check, GraderFile, ScoreFrom};
pub use folder::TaskError;
pub use grading::{Command, CustomGrader, Grade, Grader, Grading, JudgeRequest};
pub use problem::{Problem, RowError};
pub use rows::{BadRow, Rows, RowsError};
pub use task::{PlainPrompt, Task};
