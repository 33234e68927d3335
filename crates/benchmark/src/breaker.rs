//! A circuit breaker: ends a run in which nothing works any more, instead of spending every attempt on a server that is
//! down.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// Counts consecutive failures and cancels the run at a limit.
#[derive(Debug)]
pub(crate) struct Breaker {
    cancel: CancellationToken,
    limit: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    consecutive: u32,
    cause: Option<String>,
}

impl Breaker {
    /// Cancels `cancel` after `limit` consecutive failures.
    pub(crate) fn new(cancel: CancellationToken, limit: u32) -> Self {
        Self { cancel, limit: limit.max(1), state: Mutex::default() }
    }

    /// Counts an attempt that failed on our side.
    pub(crate) fn failed(&self, cause: &str) {
        let mut state = self.state();
        state.consecutive += 1;
        let State { consecutive, .. } = *state;
        if consecutive >= self.limit && state.cause.is_none() {
            state.cause = Some(format!("{consecutive} failures in a row, the last: {cause}"));
            self.cancel.cancel();
        }
    }

    /// Counts an attempt that came to its end.
    pub(crate) fn succeeded(&self) {
        self.state().consecutive = 0;
    }

    /// Ends the run at once.
    pub(crate) fn trip(&self, cause: String) {
        self.state().cause.get_or_insert(cause);
        self.cancel.cancel();
    }

    /// Why the breaker ended the run, if it did.
    pub(crate) fn cause(&self) -> Option<String> {
        self.state().cause.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
