//! Where the events of an episode go: a file, a terminal, a queue.

use std::{future::Future, io};

use model::Listener;
use trajectory::{Event, Outcome};

/// A write-ahead journal of an episode. As a [`Listener`] it also receives the model's output while it streams.
pub trait Journal<S>: Listener {
    /// Records an event before anything follows from it. An error ends the episode with
    /// [`Fault::Storage`](trajectory::Fault::Storage).
    fn record(&self, event: Event) -> io::Result<()>;

    /// Called after each turn, while the sandbox is idle: the moment to save its files. Does nothing by default.
    fn on_turn_end(&self, _turn: u32, _sandbox: &S) -> impl Future<Output = ()> + Send
    where
        S: Sync,
    {
        async {}
    }

    /// Called before the end of an episode is recorded, if its last turn is complete: the sandbox is idle and its files
    /// belong to that turn. Does nothing by default.
    fn on_end(
        &self,
        _turn: u32,
        _outcome: &Outcome,
        _sandbox: &S,
    ) -> impl Future<Output = ()> + Send
    where
        S: Sync,
    {
        async {}
    }
}
