//! Sentence segmentation equal to NLTK's English Punkt model.
//!
//! Every `.`, `?` or `!` before a space or a closing mark is a candidate. The words around it, looked up in the
//! model's tables, decide; closing quotes and brackets then go back to the sentence they close.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    sync::LazyLock,
};

use super::{
    chars::{is_decimal, is_token_space, is_token_word},
    strings::{strip, strip_end},
};

const UPPER_INSIDE: u8 = 1 << 2;
const UPPER: u8 = 0b1110;
const LOWER_FIRST: u8 = 1 << 4;
const LOWER: u8 = 0b111_0000;
const NUMBER: &str = "##number##";

struct Model {
    abbreviations: HashSet<&'static str>,
    collocations: HashSet<(&'static str, &'static str)>,
    starters: HashSet<&'static str>,
    contexts: HashMap<&'static str, u8>,
}

static MODEL: LazyLock<Model> = LazyLock::new(|| {
    let tab = |line: &'static str| line.split_once('\t');
    let contexts = include_str!("../../data/punkt_ortho_context.tab").lines().filter_map(tab);
    Model {
        abbreviations: include_str!("../../data/punkt_abbrev_types.txt").lines().collect(),
        collocations: include_str!("../../data/punkt_collocations.tab")
            .lines()
            .filter_map(tab)
            .collect(),
        starters: include_str!("../../data/punkt_sent_starters.txt").lines().collect(),
        contexts: contexts.filter_map(|(word, flags)| Some((word, flags.parse().ok()?))).collect(),
    }
});

/// The sentences of a text, in order, without the spaces between them.
pub(crate) fn sentences(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut shift = 0;
    let parts = parts(text);
    for (index, part) in parts.iter().enumerate() {
        let start = part.start + shift;
        shift = 0;
        let next = parts.get(index + 1);
        if let Some((next, closing)) =
            next.and_then(|next| Some((next, closing(piece(text, next))?)))
        {
            let end = next.start + strip_end(&text[next.start..next.start + closing]).len();
            found.push(&text[start..end]);
            shift = closing;
        } else if start < part.end {
            found.push(&text[start..part.end]);
        }
    }
    found
}

/// The text cut at every break, before closing marks are put back.
fn parts(text: &str) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let mut start = 0;
    for candidate in candidates(text) {
        if has_break(&text[candidate.context]) {
            parts.push(start..candidate.end);
            start = candidate.next;
        }
    }
    parts.push(start..strip_end(text).len());
    parts
}

fn piece<'a>(text: &'a str, range: &Range<usize>) -> &'a str {
    text.get(range.clone()).unwrap_or_default()
}

/// The length of the closing marks, and the space after them, that begin a piece but belong to the one before.
fn closing(text: &str) -> Option<usize> {
    let marks = text.find(|char| !matches!(char, '"' | '\'' | ')' | ']' | '}') && !is_curly(char));
    match marks {
        Some(0) => None,
        None => (!text.is_empty()).then_some(text.len()),
        Some(marks) if text[marks..].starts_with("--") => Some(marks),
        Some(marks) => {
            let spaces =
                text[marks..].find(|char| !is_token_space(char)).unwrap_or(text.len() - marks);
            (spaces > 0).then_some(marks + spaces)
        }
    }
}

/// A candidate end of a sentence.
struct Candidate {
    /// The word that ends here and its successor.
    context: Range<usize>,
    /// Just after the mark.
    end: usize,
    /// Start of the next sentence.
    next: usize,
}

fn candidates(text: &str) -> Vec<Candidate> {
    let mut found = Vec::new();
    let mut word = 0..0;
    let mut last: Option<Candidate> = None;
    for (at, _) in text.match_indices(['.', '?', '!']) {
        let Some((after, next)) = following(text, at + 1) else { continue };
        // A leading space is not seen: the word then begins where the last one did.
        let space =
            text[word.end..at].rfind([' ', '\t', '\n', '\r', '\x0b', '\x0c']).filter(|at| *at > 0);
        let start = space.map_or(word.start, |space| word.end + space + 1);
        if let Some(last) = last.take()
            && word.end <= start
        {
            found.push(last);
        }
        last = Some(Candidate { context: start..after, end: at + 1, next });
        word = start..at;
    }
    found.extend(last);
    found
}

