//! `ratio:` constraints: shares of stop words, of kinds of sentences, of a reference's trigrams.

use std::{collections::HashSet, sync::LazyLock};

use super::{
    args::{Args, Raised},
    count::word_runs,
    rule::Rule,
};
use crate::text::{
    punkt::sentences,
    strings::{len, lower, strip},
};

static STOP_WORDS: LazyLock<HashSet<&str>> =
    LazyLock::new(|| include_str!("../../data/stopwords.txt").lines().collect());

pub(super) fn stop_words(args: &Args) -> Result<Rule, Raised> {
    let most = args.number("percentage")?;
    Ok(Box::new(move |text| {
        let (mut all, mut stop) = (0, 0);
        for word in word_runs(text) {
            all += 1;
            // Longer than any stop word: skips the lookup.
            stop += usize::from(word.len() < 16 && STOP_WORDS.contains(lower(word).as_str()));
        }
        Ok(all > 0 && stop as f64 / f64::from(all) * 100.0 <= most)
    }))
}

pub(super) fn overlap(args: &Args) -> Result<Rule, Raised> {
    let percentage = args.number("percentage")?;
    let reference = trigrams(args.text("reference_text")?);
    Ok(Box::new(move |text| {
        let own = trigrams(text);
        let common = own.iter().filter(|trigram| reference.binary_search(trigram).is_ok()).count();
        let share = common as f64 / own.len() as f64 * 100.0;
        Ok(!own.is_empty() && percentage - 2.0 <= share && share <= percentage + 2.0)
    }))
}

/// Distinct character trigrams, sorted.
fn trigrams(text: &str) -> Vec<u64> {
    let mut last = 0_u64;
    let mut found: Vec<u64> = Vec::with_capacity(text.len());
    for char in text.chars() {
        // A character has 21 bits.
        last = (last << 21 | u64::from(u32::from(char))) & ((1 << 63) - 1);
        found.push(last);
    }
    found.drain(..found.len().min(2));
    found.sort_unstable();
    found.dedup();
    found
}

pub(super) fn sentence_type(text: &str) -> bool {
    let [statements, questions, _] = ends(text);
    statements == 2 * questions
}

pub(super) fn sentence_balance(text: &str) -> bool {
    let [statements, questions, exclamations] = ends(text);
    statements == questions && questions == exclamations
}

/// Numbers of sentences that end with a period, a question mark, an exclamation mark.
fn ends(text: &str) -> [usize; 3] {
    let sentences = sentences(text);
    ['.', '?', '!'].map(|mark| sentences.iter().filter(|sentence| sentence.ends_with(mark)).count())
}

/// Three sentences of equal length; the official code does not check that their words differ.
pub(super) fn sentence_words(text: &str) -> bool {
    let lengths: Vec<usize> = sentences(text).iter().map(|sentence| len(strip(sentence))).collect();
    lengths.len() == 3 && lengths.iter().all(|length| *length == lengths[0])
}
