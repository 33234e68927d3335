//! A stateless script for any number of concurrent conversations: some commands, then `submit`. The next turn follows
//! from the conversation itself.

use std::time::Duration;

use crate::{Answer, Received, Turn, bash, submit};

/// A conversation that is the same for every client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversation {
    /// The number of turns; the last one submits.
    pub turns: usize,
    /// The command of all other turns.
    pub command: String,
    /// Tokens of text in each turn.
    pub tokens: usize,
    /// The number of streamed pieces of that text. Default: small pieces.
    pub chunks: Option<usize>,
    /// Delay before each turn.
    pub delay: Duration,
}

impl Default for Conversation {
    fn default() -> Self {
        Self {
            turns: 10,
            command: "echo hi".into(),
            tokens: 20,
            chunks: None,
            delay: Duration::ZERO,
        }
    }
}

impl Conversation {
    /// The turn after this many earlier ones.
    pub fn turn(&self, earlier: usize) -> Turn {
        let turn = if earlier + 1 < self.turns { bash(&self.command) } else { submit() };
        let turn = turn.text("word ".repeat(self.tokens)).after(self.delay);
        Turn { pieces: self.chunks, ..turn }
    }

    /// The answer to a request of this conversation.
    pub fn answer(&self, received: &Received) -> Answer {
        self.turn(received.turns()).into()
    }
}
