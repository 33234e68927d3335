//! Whether a reply that is held to a form is still thinking. What a model only thinks of is no call: the form
//! holds from behind the thinking on.
//!
//! Sees text, piece by piece, and tells thinking from it as [`model::think::Splitter`] does.

use model::think::{CLOSE, OPEN};

/// A reply does not begin with more blanks than that.
const MOST_BLANKS: usize = 1024;

/// The beginning of a reply.
#[derive(Debug)]
pub(crate) struct Lead {
    place: Place,
    /// What may be the beginning of a tag.
    text: String,
}

/// How the prompt ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begins {
    /// Nothing is said yet.
    Anew,
    /// The template opened the thinking itself.
    Thinking,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Start,
    Inside,
    Over,
}

impl Lead {
    pub(crate) fn new(begins: Begins) -> Self {
        let place = match begins {
            Begins::Anew => Place::Start,
            Begins::Thinking => Place::Inside,
        };
        Self { place, text: String::new() }
    }

    /// Whether what comes next is thinking.
    pub(crate) fn is_thinking(&self) -> bool {
        self.place == Place::Inside
    }

    /// Whether this piece would begin the thinking.
    pub(crate) fn would_open(&self, piece: &str) -> bool {
        self.place == Place::Start && format!("{}{piece}", self.text).trim_start().starts_with(OPEN)
    }

    /// The next piece.
    pub(crate) fn push(&mut self, piece: &str) {
        if self.place == Place::Over {
            return;
        }
        self.text.push_str(piece);
        if self.place == Place::Start {
            let begun = self.text.trim_start();
            match begun.strip_prefix(OPEN) {
                Some(rest) => {
                    self.text = rest.to_owned();
                    self.place = Place::Inside;
                }
                None if OPEN.starts_with(begun) && self.text.len() <= MOST_BLANKS => return,
                None => self.place = Place::Over,
            }
        }
        if self.text.contains(CLOSE) {
            self.place = Place::Over;
        }
        let kept = match self.place {
            Place::Over => self.text.len(),
            _ => self.text.floor_char_boundary(self.text.len().saturating_sub(CLOSE.len())),
        };
        self.text.drain(..kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For each piece, whether it was thought.
    fn thought(begins: Begins, pieces: &[&str]) -> Vec<bool> {
        let mut lead = Lead::new(begins);
        let judge = |piece: &&str| {
            let thinking = lead.is_thinking() || lead.would_open(piece);
            lead.push(piece);
            thinking
        };
        pieces.iter().map(judge).collect()
    }

    #[test]
    fn thinking_lasts_until_its_end() {
        let pieces = ["<think>", "```bash\nls\n```", "é</th", "ink>", "\n\n```bash", "<think>"];
        assert_eq!(thought(Begins::Anew, &pieces), [true, true, true, true, false, false]);
        assert_eq!(thought(Begins::Thinking, &pieces[1..]), [true, true, true, false, false]);
    }

    #[test]
    fn an_opening_in_parts_is_known_once_it_is_whole() {
        let pieces = ["\n<", "think", ">", "a", "</think>b", "c"];
        assert_eq!(thought(Begins::Anew, &pieces), [false, false, true, true, true, false]);
    }

    #[test]
    fn text_is_no_thinking() {
        assert_eq!(thought(Begins::Anew, &["I <think>", "a"]), [false, false]);
        assert_eq!(thought(Begins::Anew, &["<thing>", "<think>"]), [false, false]);
        let blanks = " ".repeat(MOST_BLANKS + 1);
        assert_eq!(thought(Begins::Anew, &[&blanks, "<think>"]), [false, false]);
    }
}
