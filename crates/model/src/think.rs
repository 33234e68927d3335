//! Separates thinking that a server left in the text, between `<think>` and `</think>`, from the text itself, also
//! while both are streamed.
//!
//! Knows no protocol. A closing tag may also be part of a command: then it ends nothing.

/// A piece of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Thinking.
    Reasoning(&'a str),
    /// Text.
    Text(&'a str),
}

/// The tag that begins thinking.
pub const OPEN: &str = "<think>";
/// The tag that ends thinking.
pub const CLOSE: &str = "</think>";

/// More leading blanks than this are text.
const MAX_BLANKS: usize = 1024;

/// Marks that begin a call. A closing tag after one of these may be part of the call.
const MARKS: [&str; 5] = ["```", "<tool", "<function", "<invoke", "{"];

/// The position in the response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Position {
    /// Nothing but blanks so far.
    #[default]
    Start,
    /// Between the tags.
    Inside,
    /// Nothing but blanks since the closing tag.
    After,
    /// In the text.
    Text,
}

/// Splits a streamed text into thinking and text.
#[derive(Debug, Default)]
pub struct Splitter {
    position: Position,
    /// Held back: what may begin a tag, or blanks that may be dropped.
    held: String,
}

impl Splitter {
    /// The server separates thinking itself: everything else is text.
    pub(crate) fn disable(&mut self) {
        if self.position == Position::Start {
            self.position = Position::Text;
        }
    }

    /// A splitter for a response that begins inside thinking: the prompt ends with the opening tag.
    pub fn inside() -> Self {
        Self { position: Position::Inside, held: String::new() }
    }

    /// Takes the next piece and emits what is certain.
    pub fn push(&mut self, piece: &str, mut emit: impl FnMut(Piece<'_>)) {
        self.held.push_str(piece);
        while self.step(&mut emit) {}
    }

    /// Emits the rest at the end of the response.
    pub fn finish(mut self, mut emit: impl FnMut(Piece<'_>)) {
        match self.position {
            Position::Inside => emit(Piece::Reasoning(&self.held)),
            Position::Start | Position::Text => emit(Piece::Text(&self.held)),
            Position::After => {}
        }
        self.held.clear();
    }

    /// Makes one transition; whether another may be possible.
    fn step(&mut self, emit: &mut impl FnMut(Piece<'_>)) -> bool {
        match self.position {
            Position::Start => {
                let begun = self.held.trim_start();
                if let Some(rest) = begun.strip_prefix(OPEN) {
                    self.held = rest.to_owned();
                    self.position = Position::Inside;
                    return true;
                }
                if OPEN.starts_with(begun) && self.held.len() <= MAX_BLANKS {
                    return false;
                }
                self.position = Position::Text;
                true
            }
            Position::Inside => {
                if let Some((reasoning, rest)) = self.held.split_once(CLOSE) {
                    emit(Piece::Reasoning(reasoning));
                    self.held = rest.to_owned();
                    self.position = Position::After;
                    return true;
                }
                let certain = self.held.len() - partial_tag(&self.held);
                if certain > 0 {
                    emit(Piece::Reasoning(&self.held[..certain]));
                    self.held.drain(..certain);
                }
                false
            }
            Position::After => {
                self.held = self.held.trim_start().to_owned();
                if !self.held.is_empty() {
                    self.position = Position::Text;
                }
                !self.held.is_empty()
            }
            Position::Text => {
                if !self.held.is_empty() {
                    emit(Piece::Text(&self.held));
                    self.held.clear();
                }
                false
            }
        }
    }
}

/// Splits off thinking whose opening tag is in the prompt, so that the response contains the closing tag only.
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

/// The position of a closing tag alone on its line, as templates that open the thinking themselves leave it.
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

/// How many of the last bytes may begin the closing tag.
fn partial_tag(text: &str) -> usize {
    (1..CLOSE.len()).rev().find(|length| text.ends_with(&CLOSE[..*length])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split(pieces: &[&str]) -> (String, String) {
        let (mut reasoning, mut text) = (String::new(), String::new());
        let mut emit = |piece: Piece<'_>| match piece {
            Piece::Reasoning(piece) => reasoning.push_str(piece),
            Piece::Text(piece) => text.push_str(piece),
        };
        let mut splitter = Splitter::default();
        for piece in pieces {
            splitter.push(piece, &mut emit);
        }
        splitter.finish(&mut emit);
        (reasoning, text)
    }

    fn pair(reasoning: &str, text: &str) -> (String, String) {
        (reasoning.into(), text.into())
    }

    #[test]
    fn thinking_is_separated_from_text() {
        assert_eq!(split(&["<think>a < b</think>\n\nyes"]), pair("a < b", "yes"));
        assert_eq!(split(&["\n<thi", "nk>x</", "think", ">y"]), pair("x", "y"));
        assert_eq!(split(&["<think>cut off </thi"]), pair("cut off </thi", ""));
        assert_eq!(split(&["text with <think>x</think>"]), pair("", "text with <think>x</think>"));
        assert_eq!(split(&["<thin", "gs>"]), pair("", "<things>"));
        assert_eq!(split(&["<think></think>ok</think>"]), pair("", "ok</think>"));
        assert_eq!(split(&[" ", " x"]), pair("", "  x"));
    }

    #[test]
    fn an_opening_tag_in_the_prompt_is_supplied() {
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
        for _ in 0..10 * MAX_BLANKS {
            splitter.push(" ", |_| heard += 1);
            assert!(splitter.held.len() <= MAX_BLANKS);
        }
        assert!(heard > MAX_BLANKS);
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
