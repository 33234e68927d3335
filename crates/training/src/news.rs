//! What a run tells those who watch it. Knows no terminal.

use crate::metrics::Figures;

/// Something that happened.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum News<'a> {
    /// The run begins, or goes on after so many steps.
    Begun {
        /// Steps that are complete.
        step: u64,
        /// Steps in all.
        steps: u64,
        /// Where it computes, and what it trains.
        what: &'a str,
    },
    /// Episodes are being played.
    Playing {
        /// Those that ended.
        done: usize,
        /// All of them.
        all: usize,
        /// For what.
        what: &'a str,
    },
    /// A step is complete.
    Step {
        /// Which one, from 1; 0 for what was measured before the first.
        step: u64,
        /// Steps in all.
        steps: u64,
        /// Its figures.
        figures: &'a Figures,
    },
    /// The run was saved.
    Saved {
        /// After which step.
        step: u64,
    },
    /// Something worth knowing.
    Note(&'a str),
}

/// Somebody who watches a run.
pub trait Watcher: Send + Sync {
    /// Hears what happened.
    fn hear(&self, news: News<'_>);
}

/// Nobody watches.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl Watcher for Unwatched {
    fn hear(&self, _: News<'_>) {}
}
