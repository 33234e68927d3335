//! An episode in memory: its summary, and while it is played what its watchers share.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use agent::CancellationToken;
use model::Delta;
use tokio::sync::{broadcast, watch};

use crate::{EpisodeResult, State, Summary};

/// Pieces of a response that a slow listener may lag behind before it misses some.
const DELTAS: usize = 1024;

/// An episode in memory.
#[derive(Debug)]
pub(crate) struct Entry {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    summary: Summary,
    live: Option<Arc<Live>>,
    /// A result that could not be stored.
    unstored: Option<EpisodeResult>,
    /// It is being removed, or is.
    removed: bool,
}

/// Why an episode can be neither begun nor removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotNow {
    /// It is in this state.
    In(State),
    /// It is removed.
    Removed,
}

/// An episode that is being played.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) cancel: CancellationToken,
    pub(crate) progress: watch::Sender<Progress>,
    pub(crate) deltas: broadcast::Sender<OwnedDelta>,
    /// It was stopped because the server ends, not by a client.
    parks: AtomicBool,
}

/// How far the events have been written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Bytes of whole lines.
    pub(crate) bytes: u64,
    /// Nothing follows.
    pub(crate) over: bool,
}

/// A piece of a response while it is generated.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OwnedDelta {
    /// Thinking.
    Reasoning(String),
    /// Text.
    Text(String),
    /// A tool call begins: the tool's name.
    Call(String),
    /// More of that call's arguments.
    Arguments(String),
    /// Everything since the last event is void: the call to the model is retried.
    Retry {
        /// Wait before the next attempt.
        wait: Duration,
    },
}

impl From<Delta<'_>> for OwnedDelta {
    fn from(delta: Delta<'_>) -> Self {
        match delta {
            Delta::Reasoning(text) => Self::Reasoning(text.to_owned()),
            Delta::Text(text) => Self::Text(text.to_owned()),
            Delta::Call(name) => Self::Call(name.to_owned()),
            Delta::Arguments(text) => Self::Arguments(text.to_owned()),
            Delta::Retry { wait, .. } => Self::Retry { wait },
        }
    }
}

impl Entry {
    pub(crate) fn new(summary: Summary) -> Self {
        Self { inner: Mutex::new(Inner { summary, live: None, unstored: None, removed: false }) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn summary(&self) -> Summary {
        self.lock().summary.clone()
    }

    /// The summary, if it is of this owner and in this state.
    pub(crate) fn summary_if(&self, owner: &str, state: Option<State>) -> Option<Summary> {
        let summary = &self.lock().summary;
        let fits = summary.owner == owner && state.is_none_or(|state| state == summary.state);
        fits.then(|| summary.clone())
    }

    pub(crate) fn state(&self) -> State {
        self.lock().summary.state
    }

    pub(crate) fn live(&self) -> Option<Arc<Live>> {
        self.lock().live.clone()
    }

    /// Whether it is being removed, or is.
    pub(crate) fn is_removed(&self) -> bool {
        self.lock().removed
    }

    /// Marks the episode as removed, so that nobody begins it.
    pub(crate) fn remove(&self) -> Result<(), NotNow> {
        let mut inner = self.lock();
        match inner.summary.state {
            _ if inner.removed => Err(NotNow::Removed),
            State::Running => Err(NotNow::In(State::Running)),
            _ => {
                inner.removed = true;
                Ok(())
            }
        }
    }

    /// Takes the mark back: it could not be removed.
    pub(crate) fn keep(&self) {
        self.lock().removed = false;
    }

    /// Marks the episode as running, unless it is already, has finished or is removed.
    pub(crate) fn begin(&self) -> Result<Arc<Live>, NotNow> {
        let mut inner = self.lock();
        match inner.summary.state {
            _ if inner.removed => return Err(NotNow::Removed),
            state @ (State::Running | State::Finished) => return Err(NotNow::In(state)),
            State::Interrupted | State::Cancelled | State::Failed => {}
        }
        let live = Arc::new(Live {
            cancel: CancellationToken::new(),
            progress: watch::Sender::new(Progress::default()),
            deltas: broadcast::Sender::new(DELTAS),
            parks: AtomicBool::new(false),
        });
        inner.summary.state = State::Running;
        inner.summary.outcome = None;
        inner.unstored = None;
        inner.live = Some(Arc::clone(&live));
        Ok(live)
    }

    /// Marks the episode as over, and wakes its watchers.
    pub(crate) fn end(&self, state: State, outcome: Option<String>) {
        let live = {
            let mut inner = self.lock();
            inner.summary.state = state;
            inner.summary.outcome = outcome;
            inner.live.take()
        };
        if let Some(live) = live {
            live.progress.send_modify(|progress| progress.over = true);
        }
    }
}

impl Entry {
    /// Marks the episode as over with a result that could not be stored.
    pub(crate) fn end_unstored(&self, result: EpisodeResult) {
        let (state, outcome) = (result.state(), result.outcome.name().to_owned());
        self.lock().unstored = Some(result);
        self.end(state, Some(outcome));
    }

    /// The result that could not be stored.
    pub(crate) fn unstored(&self) -> Option<EpisodeResult> {
        self.lock().unstored.clone()
    }
}

impl Live {
    /// Stops the episode so that it can be resumed later.
    pub(crate) fn park(&self) {
        // A client that cancelled it has decided already.
        if !self.cancel.is_cancelled() {
            self.parks.store(true, Ordering::SeqCst);
        }
        self.cancel.cancel();
    }

    pub(crate) fn parks(&self) -> bool {
        self.parks.load(Ordering::SeqCst)
    }
}
