//! Words and marks of a text as NLTK's word tokenizer parts them: a series of rewritings of each sentence that
//! put spaces around marks, quotes and clitics, then a split at spaces.
//!
//! Knows only how to part; what a token is called is the tagger's business.

use super::{
    chars::{is_decimal, is_space, is_token_space, is_token_word, is_word, same_ignoring_case},
    punkt::sentences,
};

/// Clitics that an opening apostrophe stays with.
const CLITICS: [&str; 8] = ["re", "ve", "ll", "m", "t", "s", "d", "n"];

/// Endings that are cut off before a space.
const ENDINGS: [&str; 8] = ["'ll", "'LL", "'re", "'RE", "'ve", "'VE", "n't", "N'T"];

/// Pairs that stand for two words.
const CONTRACTIONS: [(&str, &str); 7] = [
    ("can", "not"),
    ("d", "'ye"),
    ("gim", "me"),
    ("gon", "na"),
    ("got", "ta"),
    ("lem", "me"),
    ("more", "'n"),
];

/// The tokens of a text, sentence by sentence.
pub(crate) fn words(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut work = Rewriting::default();
    for sentence in sentences(text) {
        work.sentence(sentence, &mut found);
    }
    found
}

/// A text being rewritten, and the room for its next state.
#[derive(Default)]
struct Rewriting {
    text: Vec<char>,
    next: Vec<char>,
}

impl Rewriting {
    fn sentence(&mut self, sentence: &str, found: &mut Vec<String>) {
        self.text.clear();
        self.text.extend(sentence.chars());
        self.opening_quotes();
        self.punctuation();
        self.pad(|char| matches!(char, ']' | '[' | '(' | ')' | '{' | '}' | '<' | '>'));
        self.pad_pairs(['-', '-'], "--");
        self.text.insert(0, ' ');
        self.text.push(' ');
        self.closing_quotes();
        for (first, second) in CONTRACTIONS {
            self.part_contraction(first, second, is_word_end);
        }
        self.part_contraction("wan", "na", |text, at| {
            text.get(at).is_some_and(|char| is_space(*char))
        });
        self.part_contraction(" 't", "is", is_word_end);
        self.part_contraction(" 't", "was", is_word_end);
        let tokens = self.text.split(|char| is_space(*char)).filter(|token| !token.is_empty());
        found.extend(tokens.map(|token| token.iter().collect::<String>()));
    }

    fn opening_quotes(&mut self) {
        self.rewrite(|text, at, out| {
            let length = match text[at] {
                '«' | '“' | '‘' | '„' => 1,
                '`' => text[at..].iter().take_while(|char| **char == '`').count(),
                _ => return 0,
            };
            out.push(' ');
            out.extend(&text[at..at + length]);
            out.push(' ');
            length
        });
        if self.text.first() == Some(&'"') {
            self.text.splice(..1, ['`', '`']);
        }
        self.pad_pairs(['`', '`'], "``");
        self.rewrite(|text, at, out| {
            if !matches!(text[at], ' ' | '(' | '[' | '{' | '<') {
                return 0;
            }
            let length = match text[at + 1..] {
                ['"', ..] => 2,
                ['\'', '\'', ..] => 3,
                _ => return 0,
            };
            out.push(text[at]);
            out.extend(" `` ".chars());
            length
        });
        self.rewrite(|text, at, out| {
            let inside = at > 0 && is_token_word(text[at - 1]);
            if text[at] != '\''
                || inside
                || !text.get(at + 1).is_some_and(|char| is_token_word(*char))
            {
                return 0;
            }
            if CLITICS.iter().any(|clitic| is_clitic(&text[at + 1..], clitic)) {
                return 0;
            }
            out.extend(['\'', ' ']);
            1
        });
    }

