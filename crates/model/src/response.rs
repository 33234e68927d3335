//! A model's response: complete, and piece by piece while it is generated.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use trajectory::{Assistant, Stop, Usage};

/// A complete response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Response {
    /// Text, thinking and tool calls.
    pub message: Assistant,
    /// Why generation stopped.
    pub stop: Stop,
    /// Tokens used.
    pub usage: Usage,
    /// Whether it came from the response cache, at no cost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_cache: bool,
}

/// A piece of a response while it is generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delta<'a> {
    /// Thinking.
    Reasoning(&'a str),
    /// Text.
    Text(&'a str),
    /// A tool call begins: the tool's name.
    Call(&'a str),
    /// More of that call's arguments.
    Arguments(&'a str),
    /// The attempt failed. Everything received so far is void; the call is retried after a wait.
    Retry {
        /// Which attempt failed, from 1.
        attempt: u32,
        /// Wait before the next attempt.
        wait: Duration,
        /// Why it failed.
        why: &'a str,
    },
}

/// Receives a response piece by piece.
pub trait Listener: Send + Sync {
    /// Called with the next piece.
    fn on_delta(&self, delta: Delta<'_>);
}

/// Remembers the last failed attempt until a piece arrives, so that a caller that times out can report why there is no
/// response.
#[derive(Debug, Default)]
pub struct LastFailure(Mutex<Option<String>>);

impl LastFailure {
    /// Records a piece.
    pub fn note(&self, delta: Delta<'_>) {
        *self.lock() = match delta {
            Delta::Retry { why, .. } => Some(why.to_owned()),
            _ => None,
        };
    }

    /// Takes the failure, unless a piece arrived since.
    pub fn take(&self) -> Option<String> {
        self.lock().take()
    }

    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A listener that ignores everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Listener for Silent {
    fn on_delta(&self, _: Delta<'_>) {}
}
