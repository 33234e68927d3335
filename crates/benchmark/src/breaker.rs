//! Ends a run in which nothing works any more, instead of spending every attempt on a server that is down.

use std::sync::{Mutex, MutexGuard, PoisonError};

use agent::Stopper;

/// Counts failures in a row.
#[derive(Debug)]
pub(crate) struct Breaker {
    stopper: Stopper,
    limit: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    in_a_row: u32,
    cause: Option<String>,
}

impl Breaker {
    /// Stops everybody after so many failures in a row.
    pub(crate) fn new(stopper: Stopper, limit: u32) -> Self {
        Self { stopper, limit: limit.max(1), state: Mutex::default() }
    }

    /// Something of ours failed.
    pub(crate) fn failed(&self, cause: &str) {
        let mut state = self.state();
        state.in_a_row += 1;
        let (in_a_row, limit) = (state.in_a_row, self.limit);
        if in_a_row >= limit && state.cause.is_none() {
            state.cause = Some(format!("{in_a_row} failures in a row, the last: {cause}"));
            self.stopper.stop();
        }
    }

    /// An attempt came to its end.
    pub(crate) fn succeeded(&self) {
        self.state().in_a_row = 0;
    }

    /// The run cannot go on.
    pub(crate) fn end(&self, cause: String) {
        self.state().cause.get_or_insert(cause);
        self.stopper.stop();
    }

    /// The caller wants no more.
    pub(crate) fn stop(&self) {
        self.stopper.stop();
    }

    /// Why the run was ended, if it was.
    pub(crate) fn cause(&self) -> Option<String> {
        self.state().cause.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