    fn punctuation(&mut self) {
        self.last_period(|char| is_closer(char) || matches!(char, '»' | '”' | '’' | ' '), " ");
        self.rewrite(|text, at, out| {
            if !matches!(text[at], ':' | ',')
                || text.get(at + 1).is_none_or(|char| is_decimal(*char))
            {
                return 0;
            }
            out.extend([' ', text[at], ' ', text[at + 1]]);
            2
        });
        self.rewrite(|text, at, out| {
            if !matches!(text[at], ':' | ',') || !matches!(text[at + 1..], [] | ['\n']) {
                return 0;
            }
            out.extend([' ', text[at], ' ']);
            1
        });
        self.rewrite(|text, at, out| {
            let length = text[at..].iter().take_while(|char| **char == '.').count();
            if length < 2 {
                return 0;
            }
            out.push(' ');
            out.extend(&text[at..at + length]);
            out.push(' ');
            length
        });
        self.pad(|char| matches!(char, ';' | '@' | '#' | '$' | '%' | '&'));
        self.pad(|char| ('\u{2012}'..='\u{2015}').contains(&char));
        self.last_period(is_closer, "");
        self.pad(|char| matches!(char, '?' | '!'));
        self.rewrite(|text, at, out| match text[at..] {
            [before, '\'', ' ', ..] if before != '\'' => {
                out.extend([before, ' ', '\'', ' ']);
                3
            }
            _ => 0,
        });
        self.pad(|char| char == '*');
    }

    fn closing_quotes(&mut self) {
        self.pad(|char| matches!(char, '»' | '”' | '’'));
        self.pad_pairs(['\'', '\''], "''");
        self.rewrite(|text, at, out| {
            if text[at] != '"' {
                return 0;
            }
            out.extend(" '' ".chars());
            1
        });
        self.rewrite(|text, at, out| {
            let length = text[at..].iter().take_while(|char| is_token_space(**char)).count();
            if length > 0 {
                out.push(' ');
            }
            length
        });
        self.rewrite(|text, at, out| {
            let length = match text[at..] {
                [_, '\'', 's' | 'S' | 'm' | 'M' | 'd' | 'D', ' ', ..] => 2,
                [_, '\'', ' ', ..] => 1,
                _ => return 0,
            };
            cut_ending(text, at, length, out)
        });
        self.rewrite(|text, at, out| {
            let ending = ENDINGS.iter().find(|ending| {
                let rest = &text[at + 1..];
                rest.get(3) == Some(&' ') && ending.chars().eq(rest[..3].iter().copied())
            });
            ending.map_or(0, |_| cut_ending(text, at, 3, out))
        });
    }

    /// Parts the period that ends the sentence from the word before it, and from the marks that close it.
    fn last_period(&mut self, is_closing: impl Fn(char) -> bool, between: &str) {
        let text = &self.text;
        let run = |end: usize, of: &dyn Fn(char) -> bool| {
            end - text[..end].iter().rev().take_while(|char| of(**char)).count()
        };
        let spaces = run(text.len(), &is_token_space);
        let marks = run(spaces, &is_closing);
        let Some(word) = marks.checked_sub(2) else { return };
        if text[word + 1] != '.' || text[word] == '.' {
            return;
        }
        // The marks take what they can before the spaces do.
        let length = text[marks..].iter().take_while(|char| is_closing(**char)).count();
        let closing: Vec<char> = text[marks..marks + length].to_vec();
        self.text.truncate(word + 1);
        self.text.extend([' ', '.']);
        self.text.extend(between.chars());
        self.text.extend(closing);
        self.text.push(' ');
    }

