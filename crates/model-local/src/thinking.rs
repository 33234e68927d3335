//! Tracks whether a constrained response is still thinking: the constraint applies after the thinking only.
//!
//! Reads the text piece by piece, and recognizes thinking as [`model::think::Splitter`] does.

use model::think::{CLOSE, OPEN};

/// More leading blanks than this are text.
const MAX_BLANKS: usize = 1024;

/// Follows a response from its beginning to the end of its thinking.
#[derive(Debug)]
pub(crate) struct ThinkingTracker {
    position: Position,
    /// Text that may begin a tag.
    text: String,
}

/// How a response begins, which depends on the prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseStart {
    /// Outside of thinking.
    Fresh,
    /// Inside thinking, which the template opened.
    Thinking,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    Start,
    Inside,
    Done,
}

impl ThinkingTracker {
    pub(crate) fn new(start: ResponseStart) -> Self {
        let position = match start {
            ResponseStart::Fresh => Position::Start,
            ResponseStart::Thinking => Position::Inside,
        };
        Self { position, text: String::new() }
    }

    /// Whether what comes next is thinking.
    pub(crate) fn is_thinking(&self) -> bool {
        self.position == Position::Inside
    }

    /// Whether this piece would begin thinking.
    pub(crate) fn would_open(&self, piece: &str) -> bool {
        self.position == Position::Start
            && format!("{}{piece}", self.text).trim_start().starts_with(OPEN)
    }

    /// Takes the next piece.
    pub(crate) fn push(&mut self, piece: &str) {
        if self.position == Position::Done {
            return;
        }
        self.text.push_str(piece);
        if self.position == Position::Start {
            let begun = self.text.trim_start();
            match begun.strip_prefix(OPEN) {
                Some(rest) => {
                    self.text = rest.to_owned();
                    self.position = Position::Inside;
                }
                None if OPEN.starts_with(begun) && self.text.len() <= MAX_BLANKS => return,
                None => self.position = Position::Done,
            }
        }
        if self.text.contains(CLOSE) {
            self.position = Position::Done;
        }
        let kept = match self.position {
            Position::Done => self.text.len(),
            _ => self.text.floor_char_boundary(self.text.len().saturating_sub(CLOSE.len())),
        };
        self.text.drain(..kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For each piece, whether it was thought.
    fn thought(start: ResponseStart, pieces: &[&str]) -> Vec<bool> {
        let mut tracker = ThinkingTracker::new(start);
        let judge = |piece: &&str| {
            let thinking = tracker.is_thinking() || tracker.would_open(piece);
            tracker.push(piece);
            thinking
        };
        pieces.iter().map(judge).collect()
    }

    #[test]
    fn thinking_lasts_until_its_end() {
        let pieces = ["<think>", "```bash\nls\n```", "é</th", "ink>", "\n\n```bash", "<think>"];
        assert_eq!(thought(ResponseStart::Fresh, &pieces), [true, true, true, true, false, false]);
        assert_eq!(
            thought(ResponseStart::Thinking, &pieces[1..]),
            [true, true, true, false, false]
        );
    }

    #[test]
    fn an_opening_in_parts_is_known_once_it_is_whole() {
        let pieces = ["\n<", "think", ">", "a", "</think>b", "c"];
        assert_eq!(thought(ResponseStart::Fresh, &pieces), [false, false, true, true, true, false]);
    }

    #[test]
    fn text_is_no_thinking() {
        assert_eq!(thought(ResponseStart::Fresh, &["I <think>", "a"]), [false, false]);
        assert_eq!(thought(ResponseStart::Fresh, &["<thing>", "<think>"]), [false, false]);
        let blanks = " ".repeat(MAX_BLANKS + 1);
        assert_eq!(thought(ResponseStart::Fresh, &[&blanks, "<think>"]), [false, false]);
    }
}
