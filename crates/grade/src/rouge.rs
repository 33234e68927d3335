//! ROUGE-L: the longest common subsequence of the words of two texts.
//!
//! Words are ASCII only; every other character separates words, as in the original.

use std::collections::HashMap;

use crate::stem::stem;

/// Precision, recall and F-measure.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Score {
    /// Share of the prediction's words in common.
    pub precision: f64,
    /// Share of the reference's words in common.
    pub recall: f64,
    /// Harmonic mean of both.
    pub fmeasure: f64,
}

/// Compares two texts by the stems of their words. Texts without words score 0.
pub fn score(reference: &str, prediction: &str) -> Score {
    let (reference, prediction) = (words(reference), words(prediction));
    if reference.is_empty() || prediction.is_empty() {
        return Score::default();
    }
    let common = common_words(&reference, &prediction) as f64;
    let precision = common / prediction.len() as f64;
    let recall = common / reference.len() as f64;
    let fmeasure = harmonic_mean(precision, recall);
    Score { precision, recall, fmeasure }
}

/// Harmonic mean; 0 if both are 0.
pub(crate) fn harmonic_mean(precision: f64, recall: f64) -> f64 {
    let sum = precision + recall;
    if sum > 0.0 { 2.0 * precision * recall / sum } else { 0.0 }
}

/// The words of a text in lower case, longer ones stemmed.
pub fn words(text: &str) -> Vec<String> {
    // One letter beyond ASCII turns into one of ASCII and another into one and a mark, which separates.
    let lower = text.to_lowercase();
    let runs = lower.split(|char: char| !char.is_ascii_alphanumeric());
    let stems = runs.map(|word| if word.len() > 3 { stem(word) } else { word.to_owned() });
    stems.filter(|word| !word.is_empty()).collect()
}

/// Length of the longest common subsequence.
fn common_words(one: &[String], other: &[String]) -> usize {
    let ids: HashMap<&str, u32> = one.iter().map(String::as_str).zip(0..).collect();
    let shared: Vec<u32> =
        other.iter().filter_map(|word| ids.get(word.as_str()).copied()).collect();
    let mut seen = vec![false; one.len()];
    for id in &shared {
        seen[*id as usize] = true;
    }
    let known: Vec<u32> = one.iter().map(|word| ids[word.as_str()]).collect();
    let known: Vec<u32> = known.into_iter().filter(|id| seen[*id as usize]).collect();
    let (known, shared, ends) = without_common_ends(&known, &shared);
    let (columns, rows) =
        if known.len() < shared.len() { (known, shared) } else { (shared, known) };
    let rows = &rows[..rows.len().min(MOST_CELLS / columns.len().max(1))];
    ends + longest_common(columns, rows, one.len())
}

/// Strips the common prefix and suffix, and returns their length.
fn without_common_ends<'a>(one: &'a [u32], other: &'a [u32]) -> (&'a [u32], &'a [u32], usize) {
    let start = one.iter().zip(other).take_while(|(a, b)| a == b).count();
    let (one, other) = (&one[start..], &other[start..]);
    let end = one.iter().rev().zip(other.iter().rev()).take_while(|(a, b)| a == b).count();
    (&one[..one.len() - end], &other[..other.len() - end], start + end)
}

/// Largest table computed; words beyond it count as different. The original keeps its table in memory, where one of this
/// size would take 64 GiB.
const MOST_CELLS: usize = 1 << 33;

/// Columns per block.
const LANES: usize = 8;
const COLUMNS: usize = 64 * LANES;

/// The bit-parallel algorithm: a row of the usual table is one bit for each column, cleared where the length
/// grows, and one addition steps to the next row. Columns are taken in blocks that stay in the cache; what the
/// addition carries out of a block is stored for each row.
fn longest_common(columns: &[u32], rows: &[u32], ids: usize) -> usize {
    let mut carries = vec![false; rows.len()];
    // Index of each word's mask in the block; the first mask is for words outside the block.
    let mut slots = vec![0_u16; ids];
    let mut masks = Vec::with_capacity(COLUMNS + 1);
    let mut length = 0;
    for block in columns.chunks(COLUMNS) {
        masks.clear();
        masks.push([0_u64; LANES]);
        for (at, id) in block.iter().enumerate() {
            let slot = &mut slots[*id as usize];
            if *slot == 0 {
                *slot = masks.len() as u16;
                masks.push([0; LANES]);
            }
            masks[usize::from(*slot)][at / 64] |= 1 << (at % 64);
        }
        let mut bits = [u64::MAX; LANES];
        for (id, carry) in rows.iter().zip(&mut carries) {
            let slot = slots[*id as usize];
            if slot != 0 || *carry {
                *carry = step(&mut bits, &masks[usize::from(slot)], *carry);
            }
        }
        length += bits.iter().map(|lane| lane.count_zeros() as usize).sum::<usize>();
        for id in block {
            slots[*id as usize] = 0;
        }
    }
    length
}

/// Advances a block by one row and returns the carry.
#[inline]
fn step(bits: &mut [u64; LANES], mask: &[u64; LANES], carry: bool) -> bool {
    let mut carry = carry;
    for (lane, mask) in bits.iter_mut().zip(mask) {
        let (sum, over) = lane.carrying_add(*lane & mask, carry);
        *lane = sum | (*lane & !mask);
        carry = over;
    }
    carry
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The textbook algorithm.
    fn by_table(one: &[String], other: &[String]) -> usize {
        let mut row = vec![0; other.len() + 1];
        for a in one {
            let mut diagonal = 0;
            for (at, b) in other.iter().enumerate() {
                let above = row[at + 1];
                row[at + 1] = if a == b { diagonal + 1 } else { above.max(row[at]) };
                diagonal = above;
            }
        }
        row[other.len()]
    }

    fn some_words(kinds: u8, most: usize) -> impl Strategy<Value = Vec<String>> {
        prop::collection::vec((0..kinds).prop_map(|kind| kind.to_string()), 0..most)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn lengths_equal_the_table_of_the_textbook(
            (one, other) in (1..40_u8).prop_flat_map(|kinds| (some_words(kinds, 1300), some_words(kinds, 700)))
        ) {
            let expected = by_table(&one, &other);
            prop_assert_eq!(common_words(&one, &other), expected);
            prop_assert_eq!(common_words(&other, &one), expected);
        }
    }

    #[test]
    fn words_are_ascii_and_stemmed() {
        assert_eq!(
            words("The RUNNING_dogs' \u{212a}2 İx naïve"),
            ["the", "run", "dog", "k2", "i", "x", "na", "ve"]
        );
        assert!(words("北京 — ß").is_empty());
    }

    #[test]
    fn shares_are_of_words_in_order() {
        let score = super::score("the cat sat on the mat", "the mat sat");
        assert_eq!((score.precision, score.recall), (2.0 / 3.0, 2.0 / 6.0));
        assert!((score.fmeasure - 4.0 / 9.0).abs() < 1e-12);
        assert_eq!(super::score("", "abc"), Score::default());
        assert_eq!(super::score("one", "two"), Score::default());
    }
}
