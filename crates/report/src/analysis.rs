//! What a model did with its computer: which capabilities it used, what it cost in tokens and time, whether it
//! came upon the answer, and how its plain answers are built.
//!
//! Pure functions from events and attempts to plain data. Nothing here reads files, asks models or draws. All
//! text is hostile: every pass is linear in it, and no text ends the program.

mod capability;
mod code;
mod command;
mod exam;
mod fold;
mod leak;
mod network;
mod patterns;
mod plain;
mod script;
mod shares;
mod shell;
mod turn;
mod words;

#[cfg(test)]
mod capability_tests;
#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod labels_tests;
#[cfg(test)]
mod leak_tests;
#[cfg(test)]
mod plain_tests;
#[cfg(test)]
mod shell_tests;

pub use capability::{Capabilities, Counts, Use, Uses, capabilities, uses};
pub use exam::Exam;
pub use leak::{Leak, Why, leaks};
pub use plain::{Pattern, Plain, PlainSummary};
pub use shares::{Memory, Shares};
pub use turn::{Call, Turn, recorded, turns};
