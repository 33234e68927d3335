//! A stateless script for any number of conversations at once: some commands, then the end. What comes next
//! is read off the conversation itself.

use std::time::Duration;

use crate::{Answer, Received, Turn, bash, submit};

/// The same conversation for everybody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversation {
    /// How often the model speaks; the last time to submit.
    pub turns: usize,
    /// The command of every other turn.
    pub command: String,
    /// How many tokens of text come with each turn.
    pub tokens: usize,
    /// Into how many pieces that text is cut; small ones when absent.
    pub chunks: Option<usize>,
    /// How long the model thinks.
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
    /// The turn after so many others.
    pub fn turn(&self, spoken: usize) -> Turn {
        let turn = if spoken + 1 < self.turns { bash(&self.command) } else { submit() };
        let turn = turn.text("word ".repeat(self.tokens)).after(self.delay);
        Turn { pieces: self.chunks, ..turn }
    }

    /// What the model says next in this conversation.
    pub fn answer(&self, received: &Received) -> Answer {
        self.turn(received.turns()).into()
    }
}
