//! `sentence:` constraints: comparisons of each sentence with the one before.

use super::{
    args::{Args, Raised},
    rule::Rule,
};
use crate::text::{
    punkt::sentences,
    strings::{has_word, lower, split, strip_marks_start, without_punctuation},
};

pub(super) fn alliteration_increment(text: &str) -> bool {
    let scores: Vec<usize> = sentences(text).into_iter().map(alliteration).collect();
    scores.is_sorted_by(|one, next| one < next)
}

/// Words that begin like their neighbor, counted along each run.
fn alliteration(sentence: &str) -> usize {
    let sentence = lower(sentence);
    let firsts: Vec<char> =
        split(&sentence).filter_map(|word| strip_marks_start(word).chars().next()).collect();
    let mut score = 0;
    let mut in_run = false;
    for pair in firsts.windows(2) {
        let alike = pair[0] == pair[1];
        score += match (alike, in_run) {
            (false, _) => 0,
            (true, true) => 1,
            (true, false) => 2,
        };
        in_run = alike;
    }
    score
}

pub(super) fn increment(args: &Args) -> Result<Rule, Raised> {
    let step = args.number("small_n")?;
    Ok(Box::new(move |text| {
        let words = |sentence: &&str| split(&without_punctuation(sentence)).count() as f64;
        let counts: Vec<f64> = sentences(text).iter().map(words).collect();
        if counts.is_empty() {
            return Err(Raised::index("list"));
        }
        Ok(counts.windows(2).all(|pair| pair[1] == pair[0] + step))
    }))
}

pub(super) fn keyword(args: &Args) -> Result<Rule, Raised> {
    let (word, position) = (args.some_text("word")?.to_owned(), args.number("N")?);
    Ok(Box::new(move |text| {
        let sentences = sentences(text);
        if (sentences.len() as f64) < position {
            return Ok(false);
        }
        // Position zero is the last sentence, as index -1 is.
        let index = (position - 1.0).trunc();
        let sentence = if index < 0.0 { sentences.last() } else { sentences.get(index as usize) };
        let sentence = sentence.ok_or_else(|| Raised::index("list"))?;
        Ok(has_word(sentence, &word))
    }))
}
