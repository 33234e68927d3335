//! Search patterns for leaks of a problem: the names of its benchmark, its answer, its wording.
//!
//! A weak answer (a letter, a small number, a short word) counts only where it is called an answer near words of the
//! problem.

use std::collections::HashSet;

use super::{
    fold::{Folded, run_set, runs, tokens},
    words::positions,
};

/// The parts of a problem that could leak.
#[derive(Clone, Copy, Debug)]
pub struct LeakTarget<'a> {
    /// Public names of the benchmark.
    pub known_as: &'a [String],
    /// Problem statement.
    pub problem_statement: &'a str,
    /// Expected answer.
    pub ground_truth: &'a str,
}

/// Compiled search patterns.
#[derive(Debug)]
pub(super) struct Matcher {
    names: Vec<Name>,
    answer: Option<Answer>,
    statement: String,
    /// Hashes of word n-grams of the problem.
    runs: HashSet<u64>,
}

#[derive(Debug)]
struct Name {
    shown: String,
    words: Vec<String>,
    /// All words joined.
    joined: String,
    /// Short names match case-sensitively.
    exact: bool,
}

#[derive(Debug)]
struct Answer {
    text: String,
    kind: Kind,
}

#[derive(Debug, PartialEq)]
enum Kind {
    /// Distinctive by itself.
    Distinctive,
    /// May occur by chance.
    Weak,
    /// Matched by word n-grams.
    Long(HashSet<u64>),
}

/// Words per n-gram of the problem, and how many such n-grams must be near.
const RUN: usize = 5;
const SHARED: usize = 3;
/// Words to each side that count as near.
const NEAR: usize = 150;
/// Words per n-gram of a long answer.
const LONG_RUN: usize = 8;
/// Characters above which an answer is long.
const LONG: usize = 200;
/// Bytes before an answer searched for a phrase such as "the answer is".
const CALLED: usize = 60;
const CALLS: [&str; 9] = [
    "answer",
    "solution",
    "ground truth",
    "groundtruth",
    "gold",
    "correct",
    "label",
    "target",
    "boxed",
];

impl Matcher {
    pub(super) fn of(target: &LeakTarget<'_>) -> Self {
        let statement = Folded::of(target.problem_statement).text;
        let mut names: Vec<Name> =
            target.known_as.iter().filter_map(|name| Name::of(name)).collect();
        names.retain(|name| {
            name.find(target.problem_statement, &tokens(target.problem_statement)).is_none()
        });
        let answer = Answer::of(target.ground_truth, &statement);
        let runs = run_set(&statement, RUN);
        Self { names, answer, statement, runs }
    }

    /// Finds a name of the benchmark: the name and its position.
    pub(super) fn name(&self, text: &str) -> Option<(&str, usize, usize)> {
        if self.names.is_empty() {
            return None;
        }
        let text = unescaped(text);
        let tokens = tokens(&text);
        self.names.iter().find_map(|name| {
            name.find(&text, &tokens).map(|(start, end)| (name.shown.as_str(), start, end))
        })
    }

    /// Finds the answer in retrieved content: its position.
    pub(super) fn answer(&self, text: &str) -> Option<(usize, usize)> {
        let answer = self.answer.as_ref()?;
        let folded = Folded::of(text);
        let (start, end) = match &answer.kind {
            Kind::Distinctive => positions(&folded.text, &answer.text).next()?,
            Kind::Weak => self.near(&folded.text, &answer.text)?,
            Kind::Long(ngrams) => long(&folded.text, ngrams)?,
        };
        Some((folded.origin(start), folded.origin(end)))
    }

    /// Whether a text of the model gives the answer.
    pub(super) fn gives(&self, text: &str) -> bool {
        let Some(answer) = &self.answer else { return false };
        let folded = Folded::of(text).text;
        match &answer.kind {
            Kind::Distinctive => positions(&folded, &answer.text).next().is_some(),
            Kind::Weak => {
                let mut called = positions(&folded, &answer.text);
                folded.trim() == answer.text || called.any(|(start, _)| is_called(&folded, start))
            }
            Kind::Long(ngrams) => long(&folded, ngrams).is_some(),
        }
    }

    /// Finds a weak answer that is called one near words of the problem, and is not an echo of the problem itself.
    fn near(&self, text: &str, answer: &str) -> Option<(usize, usize)> {
        let needed = SHARED.min(self.runs.len());
        if needed == 0 {
            return None;
        }
        let tokens = tokens(text);
        let mut shared = vec![0];
        for run in runs(text, &tokens, RUN) {
            let so_far = shared.last().copied().unwrap_or(0);
            shared.push(so_far + usize::from(self.runs.contains(&run)));
        }
        let upto = |at: usize| shared[at.min(shared.len() - 1)];
        positions(text, answer).find(|(start, end)| {
            let at = tokens.partition_point(|(begin, _)| begin < start);
            let near = upto(at + NEAR) - upto(at.saturating_sub(NEAR));
            near >= needed && is_called(text, *start) && !self.is_echo(text, *start, *end)
        })
    }

