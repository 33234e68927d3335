//! What a mock server records: requests in order of arrival, and how many are processed.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::Notify;

use crate::Received;

/// Fewer requests were received than a test waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooFew {
    /// The expected number.
    pub wanted: usize,
    /// The number received within the time limit.
    pub came: usize,
}

impl std::fmt::Display for TooFew {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} requests were received instead of {}", self.came, self.wanted)
    }
}

impl std::error::Error for TooFew {}

#[derive(Default)]
pub(crate) struct Log {
    state: Mutex<State>,
    changed: Condvar,
    notify: Notify,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) came: usize,
    pub(crate) open: usize,
    pub(crate) peak: usize,
}

#[derive(Default)]
struct State {
    counts: Counts,
    kept: Vec<Received>,
}

/// A request in progress; done when dropped.
pub(crate) struct Open<'a>(&'a Log);

impl Log {
    /// Counts a request, and records it if given.
    pub(crate) fn enter(&self, kept: Option<Received>) -> Open<'_> {
        self.change(|state| {
            state.kept.extend(kept);
            let counts = &mut state.counts;
            counts.came += 1;
            counts.open += 1;
            counts.peak = counts.peak.max(counts.open);
        });
        Open(self)
    }

    pub(crate) fn kept(&self) -> Vec<Received> {
        self.state().kept.clone()
    }

    pub(crate) fn counts(&self) -> Counts {
        self.state().counts
    }

    /// Blocks until the counts satisfy `wanted`, or the time is up; returns whether they do.
    pub(crate) fn wait(&self, within: Duration, wanted: impl Fn(Counts) -> bool) -> bool {
        let waited =
            self.changed.wait_timeout_while(self.state(), within, |state| !wanted(state.counts));
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        wanted(state.counts)
    }

    /// Async version of [`Log::wait`].
    pub(crate) async fn reach(&self, within: Duration, wanted: impl Fn(Counts) -> bool) -> bool {
        let reached = async {
            loop {
                let change = self.notify.notified();
                if wanted(self.counts()) {
                    return;
                }
                change.await;
            }
        };
        tokio::time::timeout(within, reached).await.is_ok()
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_all();
        self.notify.notify_waiters();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.change(|state| state.counts.open -= 1);
    }
}
