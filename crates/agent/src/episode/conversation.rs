//! The messages of an episode, and how many of them the model sees shortened.
//!
//! Knows no journal: what is added here, the episode records.

use std::borrow::Cow;

use trajectory::{Content, Message};

use crate::Compaction;

/// A conversation with a model.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    messages: Vec<Message>,
    /// How many of the first messages the model sees shortened.
    compacted: usize,
}

impl Conversation {
    pub(super) fn new(messages: Vec<Message>, compacted: usize) -> Self {
        Self { messages, compacted }
    }

    pub(super) fn push(&mut self, message: Message) {
        self.messages.push(message);
    }

    /// The messages as the model gets them.
    pub(super) fn for_model(&self) -> Cow<'_, [Message]> {
        Compaction::apply(&self.messages, self.compacted)
    }

    /// Shortens old messages if `context`, the tokens of the conversation, call for it. Returns the new number of
    /// shortened messages if it changed.
    pub(super) fn compact(&mut self, compaction: &Compaction, context: u64) -> Option<usize> {
        let compacted = compaction.plan(&self.messages, context, self.compacted);
        if compacted <= self.compacted {
            return None;
        }
        self.compacted = compacted;
        Some(compacted)
    }

    /// All tool calls the model has made.
    pub(super) fn tool_calls(&self) -> u32 {
        let calls = self.messages.iter().map(|message| match message {
            Message::Assistant(response) => response.calls.len(),
            _ => 0,
        });
        u32::try_from(calls.sum::<usize>()).unwrap_or(u32::MAX)
    }
}

/// Adds a line to the last text of a user message or a tool result; other messages are left alone.
pub(super) fn append_line(message: &mut Message, line: String) {
    let content = match message {
        Message::User { content } => content,
        Message::Tool(result) => &mut result.content,
        _ => return,
    };
    match content.iter_mut().rev().find_map(|part| match part {
        Content::Text { text } => Some(text),
        Content::Image { .. } => None,
    }) {
        Some(text) => {
            if !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str(&line);
        }
        None => content.push(Content::Text { text: line }),
    }
}
