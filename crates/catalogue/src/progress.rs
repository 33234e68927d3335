//! How a pull tells what it is doing. Draws nothing itself.

use std::fmt;

/// Someone who watches a pull.
pub trait Progress: Send + Sync {
    /// A stage begins, with the bytes in it.
    fn stage(&self, stage: Stage, total: u64);
    /// This many more bytes of the current stage are done.
    fn advance(&self, by: u64);
    /// A line worth showing: where the file comes from, or why a source did not give it.
    fn message(&self, text: &str);
}

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// Reading what is there already, to see whether it is right.
    Checking,
    /// Fetching the file, or the rest of it.
    Fetching,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Checking => "checking",
            Self::Fetching => "fetching",
        })
    }
}

/// Nobody watches.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn stage(&self, _: Stage, _: u64) {}
    fn advance(&self, _: u64) {}
    fn message(&self, _: &str) {}
}
