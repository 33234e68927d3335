//! `words:` constraints: letters, lengths, sounds and order of words.

use std::collections::HashMap;

use super::{
    args::{Args, Raised},
    rule::Rule,
};
use crate::text::{
    chars::is_alnum,
    punkt::sentences,
    strings::{
        PUNCTUATION, len, lower, split, strip, strip_marks, strip_marks_end, strip_marks_start,
        without_punctuation,
    },
    syllables, tagger, treebank,
};

pub(super) fn alphabet(text: &str) -> bool {
    let text = without_punctuation(text);
    let mut words = split(&text);
    let Some(first) = words.next().and_then(|word| word.chars().next()) else { return false };
    // A first letter whose lower case is longer than one character is outside the alphabet.
    let mut lower_first = first.to_lowercase();
    let (Some('a'..='z'), None) = (lower_first.next(), lower_first.next()) else { return false };
    let place = |char: char| u32::from(char) - u32::from('a');
    let start = place(first.to_lowercase().next().unwrap_or('a'));
    (start + 1..).zip(words).all(|(due, word)| {
        let first = lower(word).chars().next();
        first.is_some_and(|first| first.is_ascii_lowercase() && place(first) == due % 26)
    })
}

pub(super) fn vowel(text: &str) -> bool {
    let text = strip(text);
    let lower = lower(text);
    !text.contains('\n') && "aeiou".chars().filter(|vowel| lower.contains(*vowel)).count() <= 3
}

pub(super) fn consonants(text: &str) -> bool {
    let is_consonant = |byte: u8| byte.is_ascii_lowercase() && !b"aeiou".contains(&byte);
    split(&lower(text)).all(|word| {
        word.as_bytes().windows(2).any(|pair| pair.iter().all(|byte| is_consonant(*byte)))
    })
}

pub(super) fn palindrome(text: &str) -> bool {
    let text = lower(&without_punctuation(text));
    let is_one = |word: &&str| len(word) >= 5 && word.chars().eq(word.chars().rev());
    split(&text).filter(is_one).count() >= 10
}

pub(super) fn prime_lengths(text: &str) -> bool {
    let is_prime = |length: usize| {
        (2..100).contains(&length) && (2..10).all(|by| length == by || !length.is_multiple_of(by))
    };
    split(&without_punctuation(text)).all(|word| is_prime(len(word)))
}

pub(super) fn start_verb(text: &str) -> bool {
    // A tag depends on no more than the two tokens after it.
    let tokens = treebank::first_words(text, 3);
    tagger::tags(&tokens, 1).first().is_some_and(|tag| tag.contains("VB"))
}

pub(super) fn repeats(args: &Args) -> Result<Rule, Raised> {
    let most = args.number("small_n")?;
    Ok(Box::new(move |text| {
        let text = lower(text);
        let text = without_punctuation(&text);
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for word in split(&text) {
            *counts.entry(word).or_default() += 1;
        }
        Ok(counts.values().all(|count| *count as f64 <= most))
    }))
}

pub(super) fn odd_even_syllables(text: &str) -> bool {
    let text = lower(&without_punctuation(text));
    let parities: Vec<usize> = split(&text).map(|word| syllables::count(word) % 2).collect();
    parities.windows(2).all(|pair| pair[0] != pair[1])
}

pub(super) fn last_first(text: &str) -> bool {
    sentences(text).windows(2).all(|pair| {
        let last = split(strip_marks_end(pair[0])).next_back();
        let first = split(strip_marks_start(pair[1])).next();
        last.is_some_and(|last| first.is_some_and(|first| lower(last) == lower(first)))
    })
}

pub(super) fn paragraph_last_first(text: &str) -> bool {
    text.split('\n').all(|paragraph| {
        let paragraph = lower(strip(paragraph));
        let mut words = split(strip_marks(&paragraph));
        // A paragraph of one word begins and ends with it; an empty one is skipped.
        words.next().is_none_or(|first| words.next_back().is_none_or(|last| first == last))
    })
}

pub(super) fn no_consecutive(text: &str) -> bool {
    let text = lower(text);
    let firsts: Vec<char> =
        split(&without_punctuation(&text)).filter_map(|word| word.chars().next()).collect();
    firsts.windows(2).all(|pair| pair[0] != pair[1])
}

pub(super) fn keyword_position(args: &Args) -> Result<Rule, Raised> {
    let keyword = lower(strip(args.some_text("keyword")?));
    let (sentence, word) = (args.position("n")?, args.position("m")?);
    Ok(Box::new(move |text| {
        let sentences = sentences(text);
        if sentence.is_past(sentences.len()) {
            return Ok(false);
        }
        let mut words = treebank::words(sentence.of(&sentences)?);
        words.retain(|word| word.contains(is_alnum));
        Ok(!word.is_past(words.len()) && lower(word.of(&words)?) == keyword)
    }))
}

pub(super) fn second_words(args: &Args) -> Result<Rule, Raised> {
    let keyword = lower(strip(args.text("keyword")?));
    Ok(Box::new(move |text| {
        let is_keyword = |word: Option<&String>| word.is_some_and(|word| lower(word) == keyword);
        if !is_keyword(treebank::first_words(text, 2).get(1)) {
            return Ok(false);
        }
        let words = treebank::words(text);
        // One mark at the end is not counted as a word.
        let ends_with_mark = words.last().is_some_and(|word| PUNCTUATION.contains(word.as_str()));
        let back = if ends_with_mark { 3 } else { 2 };
        Ok(is_keyword(words.len().checked_sub(back).and_then(|index| words.get(index))))
    }))
}
