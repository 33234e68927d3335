//! Graders with the verdicts of the benchmarks' official ones, quirks included: mathematical equality (Math-Verify),
//! multiple choice, IFBench constraints, ROUGE-L, rewards of context tasks, and the verdict of a judge model.
//!
//! Pure functions from texts to scores: no files, no network, no clock, no Python. Time is bounded on any input.
//! Start reading at [`math`], the largest grader; [`lines`] maps JSON lines to graders.
//!
//! ```
//! use lis_grade::{choice, math, rouge};
//!
//! assert_eq!(math::reward("1/2", r"So the answer is \boxed{0.5}."), 1.0);
//! assert_eq!(choice::score("The answer is B.", "B"), 1.0);
//! assert!(rouge::score("the cat sat", "a cat sat down").fmeasure > 0.5);
//! ```

pub mod choice;
pub mod context;
pub mod ifbench;
pub mod judge;
pub mod lines;
pub mod math;
mod python;
pub mod rouge;
pub mod stem;
mod text;
