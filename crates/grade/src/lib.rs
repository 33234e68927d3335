//! Scores answers the way the benchmarks' own graders do, quirks included: mathematical equality, choice
//! letters, instruction constraints, ROUGE-L, the reward of context tasks, and a judge's verdict.
//!
//! Pure functions from texts to scores: no files, no network, no clock, no other language's interpreter.
//! Every function ends soon on any input, however hostile.

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
