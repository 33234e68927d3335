//! Syllables of an English word: a list of known words, else groups of vowels.
//!
//! Single words only; a word with a digit has no syllables.

use std::{collections::HashMap, sync::LazyLock};

use super::chars::is_decimal;

static KNOWN: LazyLock<HashMap<&str, usize>> = LazyLock::new(|| {
    let line = |line: &'static str| {
        line.rsplit_once(',').and_then(|(word, n)| Some((word, n.parse().ok()?)))
    };
    include_str!("../../data/syllables.csv").lines().filter_map(line).collect()
});

/// Number of syllables of a word as SyllaPy counts them. The word must not contain spaces.
pub(crate) fn count(word: &str) -> usize {
    let lower = word.to_lowercase();
    if lower.contains(is_decimal) {
        return 0;
    }
    let mut rest = bare(&lower);
    let mut total = 0;
    // A compound that is not known as a whole is its first part and all that follows its hyphen; a part
    // that counts nothing makes the whole count nothing.
    while !rest.is_empty() {
        if let Some(known) = known(rest) {
            return total + known;
        }
        let Some((first, after)) = rest.split_once('-').filter(|(_, after)| !after.is_empty())
        else {
            return total + guess(rest);
        };
        let first = bare(first);
        if first.is_empty() {
            return 0;
        }
        total += known(first).unwrap_or_else(|| guess(first));
        rest = bare(after);
    }
    0
}

fn known(word: &str) -> Option<usize> {
    // Longer than any word of the list.
    if word.len() > 64 { None } else { KNOWN.get(word).copied() }
}

fn bare(word: &str) -> &str {
    word.trim_matches(|char: char| char.is_ascii_punctuation())
}

fn guess(word: &str) -> usize {
    let chars: Vec<char> = word.chars().collect();
    let vowel = |index: usize| chars.get(index).is_some_and(|char| "aeiouy".contains(*char));
    let mut count = (0..chars.len()).filter(|&at| vowel(at) && (at == 0 || !vowel(at - 1))).count();
    if word.ends_with('e') {
        count = count.saturating_sub(1);
    }
    if word.ends_with("le") && chars.len() > 2 && !vowel(chars.len() - 3) {
        count += 1;
    }
    count.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_guessed_and_compound() {
        let counts =
            ["the", "table", "zzz", "self-care", "area", "e", "glorble", "x1", "", "a-"].map(count);
        assert_eq!(counts, [1, 2, 1, 2, 3, 1, 2, 0, 0, 1]);
    }

    #[test]
    fn many_hyphens_do_not_recurse() {
        assert_eq!(count(&"ab-".repeat(100_000)), 100_000);
    }
}