/// The end of the mark or word that follows a possible end of a sentence, and where the next sentence begins.
fn following(text: &str, at: usize) -> Option<(usize, usize)> {
    let rest = &text[at..];
    let first = rest.chars().next()?;
    if is_non_word(first) {
        return Some((at + first.len_utf8(), at));
    }
    let word = rest.find(|char| !is_token_space(char)).filter(|word| *word > 0)?;
    let length = rest[word..].find(is_token_space).unwrap_or(rest.len() - word);
    Some((at + word + length, at + word))
}

fn is_curly(char: char) -> bool {
    matches!(char, '‘' | '’' | '“' | '”' | '«' | '»')
}

/// Characters that end a word.
fn is_non_word(char: char) -> bool {
    matches!(
        char,
        ')' | '"' | ';' | '}' | ']' | '*' | ':' | '@' | '\'' | '(' | '{' | '[' | '?' | '!'
    ) || is_curly(char)
}

/// Characters that no word begins with.
fn is_no_start(char: char) -> bool {
    matches!(
        char,
        '(' | '"'
            | '`'
            | '{'
            | '['
            | ':'
            | ';'
            | '&'
            | '#'
            | '*'
            | '@'
            | ')'
            | '}'
            | ']'
            | '-'
            | ','
    )
}

/// Whether a token other than the last ends a sentence.
fn has_break(context: &str) -> bool {
    let mut tokens = tokens(context).map(Token::new);
    let Some(mut token) = tokens.next() else { return false };
    for next in tokens {
        token.look_at(&next);
        if token.breaks {
            return true;
        }
        token = next;
    }
    false
}

fn tokens(text: &str) -> impl Iterator<Item = &str> {
    text.split('\n').filter(|line| !strip(line).is_empty()).flat_map(|line| {
        let mut rest = line;
        std::iter::from_fn(move || {
            rest = rest.trim_start_matches(is_token_space);
            let first = rest.chars().next()?;
            let length = match run(rest) {
                Some(length) => length,
                None if is_no_start(first) => first.len_utf8(),
                None => word_length(rest),
            };
            let (token, after) = rest.split_at(length);
            rest = after;
            Some(token)
        })
    })
}

/// The length of the hyphens or dots, also spaced ones, that a text begins with.
fn run(text: &str) -> Option<usize> {
    let same = |mark: char| text.len() - text.trim_start_matches(mark).len();
    match text.chars().next()? {
        '-' => Some(same('-')).filter(|length| *length > 1),
        '.' if text.starts_with("..") => Some(same('.')),
        '.' => spaced_dots(text),
        _ => None,
    }
}

/// The length of `. . .` with at least three dots.
fn spaced_dots(text: &str) -> Option<usize> {
    let mut chars = text.char_indices().skip(1);
    let (mut dots, mut end) = (1, 1);
    while let (Some((_, space)), Some((at, '.'))) = (chars.next(), chars.next()) {
        if !is_token_space(space) {
            break;
        }
        (dots, end) = (dots + 1, at + 1);
    }
    (dots > 2).then_some(end)
}

/// Whether a run begins here; unlike [`run`] this looks at a few characters only.
fn starts_run(text: &str) -> bool {
    if text.starts_with("--") || text.starts_with("..") {
        return true;
    }
    let mut chars = text.chars();
    let mut dot = || chars.next() == Some('.');
    if !dot() {
        return false;
    }
    let mut spaced = || chars.next().is_some_and(is_token_space) && chars.next() == Some('.');
    spaced() && spaced()
}

/// A word extends to a space, a mark, a run, or a comma before one of these.
fn word_length(text: &str) -> usize {
    let ends = |rest: &str| {
        rest.chars().next().is_none_or(|char| is_token_space(char) || is_non_word(char))
            || starts_run(rest)
    };
    let after_first = text.char_indices().skip(1).map(|(at, _)| at);
    let end = after_first.into_iter().find(|at| {
        let rest = &text[*at..];
        ends(rest) || rest.strip_prefix(',').is_some_and(ends)
    });
    end.unwrap_or(text.len())
}

/// The model's statistics about the start of a sentence.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Starts {
    Yes,
    No,
    Unknown,
}

struct Token<'a> {
    text: &'a str,
    breaks: bool,
    shortened: bool,
    ellipsis: bool,
}

impl<'a> Token<'a> {
    /// A token with its own features.
    fn new(text: &'a str) -> Self {
        let ellipsis = text.len() > 1 && text.bytes().all(|byte| byte == b'.');
        let word = text.strip_suffix('.').filter(|word| !word.ends_with('.') && !word.is_empty());
        let shortened = word.is_some_and(|word| {
            let word = word.to_lowercase();
            let known = |word: &str| MODEL.abbreviations.contains(word);
            known(&word) || word.rsplit('-').next().is_some_and(known)
        });
        let breaks = matches!(text, "." | "?" | "!") || (word.is_some() && !shortened);
        Self { text, breaks, shortened, ellipsis }
    }