    /// Parts a contraction that begins at the edge of a word, or with a space, and ends as `is_end` says.
    fn part_contraction(
        &mut self,
        first: &str,
        second: &str,
        is_end: impl Fn(&[char], usize) -> bool,
    ) {
        let both: Vec<char> = first.chars().chain(second.chars()).collect();
        let (spaced, half) = (first.starts_with(' '), first.chars().count());
        self.rewrite(|text, at, out| {
            let end = at + both.len();
            let Some(found) = text.get(at..end) else { return 0 };
            if !spaced && at > 0 && is_word(text[at - 1]) {
                return 0;
            }
            if !found
                .iter()
                .zip(&both)
                .all(|(one, other)| one == other || same_ignoring_case(*one, *other))
                || !is_end(text, end)
            {
                return 0;
            }
            out.push(' ');
            out.extend(&found[usize::from(spaced)..half]);
            out.push(' ');
            out.extend(&found[half..]);
            out.push(' ');
            both.len()
        });
    }

    /// Puts a space on both sides of every such character.
    fn pad(&mut self, is_padded: impl Fn(char) -> bool) {
        self.rewrite(|text, at, out| {
            if !is_padded(text[at]) {
                return 0;
            }
            out.extend([' ', text[at], ' ']);
            1
        });
    }

    /// Puts a space on both sides of every such pair.
    fn pad_pairs(&mut self, pair: [char; 2], padded: &str) {
        self.rewrite(|text, at, out| {
            if !text[at..].starts_with(&pair) {
                return 0;
            }
            out.push(' ');
            out.extend(padded.chars());
            out.push(' ');
            2
        });
    }

    /// Walks the text once: at each place `step` writes a replacement and says how much it replaces, or 0.
    fn rewrite(&mut self, step: impl Fn(&[char], usize, &mut Vec<char>) -> usize) {
        self.next.clear();
        let mut at = 0;
        while at < self.text.len() {
            match step(&self.text, at, &mut self.next) {
                0 => {
                    self.next.push(self.text[at]);
                    at += 1;
                }
                length => at += length,
            }
        }
        std::mem::swap(&mut self.text, &mut self.next);
    }
}

/// Writes a character and the ending after it, parted, if the character can carry one.
fn cut_ending(text: &[char], at: usize, length: usize, out: &mut Vec<char>) -> usize {
    if matches!(text[at], '\'' | ' ') {
        return 0;
    }
    out.extend([text[at], ' ']);
    out.extend(&text[at + 1..=at + length]);
    out.push(' ');
    length + 2
}

fn is_closer(char: char) -> bool {
    matches!(char, ']' | ')' | '}' | '>' | '"' | '\'')
}

/// Whether a text begins with the clitic and its word ends there.
fn is_clitic(text: &[char], clitic: &str) -> bool {
    let same = |(letter, found): (char, &char)| match letter {
        's' => matches!(found, 's' | 'S' | 'ſ'),
        _ => found.eq_ignore_ascii_case(&letter),
    };
    text.len() >= clitic.len()
        && clitic.chars().zip(text).all(same)
        && !text.get(clitic.len()).is_some_and(|char| is_token_word(*char))
}

fn is_word_end(text: &[char], at: usize) -> bool {
    !text.get(at).is_some_and(|char| is_word(*char))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_quotes_and_clitics_are_parted() {
        assert_eq!(
            words("\"I can't, won't -- cannot!\" she said; 'tis John's (50%) plan..."),
            [
                "``", "I", "ca", "n't", ",", "wo", "n't", "--", "can", "not", "!", "''", "she",
                "said", ";", "'", "tis", "John", "'s", "(", "50", "%", ")", "plan", "..."
            ]
        );
    }

    #[test]
    fn only_the_last_period_is_parted() {
        assert_eq!(
            words("Mr. X. left at 5.30, i.e. (early.)"),
            ["Mr.", "X.", "left", "at", "5.30", ",", "i.e", ".", "(", "early", ".", ")"]
        );
        assert_eq!(words("A: b,c 1,000:x"), ["A", ":", "b", ",", "c", "1,000", ":", "x"]);
    }

    #[test]
    fn spaces_alone_hold_no_words() {
        assert!(words(" \n\t ").is_empty() && words("").is_empty());
    }
}
