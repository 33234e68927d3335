//! Sentences, tokens, tags and syllables against the original libraries: our own small file, and the larger shared ones
//! where they exist.

use std::{fs, path::Path};

use proptest::prelude::*;
use serde_json::Value;

use super::{
    chars::is_space,
    csv,
    punkt::sentences,
    syllables,
    tagger::tags,
    treebank::{first_words, words},
};

fn rows(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The rows of a shared file; prints a skip and returns `None` where it is missing.
fn shared(name: &str) -> Vec<Value> {
    // The directory it was built in may belong to another checkout.
    let crate_dir = variable("CARGO_MANIFEST_DIR").unwrap_or(env!("CARGO_MANIFEST_DIR").into());
    let folder = variable("LIS_SHARED").unwrap_or_else(|| format!("{crate_dir}/../../../shared"));
    match fs::read_to_string(Path::new(&folder).join("cases/nlp").join(name)) {
        Ok(text) => rows(&text),
        Err(_) => {
            let required = variable("LIS_REQUIRE").unwrap_or_default();
            assert!(
                !required.split(',').any(|name| name.trim() == "shared"),
                "LIS_REQUIRE names shared"
            );
            println!("skip: no shared/cases/nlp/{name} beside the workspace");
            Vec::new()
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "tests are told by the environment what must work")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn texts(row: &Value, name: &str) -> Vec<String> {
    row[name].as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

fn agree(rows: &[Value], names: [&str; 3]) {
    for row in rows {
        let text = row["text"].as_str().unwrap();
        let tokens = words(text);
        assert_eq!(sentences(text), texts(row, names[0]), "{text:?}");
        assert_eq!(tokens, texts(row, names[1]), "{text:?}");
        assert_eq!(tags(&tokens, usize::MAX), texts(row, names[2]), "{text:?}");
    }
}

#[test]
fn fresh_texts() {
    let rows = rows(include_str!("../../tests/data/tokens.jsonl"));
    assert!(rows.len() >= 100);
    agree(&rows, ["sentences", "tokens", "tags"]);
}

#[test]
fn shared_texts() {
    agree(&shared("nlp_oracle.jsonl"), ["sent_tokenize", "word_tokenize", "pos_tags"]);
}

#[test]
fn shared_syllables() {
    for row in shared("syllables_oracle.jsonl") {
        let word = row["w"].as_str().unwrap();
        assert_eq!(syllables::count(word), row["n"].as_u64().unwrap() as usize, "{word:?}");
    }
}

fn any_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        3 => prop::sample::select(vec![
            ".", "?", "!", "...", ". . .", "--", "'", "\"", "''", "`", ")", "”", " ", "\n", "\u{1c}", "\u{85}", "Dr.", "J.",
            "12.", "e.g.", "can't", "cannot", "wanna ", " 'tis", "He", "the", ",", ":", "*", "\r",
        ]).prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
        1 => "[ -~]{0,6}",
    ];
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn sentences_lie_in_the_text_in_order(text in any_text()) {
        let mut rest = text.as_str();
        for sentence in sentences(&text) {
            prop_assert!(!sentence.is_empty());
            let at = rest.find(sentence);
            prop_assert!(at.is_some(), "{sentence:?} in {rest:?}");
            rest = &rest[at.unwrap_or_default() + sentence.len()..];
        }
    }

    #[test]
    fn tokens_hold_no_space_and_have_tags(text in any_text()) {
        let tokens = words(&text);
        prop_assert!(tokens.iter().all(|token| !token.is_empty() && !token.contains(is_space)));
        prop_assert_eq!(tags(&tokens, usize::MAX).len(), tokens.len());
        prop_assert_eq!(first_words(&text, 2), &tokens[..tokens.len().min(2)]);
    }

    #[test]
    fn tables_are_read_or_refused(text in any_text()) {
        if let Ok(rows) = csv::rows(&text, ',') {
            prop_assert!(rows.len() <= text.split('\n').count());
        }
    }
}
