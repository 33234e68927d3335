//! Files without a vocabulary, or with a malformed one, are refused with a reason.

use std::{fs, path::Path};

use gguf::{Array, Value};
use lis_vocabulary::{Vocabulary, VocabularyError};

fn refusal(path: &Path) -> String {
    let error = Vocabulary::load(path).unwrap_err();
    let source = std::error::Error::source(&error);
    format!("{error}: {}", source.map(ToString::to_string).unwrap_or_default())
}

#[test]
fn missing_files_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    assert!(refusal(dir.path()).contains("no tokenizer.json"));
    assert!(refusal(&dir.path().join("none.gguf")).contains("not a GGUF file"));
    let text = dir.path().join("a.gguf");
    fs::write(&text, "not a model at all, but long enough to hold a header").unwrap();
    assert!(matches!(Vocabulary::load(&text), Err(VocabularyError::Gguf { .. })));
}

#[test]
fn broken_files_of_the_hub_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    for broken in [
        "",
        "{",
        "null",
        "[]",
        r#"{"model":{"type":"BPE"},"decoder":{"type":"ByteLevel"}}"#,
        r#"{"model":{"type":"BPE","vocab":{},"merges":[]},"decoder":{"type":"ByteLevel"}}"#,
        r#"{"model":{"type":"BPE","vocab":{"a":4000000000},"merges":[]},"decoder":{"type":"ByteLevel"}}"#,
        r#"{"model":{"type":"BPE","vocab":{"a":0},"merges":["a b"]},"decoder":{"type":"ByteLevel"}}"#,
        r#"{"model":{"type":"BPE","vocab":{"a":0},"merges":[]},"decoder":{"type":"ByteLevel"}}"#,
        r#"{"model":{"type":"WordPiece","vocab":{"a":0}},"decoder":{"type":"ByteLevel"}}"#,
    ] {
        write("tokenizer.json", broken);
        assert!(!refusal(dir.path()).is_empty(), "{broken}");
    }
    Vocabulary::bytes().unwrap().save(dir.path()).unwrap();
    write("tokenizer_config.json", "{\"eos_token\": 3}");
    assert!(refusal(dir.path()).contains("tokenizer_config.json"));
    write("tokenizer_config.json", "{}");
    write("generation_config.json", "{\"eos_token_id\": 4000000000}");
    assert_eq!(Vocabulary::load(dir.path()).unwrap().end_of_turn(), [258, 256]);
}

fn gguf_with(metadata: &[(&str, Value)]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    let metadata: Vec<(String, Value)> =
        metadata.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
    gguf::write(&mut fs::File::create(&path).unwrap(), &metadata, &[]).unwrap();
    refusal(&path)
}

#[test]
fn broken_vocabularies_in_gguf_files_are_refused() {
    let texts = |texts: &[&str]| {
        Value::Array(Array::String(texts.iter().map(|text| (*text).to_owned()).collect()))
    };
    let kind = ("tokenizer.ggml.model", Value::from("gpt2"));
    let tokens = ("tokenizer.ggml.tokens", texts(&["a", "b", "<|im_end|>"]));
    let merges = ("tokenizer.ggml.merges", texts(&[]));
    assert!(gguf_with(&[]).contains("gpt2"));
    assert!(gguf_with(&[("tokenizer.ggml.model", Value::from("llama"))]).contains("llama"));
    assert!(gguf_with(std::slice::from_ref(&kind)).contains("tokenizer.ggml.tokens"));
    assert!(gguf_with(&[kind.clone(), tokens.clone()]).contains("tokenizer.ggml.merges"));
    let alike = ("tokenizer.ggml.tokens", texts(&["a", "a"]));
    assert!(gguf_with(&[kind.clone(), alike, merges.clone()]).contains("are the same"));
    let cut = ("tokenizer.ggml.pre", Value::from("unheard-of"));
    let all = [kind.clone(), tokens.clone(), merges.clone(), cut];
    assert!(gguf_with(&all).contains("unheard-of"));
    let bad = ("tokenizer.ggml.merges", texts(&["x y"]));
    assert!(!gguf_with(&[kind.clone(), tokens.clone(), bad]).is_empty());
    let cut = ("tokenizer.ggml.pre", Value::from("gpt-2"));
    let refused = gguf_with(&[kind, tokens, merges, cut]);
    assert!(refused.contains("ends a turn"), "{refused}");
}
