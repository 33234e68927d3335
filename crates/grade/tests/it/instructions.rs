//! Every constraint on texts, each with arguments that it accepts.

use serde_json::Value;

/// The constraints' ids with their arguments.
pub(crate) fn instructions() -> Vec<(&'static str, Value)> {
    let with =
        |(id, arguments): &(&'static str, &str)| (*id, serde_json::from_str(arguments).unwrap());
    let without = PLAIN.iter().map(|id| (*id, serde_json::json!({})));
    WITH_ARGUMENTS.iter().map(with).chain(without).collect()
}

const WITH_ARGUMENTS: [(&str, &str); 19] = [
    ("count:conjunctions", r#"{"small_n": 2.0}"#),
    (
        "count:keywords_multiple",
        r#"{"keyword1": "a", "keyword2": "answer", "keyword3": ".", "keyword4": "9", "keyword5": "x"}"#,
    ),
    ("count:numbers", r#"{"N": 1.0}"#),
    ("count:person_names", r#"{"N": 3.0}"#),
    ("count:pronouns", r#"{"N": 7.0}"#),
    ("count:unique_word_count", r#"{"N": 55.0}"#),
    ("count:word_count_range", r#"{"min_words": 26.0, "max_words": 28.0}"#),
    ("count:words_japanese", r#"{"N": 5.0}"#),
    ("format:list", r#"{"sep": "-"}"#),
    ("format:options", r#"{"options": "yes/no/maybe"}"#),
    (
        "ratio:overlap",
        r#"{"percentage": 50.0, "reference_text": "The answer is 9, or is it not?"}"#,
    ),
    ("ratio:stop_words", r#"{"percentage": 47.0}"#),
    ("repeat:repeat_change", r#"{"prompt_to_repeat": "Say what the answer is."}"#),
    (
        "repeat:repeat_span",
        r#"{"n_start": 2, "n_end": 5, "prompt_to_repeat": "Say what the answer is."}"#,
    ),
    ("sentence:increment", r#"{"small_n": 2.0}"#),
    ("sentence:keyword", r#"{"N": 7.0, "word": "a"}"#),
    ("words:keywords_specific_position", r#"{"keyword": "a", "n": 1, "m": 2}"#),
    ("words:repeats", r#"{"small_n": 4.0}"#),
    ("words:words_position", r#"{"keyword": "a"}"#),
];

const PLAIN: [&str; 39] = [
    "count:punctuation",
    "custom:character_reverse",
    "custom:csv_city",
    "custom:csv_quotes",
    "custom:csv_special_character",
    "custom:date_format_list",
    "custom:european_capitals_sort",
    "custom:mcq_count_length",
    "custom:multiples",
    "custom:reverse_newline",
    "custom:sentence_alphabet",
    "custom:word_reverse",
    "format:emoji",
    "format:line_indent",
    "format:newline",
    "format:no_bullets_bullets",
    "format:no_whitespace",
    "format:output_template",
    "format:parentheses",
    "format:quote_unquote",
    "format:quotes",
    "format:sub-bullets",
    "format:thesis",
    "format:title_case",
    "ratio:sentence_balance",
    "ratio:sentence_type",
    "ratio:sentence_words",
    "repeat:repeat_simple",
    "sentence:alliteration_increment",
    "words:alphabet",
    "words:consonants",
    "words:last_first",
    "words:no_consecutive",
    "words:odd_even_syllables",
    "words:palindrome",
    "words:paragraph_last_first",
    "words:prime_lengths",
    "words:start_verb",
    "words:vowel",
];
