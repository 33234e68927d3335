//! The events of a run, for observers such as a progress bar. Knows no terminal.

use crate::metrics::Metrics;

/// Something that happened in a run.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum RunEvent<'a> {
    /// The run starts, or resumes after `step` steps.
    Started {
        /// Completed steps.
        step: u64,
        /// Steps in all.
        steps: u64,
        /// A description of what is trained, and where.
        what: &'a str,
    },
    /// An episode of a rollout ended.
    Rollout {
        /// Episodes that ended.
        done: usize,
        /// Episodes in all.
        all: usize,
        /// The purpose of the rollout, such as "validation".
        what: &'a str,
    },
    /// All episodes of a validation set ended.
    Validated {
        /// The last completed step.
        step: u64,
        /// The name of the set; `None` for the set of `[validation]`.
        set: Option<&'a str>,
        /// Its metrics.
        metrics: &'a Metrics,
    },
    /// A step is complete.
    Step {
        /// Its number, from 1; 0 for the validation before the first step.
        step: u64,
        /// Steps in all.
        steps: u64,
        /// Its metrics.
        metrics: &'a Metrics,
    },
    /// A checkpoint was saved.
    Saved {
        /// After this step.
        step: u64,
    },
    /// A message for the user.
    Note(&'a str),
}

/// Receives the events of a run.
pub trait Observer: Send + Sync {
    /// Called on the thread of the run, which waits for it.
    fn on_event(&self, event: RunEvent<'_>);
}

/// Ignores all events.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl Observer for NoObserver {
    fn on_event(&self, _: RunEvent<'_>) {}
}
