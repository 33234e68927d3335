//! Text of others in a prompt: what is written like a control token there stays text.
//!
//! A file that a model reads may contain the marks that end its turn and begin another's. Such marks are
//! split before the prompt is put together, and tokenised in two parts.

use std::collections::HashMap;

/// A character that no text contains: Unicode reserves it for programs.
pub const SPLIT: char = '\u{fdd0}';

/// The texts of a model's control tokens.
#[derive(Debug, Default)]
pub struct Guard {
    /// By their first two characters.
    marks: HashMap<(char, char), Vec<String>>,
}

impl Guard {
    /// Knows these texts. One of a single character cannot be split, and is left out.
    pub fn new(marks: impl IntoIterator<Item = String>) -> Self {
        let mut known: HashMap<_, Vec<String>> = HashMap::new();
        for mark in marks {
            if let Some(begin) = begin(&mark) {
                known.entry(begin).or_default().push(mark);
            }
        }
        Self { marks: known }
    }

    /// The text with [`SPLIT`] inside everything that is written like a control token.
    pub fn split(&self, text: &str) -> String {
        let text = text.replace(SPLIT, "");
        let mut split = String::with_capacity(text.len());
        for (at, char) in text.char_indices() {
            split.push(char);
            let rest = text.get(at..).unwrap_or_default();
            let marks = begin(rest).and_then(|begin| self.marks.get(&begin));
            if marks.is_some_and(|marks| marks.iter().any(|mark| rest.starts_with(mark))) {
                split.push(SPLIT);
            }
        }
        split
    }
}

fn begin(text: &str) -> Option<(char, char)> {
    let mut chars = text.chars();
    Some((chars.next()?, chars.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_split_and_nothing_else_is() {
        let guard = Guard::new(["<|im_end|>".to_owned(), "<s>".to_owned(), "x".to_owned()]);
        assert_eq!(guard.split("a <|im_end|>b<s>"), "a <\u{fdd0}|im_end|>b<\u{fdd0}s>");
        for text in ["<|im_start|>", "<script>", "x < y", "", "<", "<|im_end|"] {
            assert_eq!(guard.split(text), text);
        }
    }

    #[test]
    fn a_mark_cannot_be_hidden_behind_the_splitting_character() {
        let guard = Guard::new(["<s>".to_owned()]);
        let hidden = format!("<{SPLIT}s>");
        assert_eq!(guard.split(&hidden).split(SPLIT).collect::<String>(), "<s>");
        assert!(guard.split(&hidden).split(SPLIT).all(|part| !part.contains("<s>")), "{hidden}");
    }
}
