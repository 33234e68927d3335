//! Thinking that a server left in the text, between `<think>` and `</think>`, told from the text itself, also
//! while both are being written.
//!
//! Knows no protocol. The closing tag may also be a word of a command: then it ends nothing.

/// A piece of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Thinking.
    Reasoning(&'a str),
    /// Text.
    Text(&'a str),
}

/// What begins thinking.
pub const OPEN: &str = "<think>";
/// What ends it.
pub const CLOSE: &str = "</think>";

/// A reply does not begin with more blanks than that: they are text.
const MOST_BLANKS: usize = 1024;

/// What begins a call. A closing tag behind one of these may be a part of the call.
const MARKS: [&str; 5] = ["```", "<tool", "<function", "<invoke", "{"];

/// Where in the reply we are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// Before anything but blanks.
    #[default]
    Start,
    /// Between the tags.
    Inside,
    /// Behind the closing tag, before anything but blanks.
    Behind,
    /// In the text.
    Text,
}

/// Splits a text as it arrives.
#[derive(Debug, Default)]
pub struct Splitter {
    place: Place,
    /// What may be the beginning of a tag, or blanks that may be dropped.
    held: String,
}

impl Splitter {
    /// The server tells thinking apart itself: everything else is text.
    pub(crate) fn off(&mut self) {
        if self.place == Place::Start {
            self.place = Place::Text;
        }
    }

    /// The reply begins inside: the prompt ends with the opening tag.
    pub fn inside() -> Self {
        Self { place: Place::Inside, held: String::new() }
    }