    fn is_echo(&self, text: &str, start: usize, end: usize) -> bool {
        let before = text[..start].char_indices().rev().nth(15).map_or(0, |(at, _)| at);
        self.statement.contains(&text[before..end])
    }
}

impl Name {
    fn of(name: &str) -> Option<Self> {
        let words: Vec<String> =
            tokens(name).iter().map(|(start, end)| name[*start..*end].to_lowercase()).collect();
        let joined = words.concat();
        let short = words.len() == 1 && joined.chars().count() <= 4;
        // A short lower-case word is too common.
        let useless = joined.is_empty() || (short && !name.contains(char::is_uppercase));
        (!useless).then(|| Self { shown: name.to_owned(), words, joined, exact: short })
    }

    fn find(&self, text: &str, tokens: &[(usize, usize)]) -> Option<(usize, usize)> {
        tokens.iter().enumerate().find_map(|(at, (start, end))| {
            let token = &text[*start..*end];
            if self.exact {
                return (token == self.shown).then_some((*start, *end));
            }
            if is_same(token, &self.joined) {
                return Some((*start, *end));
            }
            let following = tokens.get(at..at + self.words.len())?;
            let same =
                following.iter().zip(&self.words).all(|(t, word)| is_same(&text[t.0..t.1], word));
            let close = following.windows(2).all(|pair| pair[1].0 - pair[0].1 <= 3);
            (same && close).then(|| (*start, following.last().map_or(*end, |last| last.1)))
        })
    }
}

fn is_same(token: &str, lower: &str) -> bool {
    token.chars().flat_map(char::to_lowercase).eq(lower.chars())
}

/// Replaces URL escapes by blanks, keeping the length.
fn unescaped(text: &str) -> String {
    let mut rest = text;
    let mut plain = String::with_capacity(text.len());
    while let Some(at) = rest.find('%') {
        plain.push_str(&rest[..at]);
        let escape = rest.as_bytes().get(at + 1..at + 3);
        if escape.is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit)) {
            plain.push_str("   ");
            rest = &rest[at + 3..];
        } else {
            plain.push('%');
            rest = &rest[at + 1..];
        }
    }
    plain.push_str(rest);
    plain
}

impl Answer {
    fn of(ground_truth: &str, statement: &str) -> Option<Self> {
        let truth = ground_truth.trim();
        // Arguments of a checker are not an answer that could be found.
        if truth.starts_with('{') && truth.ends_with('}') && truth.contains(':') {
            return None;
        }
        let boxed = truth.split_once("\\boxed{").and_then(|(_, rest)| rest.rsplit_once('}'));
        let folded = Folded::of(boxed.map_or(truth, |(inner, _)| inner)).text;
        let text = folded.trim_matches(|c: char| c == ' ' || c == '.').to_owned();
        let length = text.chars().count();
        // A formula may be long and have few words.
        let runs = || Some(run_set(&text, LONG_RUN)).filter(|runs| !runs.is_empty());
        let kind = match (length, (length > LONG).then(runs).flatten()) {
            (0, _) => return None,
            (_, Some(runs)) => Kind::Long(runs),
            _ if is_telling(&text) && positions(statement, &text).next().is_none() => {
                Kind::Distinctive
            }
            _ => Kind::Weak,
        };
        Some(Self { text, kind })
    }
}

/// Whether a text hardly occurs by chance.
fn is_telling(text: &str) -> bool {
    let length = text.chars().count();
    let letters = text.chars().filter(|c| c.is_alphabetic()).count();
    let digits = text.chars().filter(char::is_ascii_digit).count();
    let words = text.split(' ').count();
    match letters {
        0 => digits >= 7,
        _ => length >= 12 || (words >= 2 && length >= 8) || (digits > 0 && length >= 6),
    }
}

fn is_called(text: &str, start: usize) -> bool {
    let from = (0..=start.saturating_sub(CALLED)).rev().find(|at| text.is_char_boundary(*at));
    let before = &text[from.unwrap_or(0)..start];
    CALLS.iter().any(|call| before.contains(call))
}

/// Position where half of the n-grams of a long answer occur.
fn long(text: &str, ngrams: &HashSet<u64>) -> Option<(usize, usize)> {
    let tokens = tokens(text);
    let mut found = HashSet::new();
    let mut first = None;
    for (at, run) in runs(text, &tokens, LONG_RUN).into_iter().enumerate() {
        if ngrams.contains(&run) {
            found.insert(run);
            first = first.or(tokens.get(at).copied());
        }
    }
    (!ngrams.is_empty() && found.len() * 2 >= ngrams.len()).then_some(first).flatten()
}
