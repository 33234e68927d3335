//! Maps a constraint's name and arguments to the function that checks it.
//!
//! The checks are in the files named after the first half of a constraint's name.

use serde_json::{Map, Value};

use super::{
    args::{Args, Raised},
    count, custom, format, ratio, repeat, sentence, words,
};

/// Checks a text that is not blank: whether it follows a constraint, or the exception of the official check.
pub(super) type Rule = Box<dyn Fn(&str) -> Result<bool, Raised>>;

type Plain = (&'static str, fn(&str) -> bool);

type Custom = (&'static str, fn(&str) -> Result<bool, Raised>);

/// Constraints that take no arguments.
const PLAIN: [Plain; 28] = [
    ("count:punctuation", count::punctuation),
    ("format:emoji", format::emoji),
    ("format:line_indent", format::line_indent),
    ("format:newline", format::newline),
    ("format:no_bullets_bullets", format::no_bullets_bullets),
    ("format:no_whitespace", format::no_whitespace),
    ("format:output_template", format::output_template),
    ("format:parentheses", format::parentheses),
    ("format:quote_unquote", format::quote_unquote),
    ("format:quotes", format::quotes),
    ("format:sub-bullets", format::sub_bullets),
    ("format:thesis", format::thesis),
    ("format:title_case", format::title_case),
    ("ratio:sentence_balance", ratio::sentence_balance),
    ("ratio:sentence_type", ratio::sentence_type),
    ("ratio:sentence_words", ratio::sentence_words),
    ("repeat:repeat_simple", repeat::simple),
    ("sentence:alliteration_increment", sentence::alliteration_increment),
    ("words:alphabet", words::alphabet),
    ("words:consonants", words::consonants),
    ("words:last_first", words::last_first),
    ("words:no_consecutive", words::no_consecutive),
    ("words:odd_even_syllables", words::odd_even_syllables),
    ("words:palindrome", words::palindrome),
    ("words:paragraph_last_first", words::paragraph_last_first),
    ("words:prime_lengths", words::prime_lengths),
    ("words:start_verb", words::start_verb),
    ("words:vowel", words::vowel),
];

/// Constraints of one question each, which ignore their arguments.
const CUSTOM: [Custom; 11] = [
    ("custom:character_reverse", custom::character_reverse),
    ("custom:csv_city", custom::csv_city),
    ("custom:csv_quotes", custom::csv_quotes),
    ("custom:csv_special_character", custom::csv_special_character),
    ("custom:date_format_list", custom::date_format_list),
    ("custom:european_capitals_sort", custom::european_capitals_sort),
    ("custom:mcq_count_length", custom::mcq_count_length),
    ("custom:multiples", custom::multiples),
    ("custom:reverse_newline", custom::reverse_newline),
    ("custom:sentence_alphabet", custom::sentence_alphabet),
    ("custom:word_reverse", custom::word_reverse),
];

/// The check of a constraint, or the exception of the official code for its arguments.
pub(super) fn build(id: &str, kwargs: &Map<String, Value>) -> Result<Rule, Raised> {
    if let Some((_, check)) = CUSTOM.into_iter().find(|(name, _)| *name == id) {
        return Ok(Box::new(check));
    }
    if let Some((_, check)) = PLAIN.into_iter().find(|(name, _)| *name == id) {
        Args::new(kwargs, &[])?;
        return Ok(Box::new(move |text| Ok(check(text))));
    }
    let args = |names: &[&str]| Args::new(kwargs, names);
    match id {
        "count:conjunctions" => count::conjunctions(&args(&["small_n"])?),
        "count:keywords_multiple" => count::keywords_multiple(&args(&[
            "keyword1", "keyword2", "keyword3", "keyword4", "keyword5",
        ])?),
        "count:numbers" => count::numbers(&args(&["N"])?),
        "count:person_names" => count::person_names(&args(&["N"])?),
        "count:pronouns" => count::pronouns(&args(&["N"])?),
        "count:unique_word_count" => count::unique_words(&args(&["N"])?),
        "count:word_count_range" => count::word_range(&args(&["min_words", "max_words"])?),
        "count:words_japanese" => count::words_japanese(&args(&["N"])?),
        "format:list" => format::list(&args(&["sep"])?),
        "format:options" => format::options(&args(&["options"])?),
        "ratio:overlap" => ratio::overlap(&args(&["reference_text", "percentage"])?),
        "ratio:stop_words" => ratio::stop_words(&args(&["percentage"])?),
        "repeat:repeat_change" => repeat::change(&args(&["prompt_to_repeat"])?),
        "repeat:repeat_span" => repeat::span(&args(&["prompt_to_repeat", "n_start", "n_end"])?),
        "sentence:increment" => sentence::increment(&args(&["small_n"])?),
        "sentence:keyword" => sentence::keyword(&args(&["word", "N"])?),
        "words:keywords_specific_position" => {
            words::keyword_position(&args(&["keyword", "n", "m"])?)
        }
        "words:repeats" => words::repeats(&args(&["small_n"])?),
        "words:words_position" => words::second_words(&args(&["keyword"])?),
        _ => Err(Raised::new("KeyError", format_args!("'{id}'"))),
    }
}
