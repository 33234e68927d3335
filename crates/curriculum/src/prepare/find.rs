//! A demonstration for a question whose answer is contained in a file verbatim: searches for a word of the question near
//! the answer, then writes the answer.
//!
//! Runs nothing; it scans the files as the search command would.

use std::collections::BTreeMap;

use crate::row::{INPUT_DIR, quoted, write_answer};

/// The context that the search shows before and after the word, in bytes.
const AROUND: usize = 150;
/// The minimum length of a word: shorter ones occur everywhere.
const MIN_WORD: usize = 4;
/// The maximum number of words of a question that are tried.
const MAX_WORDS: usize = 64;
/// The maximum number of hits of a useful word.
const MAX_HITS: usize = 12;
/// The maximum length of an answer that is written by hand, in bytes.
const MAX_ANSWER: usize = 200;

/// The commands; `None` where no word of the question leads to the answer.
pub(super) fn demonstration(
    question: &str,
    answer: &str,
    files: &BTreeMap<String, String>,
) -> Option<Vec<String>> {
    let plain =
        !answer.is_empty() && answer.len() <= MAX_ANSWER && !answer.contains(char::is_control);
    if !plain {
        return None;
    }
    let texts: Vec<(&str, String)> =
        files.values().map(|text| (text.as_str(), text.to_ascii_lowercase())).collect();
    let hits = |word: &str| -> usize {
        texts.iter().map(|(_, lower)| lower.matches(&word.to_ascii_lowercase()).count()).sum()
    };
    let word = question
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| word.len() >= MIN_WORD)
        .take(MAX_WORDS)
        .filter(|word| shows(&texts, &word.to_ascii_lowercase(), answer))
        .map(|word| (hits(word), word))
        .filter(|(hits, _)| *hits <= MAX_HITS)
        .min()?
        .1;
    let around = format!(".\\{{0,{AROUND}\\}}");
    let search =
        format!("grep -r -o -i {} {INPUT_DIR}", quoted(&format!("{around}{word}{around}")));
    Some(vec![search, write_answer(answer)])
}

/// Whether the first hit in some line shows the whole answer. Each text comes with its lower-case form; the word is in
/// lower case.
fn shows(texts: &[(&str, String)], word: &str, answer: &str) -> bool {
    let mut lines = texts.iter().flat_map(|(text, lower)| text.lines().zip(lower.lines()));
    lines.any(|(line, lower)| {
        let Some(at) = lower.find(word) else { return false };
        // grep counts characters or bytes depending on its locale; half the window is safe for both.
        let from = line.floor_char_boundary(at.saturating_sub(AROUND / 2));
        let to = line.floor_char_boundary(at + word.len() + AROUND / 2);
        line[from..to].contains(answer)
    })
}
