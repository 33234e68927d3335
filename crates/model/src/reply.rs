//! What a model answers, whole and piece by piece.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use trajectory::{Assistant, Stop, Usage};

/// A complete reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// What the model said and wants done.
    pub message: Assistant,
    /// Why it stopped.
    pub stop: Stop,
    /// What it cost in tokens.
    pub usage: Usage,
    /// It was read from the cache of replies, and cost nothing this time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_cache: bool,
}

/// A piece of a reply while it is being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delta<'a> {
    /// Thinking.
    Reasoning(&'a str),
    /// Text.
    Text(&'a str),
    /// A tool call begins.
    Call(&'a str),
    /// The arguments of that call go on.
    Arguments(&'a str),
    /// The call failed: what came of it so far is void, and it is made again after a wait.
    Retry {
        /// Which attempt failed, from 1.
        attempt: u32,
        /// How long until the next.
        wait: Duration,
        /// What went wrong.
        why: &'a str,
    },
}

/// Somebody who watches replies being written.
pub trait Listener: Send + Sync {
    /// The next piece.
    fn hear(&self, delta: Delta<'_>);
}

/// Remembers the failure since which nothing came: whoever stops waiting then knows why there is no reply.
#[derive(Debug, Default)]
pub struct LastFailure(Mutex<Option<String>>);

impl LastFailure {
    /// Takes note of a piece.
    pub fn note(&self, delta: Delta<'_>) {
        *self.lock() = match delta {
            Delta::Retry { why, .. } => Some(why.to_owned()),
            _ => None,
        };
    }

    /// What failed, unless something came since.
    pub fn take(&self) -> Option<String> {
        self.lock().take()
    }

    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Nobody watches.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Listener for Silent {
    fn hear(&self, _: Delta<'_>) {}
}
