//! `count:` constraints: numbers of words, names, numbers or keywords.

use std::{collections::HashSet, ops::ControlFlow};

use super::{
    args::{Args, Raised},
    rule::Rule,
};
use crate::text::{
    chars::{is_decimal, is_digit, is_token_word, is_word},
    strings::{self, lower, split, strip, strip_marks, without_punctuation},
    treebank,
};

const CONJUNCTIONS: [&str; 7] = ["and", "but", "for", "nor", "or", "so", "yet"];

const NAMES: [&str; 50] = [
    "Emma",
    "Liam",
    "Sophia",
    "Jackson",
    "Olivia",
    "Noah",
    "Ava",
    "Lucas",
    "Isabella",
    "Mason",
    "Mia",
    "Ethan",
    "Charlotte",
    "Alexander",
    "Amelia",
    "Benjamin",
    "Harper",
    "Leo",
    "Zoe",
    "Daniel",
    "Chloe",
    "Samuel",
    "Lily",
    "Matthew",
    "Grace",
    "Owen",
    "Abigail",
    "Gabriel",
    "Ella",
    "Jacob",
    "Scarlett",
    "Nathan",
    "Victoria",
    "Elijah",
    "Layla",
    "Nicholas",
    "Audrey",
    "David",
    "Hannah",
    "Christopher",
    "Penelope",
    "Thomas",
    "Nora",
    "Andrew",
    "Aria",
    "Joseph",
    "Claire",
    "Ryan",
    "Stella",
    "Jonathan",
];

const PRONOUNS: &str = "\
    i me we us you he him she her it they them my mine our ours your yours his hers its their theirs myself \
    ourselves yourself yourselves himself herself itself themselves this that these those who whom whose which \
    what whoever whomever whatever whichever anybody anyone anything everybody everyone everything nobody nothing \
    somebody someone something each either neither both all some any none";

/// The maximal runs of word characters, as NLTK's tokenizer for `\w+` finds them.
pub(super) fn word_runs(text: &str) -> impl Iterator<Item = &str> {
    text.split(|char| !is_token_word(char)).filter(|word| !word.is_empty())
}

/// The maximal runs of decimal digits.
pub(super) fn digit_runs(text: &str) -> impl Iterator<Item = &str> {
    text.split(|char| !is_decimal(char)).filter(|digits| !digits.is_empty())
}

pub(super) fn word_range(args: &Args) -> Result<Rule, Raised> {
    let (least, most) = (args.number("min_words")?, args.number("max_words")?);
    Ok(Box::new(move |text| {
        let words = word_runs(text).count() as f64;
        Ok(least <= words && words <= most)
    }))
}

pub(super) fn unique_words(args: &Args) -> Result<Rule, Raised> {
    let least = args.number("N")?;
    Ok(Box::new(move |text| {
        let text = lower(text);
        // A word of punctuation only counts as the empty word.
        let words: HashSet<&str> = split(&text).map(strip_marks).collect();
        Ok(words.len() as f64 >= least)
    }))
}

pub(super) fn conjunctions(args: &Args) -> Result<Rule, Raised> {
    let least = args.number("small_n")?;
    Ok(Box::new(move |text| {
        // No other letter has one of theirs as its lower case.
        let is_one = |word: &&str| {
            let word = strip_marks(word);
            CONJUNCTIONS.iter().any(|conjunction| word.eq_ignore_ascii_case(conjunction))
        };
        // Different spellings of one conjunction, even with marks around it, count as different.
        let found: HashSet<&str> = split(text).filter(is_one).collect();
        Ok(found.len() as f64 >= least)
    }))
}

pub(super) fn person_names(args: &Args) -> Result<Rule, Raised> {
    let least = args.number("N")?;
    Ok(Box::new(move |text| {
        // A name between two edges of words is a whole run of word characters.
        let runs = text.split(|char| !is_word(char));
        let names = HashSet::from(NAMES);
        let found: HashSet<&str> =
            runs.filter(|run| !run.is_empty() && names.contains(run)).collect();
        Ok(found.len() as f64 >= least)
    }))
}

pub(super) fn numbers(args: &Args) -> Result<Rule, Raised> {
    let exactly = args.number("N")?;
    Ok(Box::new(move |text| Ok(digit_runs(&without_punctuation(text)).count() as f64 == exactly)))
}

pub(super) fn pronouns(args: &Args) -> Result<Rule, Raised> {
    let least = args.number("N")?;
    Ok(Box::new(move |text| {
        let pronouns: HashSet<&str> = PRONOUNS.split(' ').collect();
        let mut found = 0;
        let _ = treebank::visit_words(&lower(&text.replace('/', " ")), |word| {
            found += usize::from(pronouns.contains(word));
            if (found as f64) < least { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        Ok(found as f64 >= least)
    }))
}

pub(super) fn words_japanese(args: &Args) -> Result<Rule, Raised> {
    let every = args.number("N")?;
    let is_whole = args.place("N")?.is_whole();
    Ok(Box::new(move |text| {
        if every == 0.0 {
            let message = if is_whole { "integer modulo by zero" } else { "float modulo" };
            return Err(Raised::new("ZeroDivisionError", message));
        }
        let due = split(text).enumerate().filter(|(index, _)| (index + 1) as f64 % every == 0.0);
        let mut words =
            due.map(|(_, word)| strip_marks(word)).filter(|word| !word.chars().all(is_digit));
        Ok(words.all(|word| word.contains(is_japanese)))
    }))
}

fn is_japanese(char: char) -> bool {
    matches!(char, '\u{3040}'..='\u{30ff}' | '\u{4e00}'..='\u{9fff}')
}

pub(super) fn punctuation(text: &str) -> bool {
    let without = match (text.contains("?!"), text.contains("!?"), text.contains('‽')) {
        (true, ..) => text.replacen("?!", "", 1),
        (_, true, _) => text.replacen("!?", "", 1),
        (.., true) => text.to_owned(),
        _ => return false,
    };
    ".,!?;:".chars().all(|mark| without.contains(mark))
}

pub(super) fn keywords_multiple(args: &Args) -> Result<Rule, Raised> {
    let mut keywords = Vec::new();
    for (name, times) in
        [("keyword1", 1), ("keyword2", 2), ("keyword3", 3), ("keyword4", 5), ("keyword5", 7)]
    {
        keywords.push((lower(strip(args.text(name)?)), times));
    }
    Ok(Box::new(move |text| {
        let text = lower(text);
        Ok(keywords.iter().all(|(keyword, times)| strings::count(&text, keyword) == *times))
    }))
}
