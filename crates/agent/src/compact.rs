//! Shortening what the model sees of old results, when its context nears its end.
//!
//! A view, never a change: the history keeps every word. What is shortened follows from the history and the
//! count of messages alone, so that a resumed episode shows its model the same. Knows no model and no tokenizer.

use std::borrow::Cow;

use trajectory::{Content, Message};

/// When and how much is shortened.
#[derive(Clone, Debug, PartialEq)]
pub struct Compaction {
    /// So many of the last turns are shown whole.
    pub keep_turns: usize,
    /// Shortening starts when this share of the window is used.
    pub trigger: f64,
    /// Tokens the conversation may have. Where nobody knows, nothing is shortened.
    pub window: Option<u64>,
}

impl Default for Compaction {
    fn default() -> Self {
        Self { keep_turns: 4, trigger: 0.8, window: None }
    }
}

/// A text up to this length is shown whole. What is left of a longer one is shorter than this, so that
/// shortening it once more changes nothing.
const SHORT: usize = 1000;

/// What is left at each end of a longer text, at most: lines and characters.
const LINES: usize = 5;
const CHARACTERS: usize = 400;

/// Bytes that make up a token, roughly, in what no server has counted yet.
const BYTES_PER_TOKEN: u64 = 4;

impl Compaction {
    /// How many of the first messages the model gets to see shortened from now on: `so_far`, or more.
    ///
    /// `context` is the tokens of the conversation up to and including the last reply.
    pub fn plan(&self, messages: &[Message], context: u64, so_far: usize) -> usize {
        let Some(window) = self.window else { return so_far };
        let expected = context.saturating_add(uncounted(messages));
        if (expected as f64) < window as f64 * self.trigger {
            return so_far;
        }
        let upto = self.old(messages);
        let more = messages.get(so_far..upto).unwrap_or_default();
        let gains = more.iter().any(|message| shortened(message).is_some());
        if gains { upto } else { so_far }
    }

    /// The conversation as the model sees it when the first `upto` messages are shortened: results lose
    /// their middle and their pictures; instructions, the task and the model's own words stay.
    pub fn apply(messages: &[Message], upto: usize) -> Cow<'_, [Message]> {
        let mut view = Cow::Borrowed(messages);
        for (at, message) in messages.iter().enumerate().take(upto) {
            if let Some(short) = shortened(message) {
                view.to_mut()[at] = short;
            }
        }
        view
    }

    /// The messages before the turns that are kept.
    fn old(&self, messages: &[Message]) -> usize {
        let mut turns = messages.iter().enumerate().rev().filter(|(_, message)| is_reply(message));
        match self.keep_turns.checked_sub(1) {
            Some(kept) => turns.nth(kept).map_or(0, |(at, _)| at),
            None => messages.len(),
        }
    }
}

fn is_reply(message: &Message) -> bool {
    matches!(message, Message::Assistant(_))
}

/// Tokens of what came after the last reply, estimated.
fn uncounted(messages: &[Message]) -> u64 {
    let new = messages.iter().rev().take_while(|message| !is_reply(message));
    let bytes: usize = new.map(Message::size).sum();
    bytes as u64 / BYTES_PER_TOKEN
}

/// A result without its middle and its pictures; nothing where that changes nothing.
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
        Content::Image { media_type, .. } => {
            Some(Content::text(format!("[a picture was shown here: {media_type}]")))
        }
    }
}

/// A few lines from both ends of a long text, with a mark that says how much is missing.
fn without_middle(text: &str) -> Option<String> {
    let total = text.chars().count();
    if total <= SHORT {
        return None;
    }
    let head = &text[..ends_after(text.char_indices())];
    let from = starts_before(text);
    let tail = &text[from..];
    let left_out = total - head.chars().count() - tail.chars().count();
    let gap = if head.ends_with('\n') { "" } else { "\n" };
    Some(format!("{head}{gap}[... {left_out} characters of this old result left out ...]\n{tail}"))
}

/// Where the head ends: after so many lines, or within a line that is too long.
fn ends_after(characters: impl Iterator<Item = (usize, char)>) -> usize {
    let mut lines = 0;
    for (count, (at, character)) in characters.enumerate() {
        if count == CHARACTERS || lines == LINES {
            return at;
        }
        lines += usize::from(character == '\n');
    }
    0
}

/// Where the tail starts: the same from the other end. A line end at the very end belongs to its line.
fn starts_before(text: &str) -> usize {
    let mut lines = 0;
    let mut start = text.len();
    for (count, (at, character)) in text.char_indices().rev().enumerate() {
        lines += usize::from(character == '\n' && count > 0);
        if count == CHARACTERS || lines == LINES {
            break;
        }
        start = at;
    }
    start
}

#[cfg(test)]
#[path = "compact_tests.rs"]
mod tests;
