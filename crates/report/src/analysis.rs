//! Analyses of trajectories and attempts: which capabilities of the sandbox a model used, tokens and time, possible
//! leaks of the answer, and the style of answers without a sandbox.
//!
//! Pure functions from events and attempts to plain data. All text is untrusted: every pass is linear in its length and
//! none panics.

mod capability;
mod code;
mod command;
mod fold;
mod leak;
mod network;
mod patterns;
mod script;
mod self_check;
mod shares;
mod shell;
mod style;
mod target;
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
mod shell_tests;
#[cfg(test)]
mod style_tests;

pub use capability::{Capabilities, Counts, Use, Uses, capabilities, runs_program, uses};
pub use leak::{Leak, LeakReason, leaks};
pub use shares::{Memory, Shares};
pub use style::{AnswerStyle, StylePattern, StyleSummary};
pub use target::LeakTarget;
pub use turn::{Call, Turn, plain_response, recorded, turns};
