//! Untrusted text in a prompt: what looks like a control token there stays text.
//!
//! A file that a model reads may contain the control tokens that end its turn and begin another's. Their texts are
//! split before the prompt is rendered, and tokenized in two parts.

use std::collections::HashMap;

/// The character at which a prompt is split before it is tokenized. A Unicode noncharacter, which no text contains.
pub const SPLIT: char = '\u{fdd0}';

/// The texts of a model's control tokens, to be kept out of untrusted text.
#[derive(Debug, Default)]
pub struct Guard {
    /// By their first two characters.
    tokens: HashMap<(char, char), Vec<String>>,
}

impl Guard {
    /// A guard against these texts. One of a single character cannot be split, and is ignored.
    pub fn new(tokens: impl IntoIterator<Item = String>) -> Self {
        let mut known: HashMap<_, Vec<String>> = HashMap::new();
        for token in tokens {
            if let Some(start) = start(&token) {
                known.entry(start).or_default().push(token);
            }
        }
        Self { tokens: known }
    }

    /// Inserts [`SPLIT`] into everything that looks like a control token.
    pub fn split(&self, text: &str) -> String {
        let text = text.replace(SPLIT, "");
        let mut split = String::with_capacity(text.len());
        for (at, char) in text.char_indices() {
            split.push(char);
            let rest = text.get(at..).unwrap_or_default();
            let tokens = start(rest).and_then(|start| self.tokens.get(&start));
            if tokens.is_some_and(|tokens| tokens.iter().any(|token| rest.starts_with(token))) {
                split.push(SPLIT);
            }
        }
        split
    }
}

fn start(text: &str) -> Option<(char, char)> {
    let mut chars = text.chars();
    Some((chars.next()?, chars.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_tokens_are_split_and_nothing_else_is() {
        let guard = Guard::new(["<|im_end|>".to_owned(), "<s>".to_owned(), "x".to_owned()]);
        assert_eq!(guard.split("a <|im_end|>b<s>"), "a <\u{fdd0}|im_end|>b<\u{fdd0}s>");
        for text in ["<|im_start|>", "<script>", "x < y", "", "<", "<|im_end|"] {
            assert_eq!(guard.split(text), text);
        }
    }

    #[test]
    fn a_control_token_cannot_be_hidden_with_the_splitting_character() {
        let guard = Guard::new(["<s>".to_owned()]);
        let hidden = format!("<{SPLIT}s>");
        assert_eq!(guard.split(&hidden).split(SPLIT).collect::<String>(), "<s>");
        assert!(guard.split(&hidden).split(SPLIT).all(|part| !part.contains("<s>")), "{hidden}");
    }
}
