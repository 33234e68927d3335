//! An episode that somebody plays, follows or asks about: where it stands, and while it is played what its watchers share.

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

use crate::{EpisodeResult, State};

/// Pieces of a response that a slow listener may lag behind before it misses some.
const DELTAS: usize = 1024;

/// Bytes of a response that are kept for those who begin to watch while it is generated.
const MAX_PARTIAL: usize = 64 << 10;

/// An episode in memory.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Whose it is.
    pub(crate) owner: Arc<str>,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    standing: Standing,
    live: Option<Arc<Live>>,
    /// A result that could not be stored.
    unstored: Option<Box<EpisodeResult>>,
    /// It is being removed, or is.
    removed: bool,
}

/// Where an episode stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) state: State,
    /// The name of its outcome, where it ended.
    pub(crate) outcome: Option<&'static str>,
}

impl Standing {
    /// That of an episode without a result that nobody plays.
    pub(crate) const INTERRUPTED: Self = Self { state: State::Interrupted, outcome: None };

    pub(crate) fn of(result: &EpisodeResult) -> Self {
        Self { state: result.state(), outcome: Some(result.outcome.name()) }
    }
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
    /// What the model has said since the last event.
    partial: Mutex<String>,
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
    /// The response is complete, and the next event has all of it.
    Complete,
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
    pub(crate) fn new(owner: Arc<str>, standing: Standing) -> Self {
        let inner = Inner { standing, live: None, unstored: None, removed: false };
        Self { owner, inner: Mutex::new(inner) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn standing(&self) -> Standing {
        self.lock().standing
    }

    pub(crate) fn state(&self) -> State {
        self.standing().state
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
        match inner.standing.state {
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
        match inner.standing.state {
            _ if inner.removed => return Err(NotNow::Removed),
            state @ (State::Running | State::Finished) => return Err(NotNow::In(state)),
            State::Interrupted | State::Cancelled | State::Failed => {}
        }
        let live = Arc::new(Live {
            cancel: CancellationToken::new(),
            progress: watch::Sender::new(Progress::default()),
            deltas: broadcast::Sender::new(DELTAS),
            partial: Mutex::default(),
            parks: AtomicBool::new(false),
        });
        inner.standing = Standing { state: State::Running, outcome: None };
        inner.unstored = None;
        inner.live = Some(Arc::clone(&live));
        Ok(live)
    }

    /// Marks the episode as over, and wakes its watchers.
    pub(crate) fn end(&self, standing: Standing) {
        let live = {
            let mut inner = self.lock();
            inner.standing = standing;
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
        let standing = Standing::of(&result);
        self.lock().unstored = Some(Box::new(result));
        self.end(standing);
    }

    /// Whether its result could not be stored.
    pub(crate) fn has_unstored(&self) -> bool {
        self.lock().unstored.is_some()
    }

    /// The result that could not be stored.
    pub(crate) fn unstored(&self) -> Option<EpisodeResult> {
        self.lock().unstored.as_deref().cloned()
    }
}

impl Live {
    /// Passes on a piece of a response.
    pub(crate) fn hear(&self, delta: Delta<'_>) {
        match &delta {
            Delta::Reasoning(text) | Delta::Text(text) | Delta::Arguments(text) => {
                let mut partial = self.partial.lock().unwrap_or_else(PoisonError::into_inner);
                if partial.len() + text.len() <= MAX_PARTIAL {
                    partial.push_str(text);
                }
            }
            Delta::Retry { .. } => self.forget_partial(),
            _ => {}
        }
        // Without a listener it is dropped.
        let _ = self.deltas.send(delta.into());
    }

    /// What the model has said since the last event, at most its first 64 KiB.
    pub(crate) fn partial(&self) -> String {
        self.partial.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tells listeners that no further piece of this response follows.
    pub(crate) fn complete(&self) {
        let _ = self.deltas.send(OwnedDelta::Complete);
    }

    /// An event has all of it, or it is void.
    pub(crate) fn forget_partial(&self) {
        self.partial.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

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