    /// Revises the decision about this token's end, given the next token.
    fn look_at(&mut self, next: &Token) {
        if !self.text.ends_with('.') {
            return;
        }
        let kind = kind(self.text);
        let kind = without_period(&kind);
        let next_kind = next.sentence_kind();
        let next_kind = next_kind.as_str();
        if MODEL.collocations.contains(&(kind, next_kind)) {
            self.breaks = false;
            return;
        }
        let initial = self.is_initial();
        let next_upper = next.text.chars().next().is_some_and(char::is_uppercase);
        let starts = next.starts(context(next_kind));
        if (self.shortened || self.ellipsis)
            && !initial
            && (starts == Starts::Yes || (next_upper && MODEL.starters.contains(next_kind)))
        {
            self.breaks = true;
            return;
        }
        if initial || kind == NUMBER {
            let name = initial && next_upper && context(next_kind) & LOWER == 0;
            if starts == Starts::No || (starts == Starts::Unknown && name) {
                self.breaks = false;
            }
        }
    }

    /// Whether the token begins a sentence, by the cases it is known to occur in.
    fn starts(&self, context: u8) -> Starts {
        if matches!(self.text, ";" | ":" | "," | "." | "!" | "?") {
            return Starts::No;
        }
        let first = self.text.chars().next().unwrap_or_default();
        if first.is_uppercase() && context & LOWER != 0 && context & UPPER_INSIDE == 0 {
            return Starts::Yes;
        }
        if first.is_lowercase() && (context & UPPER != 0 || context & LOWER_FIRST == 0) {
            return Starts::No;
        }
        Starts::Unknown
    }

    fn sentence_kind(&self) -> String {
        let mut kind = kind(self.text);
        if self.breaks {
            kind.truncate(without_period(&kind).len());
        }
        kind
    }

    fn is_initial(&self) -> bool {
        let mut chars = self.text.chars();
        let letter = chars.next().is_some_and(|char| is_token_word(char) && !is_decimal(char));
        letter && chars.as_str() == "."
    }
}

/// The model's name of a token.
fn kind(token: &str) -> String {
    if is_number(token) { NUMBER.to_owned() } else { token.to_lowercase() }
}

fn context(kind: &str) -> u8 {
    MODEL.contexts.get(kind).copied().unwrap_or_default()
}

fn without_period(kind: &str) -> &str {
    kind.strip_suffix('.').filter(|kind| !kind.is_empty()).unwrap_or(kind)
}

fn is_number(text: &str) -> bool {
    let text = text.strip_prefix('-').unwrap_or(text);
    let text = text.strip_prefix(['.', ',']).unwrap_or(text);
    text.starts_with(is_decimal)
        && text.chars().all(|char| is_decimal(char) || matches!(char, ',' | '.' | '-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn abbreviations_numbers_and_initials_do_not_break() {
        let text =
            "Dr. Smith paid $3.50 to J. Bach. He left at 5 p.m. on Friday. Why?! Nobody knows...";
        assert_eq!(
            sentences(text),
            [
                "Dr. Smith paid $3.50 to J. Bach.",
                "He left at 5 p.m. on Friday.",
                "Why?!",
                "Nobody knows..."
            ]
        );
    }

    #[test]
    fn closing_marks_stay_with_their_sentence() {
        assert_eq!(
            sentences("(One.) Two. “Three.” Four."),
            ["(One.)", "Two.", "“Three.”", "Four."]
        );
        assert_eq!(sentences(" an.\n\n ox. "), [" an.", "ox."]);
        assert_eq!(sentences(""), Vec::<&str>::new());
        assert_eq!(sentences("!!!"), ["!", "!", "!"]);
    }

    #[test]
    fn words_end_at_marks_and_runs() {
        assert_eq!(
            tokens("it's, so--well... (a, b,c) . . . x,").collect::<Vec<_>>(),
            [
                "it", "'s", ",", "so", "--", "well", "...", "(", "a", ",", "b,c", ")", ". . .",
                "x", ","
            ]
        );
    }

    #[test]
    fn long_runs_end_soon() {
        for unit in [".", "!", ". ", "a.", "!)", "' ", ".\n", "-", "a,", "?a "] {
            let text = unit.repeat(300_000 / unit.len());
            let _ = sentences(&text);
        }
    }
}
