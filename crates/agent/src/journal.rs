//! Who hears what happens in an episode: files, terminals, pages.

use std::{future::Future, io};

use model::Listener;
use trajectory::Event;

/// Keeps the record of an episode. It also hears the model's words as they come.
pub trait Journal<S>: Listener {
    /// Takes down what happened, before the episode goes on. An episode without a record ends.
    fn record(&self, event: Event) -> io::Result<()>;

    /// A turn is over and the sandbox is idle: the moment to save its files.
    fn turn_over(&self, _turn: u32, _sandbox: &S) -> impl Future<Output = ()> + Send
    where
        S: Sync,
    {
        async {}
    }
}