    /// Takes the next piece of the content and gives on what is certain.
    pub fn push(&mut self, piece: &str, mut give: impl FnMut(Piece<'_>)) {
        self.held.push_str(piece);
        while self.step(&mut give) {}
    }

    /// The end: nothing more will complete a tag.
    pub fn finish(mut self, mut give: impl FnMut(Piece<'_>)) {
        match self.place {
            Place::Inside => give(Piece::Reasoning(&self.held)),
            Place::Start | Place::Text => give(Piece::Text(&self.held)),
            Place::Behind => {}
        }
        self.held.clear();
    }

    /// One move. Whether another may be possible.
    fn step(&mut self, give: &mut impl FnMut(Piece<'_>)) -> bool {
        match self.place {
            Place::Start => {
                let begun = self.held.trim_start();
                if let Some(rest) = begun.strip_prefix(OPEN) {
                    self.held = rest.to_owned();
                    self.place = Place::Inside;
                    return true;
                }
                if OPEN.starts_with(begun) && self.held.len() <= MOST_BLANKS {
                    return false;
                }
                self.place = Place::Text;
                true
            }
            Place::Inside => {
                if let Some((reasoning, rest)) = self.held.split_once(CLOSE) {
                    give(Piece::Reasoning(reasoning));
                    self.held = rest.to_owned();
                    self.place = Place::Behind;
                    return true;
                }
                let certain = self.held.len() - begun_tag(&self.held);
                if certain > 0 {
                    give(Piece::Reasoning(&self.held[..certain]));
                    self.held.drain(..certain);
                }
                false
            }
            Place::Behind => {
                self.held = self.held.trim_start().to_owned();
                if !self.held.is_empty() {
                    self.place = Place::Text;
                }
                !self.held.is_empty()
            }
            Place::Text => {
                if !self.held.is_empty() {
                    give(Piece::Text(&self.held));
                    self.held.clear();
                }
                false
            }
        }
    }
}

/// Thinking whose opening tag stood in the prompt, so that only the closing one is in the reply.
pub(crate) fn without_opening(text: &str) -> Option<(&str, &str)> {
    let first = text.find(CLOSE)?;
    let before = text.get(..first)?;
    if before.contains(OPEN) {
        return None;
    }
    let called = MARKS.iter().any(|mark| before.contains(mark));
    let at = if called { closing(text)? } else { first };
    Some((text.get(..at)?, text.get(at + CLOSE.len()..)?.trim_start()))
}

/// Where a closing tag stands alone on its line, as templates that open the thinking themselves leave it.
pub(crate) fn closing(text: &str) -> Option<usize> {
    let mut in_value = false;
    let mut tags = text.match_indices('<').map(|(at, _)| at);
    tags.find(|at| {
        let (before, tag) = text.split_at(*at);
        if tag.starts_with("<parameter=") {
            in_value = true;
        } else if tag.starts_with("</parameter>") {
            in_value = false;
        }
        let Some(after) = tag.strip_prefix(CLOSE) else { return false };
        !in_value
            && (before.is_empty() || before.ends_with('\n'))
            && (after.is_empty() || after.starts_with(['\n', '\r']))
    })
}

/// How many of the last bytes may be the beginning of the closing tag.
fn begun_tag(text: &str) -> usize {
    (1..CLOSE.len()).rev().find(|length| text.ends_with(&CLOSE[..*length])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split(pieces: &[&str]) -> (String, String) {
        let (mut reasoning, mut text) = (String::new(), String::new());
        let mut give = |piece: Piece<'_>| match piece {
            Piece::Reasoning(piece) => reasoning.push_str(piece),
            Piece::Text(piece) => text.push_str(piece),
        };
        let mut splitter = Splitter::default();
        for piece in pieces {
            splitter.push(piece, &mut give);
        }
        splitter.finish(&mut give);
        (reasoning, text)
    }

    fn pair(reasoning: &str, text: &str) -> (String, String) {
        (reasoning.into(), text.into())
    }

    #[test]
    fn thinking_is_told_from_text() {
        assert_eq!(split(&["<think>a < b</think>\n\nyes"]), pair("a < b", "yes"));
        assert_eq!(split(&["\n<thi", "nk>x</", "think", ">y"]), pair("x", "y"));
        assert_eq!(split(&["<think>cut off </thi"]), pair("cut off </thi", ""));
        assert_eq!(split(&["text with <think>x</think>"]), pair("", "text with <think>x</think>"));
        assert_eq!(split(&["<thin", "gs>"]), pair("", "<things>"));
        assert_eq!(split(&["<think></think>ok</think>"]), pair("", "ok</think>"));
        assert_eq!(split(&[" ", " x"]), pair("", "  x"));
    }

    #[test]
    fn an_opening_tag_in_the_prompt_is_made_up_for() {
        assert_eq!(without_opening("so it is</think>\nyes"), Some(("so it is", "yes")));
        assert_eq!(without_opening("yes"), None);
        assert_eq!(without_opening("say <think>x</think>"), None);
        let thought = "I could run ```ls```.\n</think>\n\nyes";
        assert_eq!(without_opening(thought), Some(("I could run ```ls```.\n", "yes")));
    }

    #[test]
    fn a_tag_in_a_command_ends_no_thinking() {
        for text in [
            "```bash\ngrep -c '</think>' log\nrm log\n```",
            "<tool_call>\n{\"name\": \"execute_bash\", \"arguments\": {\"command\": \"echo </think>\"}}\n</tool_call>",
            "<function=execute_bash>\n<parameter=command>\n</think>\n</parameter>\n</function>",
        ] {
            assert_eq!(without_opening(text), None, "{text}");
        }
    }

    #[test]
    fn endless_blanks_are_not_held_back() {
        let mut heard = 0;
        let mut splitter = Splitter::default();
        for _ in 0..10 * MOST_BLANKS {
            splitter.push(" ", |_| heard += 1);
            assert!(splitter.held.len() <= MOST_BLANKS);
        }
        assert!(heard > MOST_BLANKS);
    }

    proptest! {
        #[test]
        fn chunk_boundaries_mean_nothing(
            parts in prop::collection::vec(
                prop::sample::select(vec!["<think>", "</think>", "<", "/", "é", " ", "\n", "think>", "x"]), 0..12),
            cut in 1_usize..5,
        ) {
            let whole: String = parts.concat();
            let chars: Vec<char> = whole.chars().collect();
            let pieces: Vec<String> = chars.chunks(cut).map(|piece| piece.iter().collect()).collect();
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            prop_assert_eq!(split(&pieces), split(&[&whole]));
        }
    }
}
