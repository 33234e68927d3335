//! Compaction: the model sees old tool results shortened once its context fills up.
//!
//! A view, never a change: the history stays complete. What is shortened depends on the history and the number of
//! messages alone, so that a resumed episode shows its model the same. Knows no model and no tokenizer.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use trajectory::{Content, Message};

use crate::text;

/// When old tool results are shortened, and how many.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compaction {
    /// The number of last turns that are never shortened; 4 by default.
    pub keep_turns: usize,
    /// The share of the window from which on results are shortened; 0.8 by default.
    pub trigger: f64,
    /// The context window of the model, in tokens. `None`: not known, and nothing is shortened.
    pub window: Option<u64>,
}

impl Default for Compaction {
    fn default() -> Self {
        Self { keep_turns: 4, trigger: 0.8, window: None }
    }
}

/// The longest text that stays whole, in characters. A shortened text is shorter than this, so that shortening it
/// again changes nothing.
const MAX_WHOLE: usize = 1000;

/// What remains at each end of a longer text: at most this many lines and characters.
const END_LINES: usize = 5;
const END_CHARACTERS: usize = 400;

/// Bytes per token, roughly, of text the server has not counted yet.
const BYTES_PER_TOKEN: u64 = 4;

impl Compaction {
    /// How many of the first messages the model sees shortened from now on: `so_far`, or more.
    ///
    /// `context` is the number of tokens of the conversation up to and including the last response.
    pub fn plan(&self, messages: &[Message], context: u64, so_far: usize) -> usize {
        let Some(window) = self.window else { return so_far };
        let expected = context.saturating_add(uncounted(messages));
        if (expected as f64) < window as f64 * self.trigger {
            return so_far;
        }
        let upto = self.before_kept_turns(messages);
        let more = messages.get(so_far..upto).unwrap_or_default();
        let gains = more.iter().any(|message| shortened(message).is_some());
        if gains { upto } else { so_far }
    }

    /// The conversation with the first `upto` messages shortened: tool results lose their middle and their images;
    /// instructions, the task and the model's responses stay.
    pub fn apply(messages: &[Message], upto: usize) -> Cow<'_, [Message]> {
        let mut view = Cow::Borrowed(messages);
        for (at, message) in messages.iter().enumerate().take(upto) {
            if let Some(short) = shortened(message) {
                view.to_mut()[at] = short;
            }
        }
        view
    }

    /// The number of messages before the turns that are never shortened.
    fn before_kept_turns(&self, messages: &[Message]) -> usize {
        let mut turns =
            messages.iter().enumerate().rev().filter(|(_, message)| is_response(message));
        match self.keep_turns.checked_sub(1) {
            Some(kept) => turns.nth(kept).map_or(0, |(at, _)| at),
            None => messages.len(),
        }
    }
}

fn is_response(message: &Message) -> bool {
    matches!(message, Message::Assistant(_))
}

/// An estimate of the tokens after the last response.
fn uncounted(messages: &[Message]) -> u64 {
    let new = messages.iter().rev().take_while(|message| !is_response(message));
    let bytes: usize = new.map(Message::size).sum();
    bytes as u64 / BYTES_PER_TOKEN
}

/// A tool result without its middle and its images. `None` if there is nothing to shorten.
fn shortened(message: &Message) -> Option<Message> {
    let Message::Tool(result) = message else { return None };
    if result.content.iter().all(|part| shortened_part(part).is_none()) {
        return None;
    }
    let mut result = result.clone();
    for part in &mut result.content {
        if let Some(short) = shortened_part(part) {
            *part = short;
        }
    }
    Some(Message::Tool(result))
}

fn shortened_part(part: &Content) -> Option<Content> {
    match part {
        Content::Text { text } => without_middle(text).map(Content::text),
        Content::Image { media_type, .. } => Some(Content::text(text::compacted_image(media_type))),
    }
}

/// A few lines from both ends of a long text, with a note of how much is missing.
fn without_middle(text: &str) -> Option<String> {
    let total = text.chars().count();
    if total <= MAX_WHOLE {
        return None;
    }
    let head = &text[..head_end(text.char_indices())];
    let from = tail_start(text);
    let tail = &text[from..];
    let left_out = total - head.chars().count() - tail.chars().count();
    let gap = if head.ends_with('\n') { "" } else { "\n" };
    Some(format!("{head}{gap}{}\n{tail}", text::compacted_text(left_out)))
}

/// Where the head ends: after [`END_LINES`] lines, or within a long line.
fn head_end(characters: impl Iterator<Item = (usize, char)>) -> usize {
    let mut lines = 0;
    for (count, (at, character)) in characters.enumerate() {
        if count == END_CHARACTERS || lines == END_LINES {
            return at;
        }
        lines += usize::from(character == '\n');
    }
    0
}

/// Where the tail starts: the same from the other end. A final newline belongs to its line.
fn tail_start(text: &str) -> usize {
    let mut lines = 0;
    let mut start = text.len();
    for (count, (at, character)) in text.char_indices().rev().enumerate() {
        lines += usize::from(character == '\n' && count > 0);
        if count == END_CHARACTERS || lines == END_LINES {
            break;
        }
        start = at;
    }
    start
}

#[cfg(test)]
#[path = "compact_tests.rs"]
mod tests;
