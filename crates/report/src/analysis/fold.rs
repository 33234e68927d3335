//! Normalizes texts for comparison (case, blanks, markup) and hashes their word n-grams.

use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash, Hasher},
};

use super::words::is_word;

/// A text in lower case with single blanks, without formula and formatting marks.
#[derive(Debug, Default)]
pub(super) struct Folded {
    /// Folded text.
    pub(super) text: String,
    /// Position in the original of each byte.
    from: Vec<usize>,
}

impl Folded {
    /// Folds a text.
    pub(super) fn of(text: &str) -> Self {
        let mut folded = Self::default();
        let mut before = None;
        for (at, c) in text.char_indices() {
            let after = || text[at + c.len_utf8()..].chars().next();
            match c {
                '$' | '\\' | '{' | '}' | '*' | '_' | '`' | '"' | '\'' => {}
                ',' if is_digit(before) && is_digit(after()) => {}
                c if c.is_whitespace() || c.is_control() => folded.blank(at),
                c => c.to_lowercase().for_each(|c| folded.push(c, at)),
            }
            before = Some(c);
        }
        folded
    }

    /// Position in the original of a byte of the folded text.
    pub(super) fn origin(&self, at: usize) -> usize {
        self.from.get(at).or(self.from.last()).copied().unwrap_or_default()
    }

    fn push(&mut self, c: char, at: usize) {
        self.text.push(c);
        self.from.resize(self.text.len(), at);
    }

    fn blank(&mut self, at: usize) {
        if !self.text.is_empty() && !self.text.ends_with(' ') {
            self.push(' ', at);
        }
    }
}

fn is_digit(c: Option<char>) -> bool {
    c.is_some_and(|c| c.is_ascii_digit())
}

/// Byte ranges of the words of a text.
pub(super) fn tokens(text: &str) -> Vec<(usize, usize)> {
    let mut tokens = Vec::new();
    let mut start = None;
    for (at, c) in text.char_indices() {
        match (is_word(c) && c != '_', start) {
            (true, None) => start = Some(at),
            (false, Some(begin)) => {
                tokens.push((begin, at));
                start = None;
            }
            _ => {}
        }
    }
    tokens.extend(start.map(|begin| (begin, text.len())));
    tokens
}

/// Hashes of all word n-grams.
pub(super) fn runs(text: &str, tokens: &[(usize, usize)], length: usize) -> Vec<u64> {
    let digest = |run: &[(usize, usize)]| {
        let mut hasher = DefaultHasher::new();
        run.iter().for_each(|(start, end)| text[*start..*end].hash(&mut hasher));
        hasher.finish()
    };
    tokens.windows(length.max(1)).map(digest).collect()
}

/// Hashes of all word n-grams of a folded text.
pub(super) fn run_set(text: &str, length: usize) -> HashSet<u64> {
    runs(text, &tokens(text), length).into_iter().collect()
}

/// An excerpt around a position, without characters that could disturb a page or a terminal.
pub(super) fn snippet(text: &str, start: usize, end: usize) -> String {
    const AROUND: usize = 80;
    const MOST: usize = 240;
    let from = floor(text, start.saturating_sub(AROUND));
    let to = floor(text, end.saturating_add(AROUND).min(text.len()));
    let mut shown = String::new();
    for c in text.get(from..to).unwrap_or_default().chars().take(MOST) {
        match c {
            c if c.is_whitespace() || c.is_control() || is_invisible(c) => {
                if !shown.ends_with(' ') {
                    shown.push(' ');
                }
            }
            c => shown.push(c),
        }
    }
    shown.trim().to_owned()
}

/// Invisible and reordering characters.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{61c}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folding_makes_texts_comparable() {
        for (text, expected) in [
            ("A  B\n\tc", "a b c"),
            ("$\\frac{1}{2}$", "frac12"),
            ("1,234, 5", "1234, 5"),
            ("**Bold** x_1", "bold x1"),
            ("", ""),
        ] {
            assert_eq!(Folded::of(text).text, expected, "{text}");
        }
        let folded = Folded::of("ab  $C$");
        assert_eq!(folded.origin(folded.text.find('c').unwrap()), 5);
    }

    #[test]
    fn snippets_are_short_and_harmless() {
        let text = format!("{}\u{202e}evil\u{1b}[31m\nend{}", "é".repeat(500), "x".repeat(500));
        let at = text.find("evil").unwrap();
        let shown = snippet(&text, at, at + 4);
        assert!(shown.contains("evil") && shown.chars().count() <= 240, "{shown}");
        assert!(!shown.contains(['\u{202e}', '\u{1b}', '\n']));
    }

    #[test]
    fn words_and_runs() {
        assert_eq!(tokens("a b_c, d"), [(0, 1), (2, 3), (4, 5), (7, 8)]);
        assert_eq!(run_set("a b c d", 3).len(), 2);
        assert!(run_set("a b", 3).is_empty());
    }
}
