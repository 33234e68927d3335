//! How a download reports its progress. Draws nothing itself.

use std::fmt;

/// A listener on a download.
pub trait Progress: Send + Sync {
    /// A stage begins, or begins again, with this many bytes in it where that is known.
    fn stage(&self, stage: Stage, total: Option<u64>);
    /// This many more bytes of the current stage are done.
    fn advance(&self, bytes: u64);
    /// A line worth showing: where the file comes from, or why an attempt failed.
    fn message(&self, text: &str);
}

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// Hashing bytes that are already on disk.
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

/// Ignores all progress.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn stage(&self, _: Stage, _: Option<u64>) {}
    fn advance(&self, _: u64) {}
    fn message(&self, _: &str) {}
}
