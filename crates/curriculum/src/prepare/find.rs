//! A demonstration for a question whose answer stands in a file word for word: search for a word of the question
//! that stands near it, then write the answer.
//!
//! Runs nothing; it reads the files as the search would.

use std::collections::BTreeMap;

use crate::row::{INPUT_DIR, answered_with, quoted};

/// What the search shows before and after the word, in bytes.
const AROUND: usize = 150;
/// Shorter words are found everywhere.
const SHORTEST_WORD: usize = 4;
/// So many words of a question are tried.
const MOST_WORDS: usize = 64;
/// More than this many hits are no find.
const MOST_HITS: usize = 12;
/// Longer answers are written by nobody by hand.
const LONGEST_ANSWER: usize = 200;

/// The commands, or none where no word of the question leads to the answer.
pub(super) fn demonstration(
    question: &str,
    answer: &str,
    files: &BTreeMap<String, String>,
) -> Option<Vec<String>> {
    let plain =
        !answer.is_empty() && answer.len() <= LONGEST_ANSWER && !answer.contains(char::is_control);
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
        .filter(|word| word.len() >= SHORTEST_WORD)
        .take(MOST_WORDS)
        .filter(|word| shows(&texts, &word.to_ascii_lowercase(), answer))
        .map(|word| (hits(word), word))
        .filter(|(hits, _)| *hits <= MOST_HITS)
        .min()?
        .1;
    let around = format!(".\\{{0,{AROUND}\\}}");
    let search =
        format!("grep -r -o -i {} {INPUT_DIR}", quoted(&format!("{around}{word}{around}")));
    Some(vec![search, answered_with(answer)])
}

/// Whether the first hit in some line shows the whole answer. Texts come with their lower case, a word in it only.
fn shows(texts: &[(&str, String)], word: &str, answer: &str) -> bool {
    let mut lines = texts.iter().flat_map(|(text, lower)| text.lines().zip(lower.lines()));
    lines.any(|(line, lower)| {
        let Some(at) = lower.find(word) else { return false };
        // Both programs count characters or bytes as their locale has it; a window that holds for both is safe.
        let from = line.floor_char_boundary(at.saturating_sub(AROUND / 2));
        let to = line.floor_char_boundary(at + word.len() + AROUND / 2);
        line[from..to].contains(answer)
    })
}
