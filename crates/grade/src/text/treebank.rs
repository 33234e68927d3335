//! Word tokenization equal to NLTK's: a series of rewrites of each sentence that put spaces around marks, quotes and
//! clitics, then a split at spaces.

use std::ops::ControlFlow;

use super::{
    chars::{is_decimal, is_space, is_token_space, is_token_word, is_word, same_ignoring_case},
    punkt::sentences,
};

/// Clitics that an opening apostrophe stays with.
const CLITICS: [&str; 8] = ["re", "ve", "ll", "m", "t", "s", "d", "n"];

/// Contractions of two words. None begins with a letter with unusual case folding.
const CONTRACTIONS: [(&str, &str); 8] = [
    ("can", "not"),
    ("d", "'ye"),
    ("gim", "me"),
    ("gon", "na"),
    ("got", "ta"),
    ("lem", "me"),
    ("more", "'n"),
    ("wan", "na"),
];

/// The tokens of a text, sentence by sentence.
pub(crate) fn words(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let _ = visit_words(text, |word| {
        found.push(word.to_owned());
        ControlFlow::Continue(())
    });
    found
}

/// The first tokens of a text, at most `most`.
pub(crate) fn first_words(text: &str, limit: usize) -> Vec<String> {
    let mut found = Vec::new();
    let _ = visit_words(text, |word| {
        found.push(word.to_owned());
        if found.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    found
}

/// Calls a function on the tokens of a text until it declines.
pub(crate) fn visit_words(
    text: &str,
    mut visit: impl FnMut(&str) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let mut work = Rewriting::default();
    let mut word = String::new();
    for sentence in sentences(text) {
        work.part(sentence);
        for token in work.text.split(|char| is_space(*char)).filter(|token| !token.is_empty()) {
            word.clear();
            word.extend(token);
            visit(&word)?;
        }
    }
    ControlFlow::Continue(())
}

/// A text being rewritten, and the buffer for its next state.
#[derive(Default)]
struct Rewriting {
    text: Vec<char>,
    next: Vec<char>,
}

/// The pivot character of a pattern, with its neighbors.
struct Place<'a> {
    /// Text before it that no match has consumed.
    before: &'a [char],
    char: char,
    /// Text after it.
    after: &'a [char],
    /// The character before it, consumed or not.
    last: Option<char>,
}

impl Rewriting {
    /// Inserts spaces between the tokens of a sentence.
    fn part(&mut self, sentence: &str) {
        self.text.clear();
        self.text.extend(sentence.chars());
        self.opening_quotes();
        self.punctuation();
        self.pad(|char| matches!(char, ']' | '[' | '(' | ')' | '{' | '}' | '<' | '>'));
        self.pad_pairs('-');
        self.text.insert(0, ' ');
        self.text.push(' ');
        self.closing_quotes();
        self.endings();
        self.contractions();
    }

    fn opening_quotes(&mut self) {
        self.rewrite(
            |char| matches!(char, '«' | '“' | '‘' | '„' | '`'),
            |place, out| {
                let length = if place.char == '`' { place.run(|char| char == '`') } else { 1 };
                out.push(' ');
                out.extend(std::iter::repeat_n(place.char, length));
                out.push(' ');
                length
            },
        );
        if self.text.first() == Some(&'"') {
            self.text.splice(..1, ['`', '`']);
        }
        self.pad_pairs('`');
        self.rewrite(
            |char| matches!(char, '"' | '\''),
            |place, out| {
                let length = match (place.char, place.after) {
                    ('"', _) => 1,
                    (_, ['\'', ..]) => 2,
                    _ => return 0,
                };
                if !matches!(place.before, [.., ' ' | '(' | '[' | '{' | '<']) {
                    return 0;
                }
                out.extend([' ', '`', '`', ' ']);
                length
            },
        );
        self.rewrite(
            |char| char == '\'',
            |place, out| {
                let opens = !place.last.is_some_and(is_token_word)
                    && place.after.first().is_some_and(|char| is_token_word(*char));
                if !opens || CLITICS.iter().any(|clitic| is_clitic(place.after, clitic)) {
                    return 0;
                }
                out.extend(['\'', ' ']);
                1
            },
        );
    }

    fn punctuation(&mut self) {
        self.last_period(|char| is_closer(char) || matches!(char, '»' | '”' | '’' | ' '), " ");
        let is_comma = |char| matches!(char, ':' | ',');
        self.rewrite(is_comma, |place, out| match place.after {
            [next, ..] if !is_decimal(*next) => {
                out.extend([' ', place.char, ' ', *next]);
                2
            }
            _ => 0,
        });
        self.rewrite(is_comma, |place, out| match place.after {
            [] | ['\n'] => {
                out.extend([' ', place.char, ' ']);
                1
            }
            _ => 0,
        });
        self.rewrite(
            |char| char == '.',
            |place, out| match place.run(|char| char == '.') {
                1 => 0,
                length => {
                    out.push(' ');
                    out.extend(std::iter::repeat_n('.', length));
                    out.push(' ');
                    length
                }
            },
        );
        self.pad(|char| {
            matches!(char, ';' | '@' | '#' | '$' | '%' | '&' | '\u{2012}'..='\u{2015}')
        });
        self.last_period(is_closer, "");
        self.pad(|char| matches!(char, '?' | '!'));
        self.rewrite(
            |char| char == '\'',
            |place, out| match (place.before, place.after) {
                ([.., before], [' ', ..]) if *before != '\'' => {
                    out.extend([' ', '\'', ' ']);
                    2
                }
                _ => 0,
            },
        );
        self.pad(|char| char == '*');
    }

    fn closing_quotes(&mut self) {
        self.pad(|char| matches!(char, '»' | '”' | '’'));
        self.pad_pairs('\'');
        self.rewrite(
            |char| char == '"',
            |_, out| {
                out.extend([' ', '\'', '\'', ' ']);
                1
            },
        );
        self.rewrite(is_token_space, |place, out| match place.run(is_token_space) {
            1 if place.char == ' ' => 0,
            length => {
                out.push(' ');
                length
            }
        });
    }

    /// Cuts clitics off the end of words.
    fn endings(&mut self) {
        let carries =
            |before: &[char]| before.last().is_some_and(|last| !matches!(last, '\'' | ' '));
        self.rewrite(
            |char| char == '\'',
            |place, out| {
                let length = match place.after {
                    ['s' | 'S' | 'm' | 'M' | 'd' | 'D', ' ', ..] => 1,
                    [' ', ..] => 0,
                    _ => return 0,
                };
                if !carries(place.before) {
                    return 0;
                }
                out.extend([' ', '\'']);
                out.extend(&place.after[..=length]);
                length + 2
            },
        );
        self.rewrite(
            |char| char == '\'',
            |place, out| match (place.before, place.after) {
                (
                    before,
                    ['l', 'l', ' ', ..]
                    | ['L', 'L', ' ', ..]
                    | ['r' | 'v', 'e', ' ', ..]
                    | ['R' | 'V', 'E', ' ', ..],
                ) if carries(before) => {
                    out.extend([' ', '\'']);
                    out.extend(&place.after[..3]);
                    4
                }
                ([before @ .., n @ 'n'], [t @ 't', ' ', ..])
                | ([before @ .., n @ 'N'], [t @ 'T', ' ', ..])
                    if carries(before) =>
                {
                    // The letter before the apostrophe has been written already.
                    out.pop();
                    out.extend([' ', *n, '\'', *t, ' ']);
                    3
                }
                _ => 0,
            },
        );
    }

    fn contractions(&mut self) {
        self.rewrite(
            |char| matches!(char.to_ascii_lowercase(), 'c' | 'd' | 'g' | 'l' | 'm' | 'w'),
            |place, out| {
                if place.last.is_some_and(is_word) {
                    return 0;
                }
                let fits = |(first, second): &&(&str, &str)| {
                    let length = first.len() + second.len();
                    let next = place.after.get(length - 1).copied();
                    // One of them needs a space, the others the end of a word.
                    let ends = if *first == "wan" {
                        next.is_some_and(is_space)
                    } else {
                        !next.is_some_and(is_word)
                    };
                    ends && place.reads(&format!("{first}{second}"))
                };
                let Some((first, second)) = CONTRACTIONS.iter().find(fits) else { return 0 };
                out.extend([' ', place.char]);
                out.extend(&place.after[..first.len() - 1]);
                out.push(' ');
                out.extend(&place.after[first.len() - 1..first.len() + second.len() - 1]);
                out.push(' ');
                first.len() + second.len()
            },
        );
        self.rewrite(
            |char| char == '\'',
            |place, out| {
                if place.before.last() != Some(&' ') {
                    return 0;
                }
                let fits = |word: &&str| {
                    let next = place.after.get(word.len() - 1).copied();
                    !next.is_some_and(is_word) && place.reads(word)
                };
                let Some(word) = ["'tis", "'twas"].into_iter().find(fits) else { return 0 };
                out.extend(['\'', place.after[0], ' ']);
                out.extend(&place.after[1..word.len() - 1]);
                out.push(' ');
                word.len()
            },
        );
    }

    /// Separates the final period from the word before it and from closing marks.
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
        // Marks match greedily before spaces.
        let length = text[marks..].iter().take_while(|char| is_closing(**char)).count();
        let closing: Vec<char> = text[marks..marks + length].to_vec();
        self.text.truncate(word + 1);
        self.text.extend([' ', '.']);
        self.text.extend(between.chars());
        self.text.extend(closing);
        self.text.push(' ');
    }

    /// Puts a space on both sides of every such character.
    fn pad(&mut self, is_padded: impl Fn(char) -> bool) {
        self.rewrite(is_padded, |place, out| {
            out.extend([' ', place.char, ' ']);
            1
        });
    }

    /// Puts a space on both sides of every pair of this character.
    fn pad_pairs(&mut self, mark: char) {
        self.rewrite(
            |char| char == mark,
            |place, out| {
                if place.after.first() != Some(&mark) {
                    return 0;
                }
                out.extend([' ', mark, mark, ' ']);
                2
            },
        );
    }

    /// Walks the text once: at each character that `turns`, `step` writes a replacement and returns how many
    /// characters from there on it replaces, or 0.
    fn rewrite(
        &mut self,
        turns: impl Fn(char) -> bool,
        step: impl Fn(&Place, &mut Vec<char>) -> usize,
    ) {
        let text = &self.text;
        let next_turn =
            |from: usize| text[from..].iter().position(|char| turns(*char)).map(|run| from + run);
        let Some(mut at) = next_turn(0) else { return };
        self.next.clear();
        self.next.extend_from_slice(&text[..at]);
        let mut free = 0;
        loop {
            let (before, after) = (&text[free..at], &text[at + 1..]);
            let last = at.checked_sub(1).map(|last| text[last]);
            let end = match step(&Place { before, char: text[at], after, last }, &mut self.next) {
                0 => {
                    self.next.push(text[at]);
                    at + 1
                }
                length => {
                    free = at + length;
                    free
                }
            };
            let Some(turn) = next_turn(end) else {
                self.next.extend_from_slice(&text[end..]);
                break;
            };
            self.next.extend_from_slice(&text[end..turn]);
            at = turn;
        }
        std::mem::swap(&mut self.text, &mut self.next);
    }
}

impl Place<'_> {
    /// The length of the run of such characters that begins here.
    fn run(&self, of: impl Fn(char) -> bool) -> usize {
        1 + self.after.iter().take_while(|char| of(**char)).count()
    }

    /// Whether a word follows, ignoring case.
    fn reads(&self, word: &str) -> bool {
        let mut letters = word.chars();
        let mut same = |found: char| {
            letters
                .next()
                .is_some_and(|letter| found == letter || same_ignoring_case(found, letter))
        };
        same(self.char)
            && self.after.len() >= word.len() - 1
            && self.after[..word.len() - 1].iter().all(|found| same(*found))
    }
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
        let text = "Twas; more'n gimme d'ye  WANNA 'twas";
        assert_eq!(
            words(text),
            ["Twas", ";", "more", "'n", "gim", "me", "d", "'ye", "WAN", "NA", "'", "twas"]
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
