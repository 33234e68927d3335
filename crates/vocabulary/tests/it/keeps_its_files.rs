//! A vocabulary is written as the model hub keeps them, and read again as the same.

use serde_json::{Value, json};
use vocabulary::Vocabulary;

use crate::support::{MODELS, TEXTS, file};

fn same_again(vocabulary: &Vocabulary) {
    let dir = tempfile::tempdir().unwrap();
    vocabulary.save(dir.path()).unwrap();
    let again = Vocabulary::load(dir.path()).unwrap();
    assert_eq!(again.size(), vocabulary.size());
    assert_eq!(again.ends(), vocabulary.ends());
    assert_eq!(again.chat_template(), vocabulary.chat_template());
    assert_eq!((again.bos(), again.eos()), (vocabulary.bos(), vocabulary.eos()));
    assert_eq!(again.first(), vocabulary.first());
    assert!(again.marks().eq(vocabulary.marks()));
    for text in TEXTS {
        assert_eq!(again.encode(text).unwrap(), vocabulary.encode(text).unwrap(), "{text:?}");
    }
}

#[test]
fn what_is_written_is_read_again() {
    same_again(&Vocabulary::bytes().unwrap());
    for variable in MODELS {
        let Some(path) = file(variable) else { continue };
        same_again(&Vocabulary::load(&path).unwrap());
    }
}

#[test]
fn all_ways_to_name_ends_and_templates_are_understood() {
    let dir = tempfile::tempdir().unwrap();
    Vocabulary::bytes().unwrap().save(dir.path()).unwrap();
    let write = |name: &str, value: Value| std::fs::write(dir.path().join(name), value.to_string());
    write(
        "tokenizer_config.json",
        json!({
            "eos_token": {"content": "<|endoftext|>", "lstrip": false},
            "bos_token": "<|im_start|>",
            "add_bos_token": true,
            "chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}],
        }),
    )
    .unwrap();
    write("generation_config.json", json!({"eos_token_id": 65})).unwrap();
    let vocabulary = Vocabulary::load(dir.path()).unwrap();
    assert_eq!(vocabulary.ends(), [256, 65, 258]);
    assert_eq!(vocabulary.first(), Some(257));
    assert_eq!(vocabulary.chat_template(), Some("d"));
    std::fs::write(dir.path().join("chat_template.jinja"), "j").unwrap();
    assert_eq!(Vocabulary::load(dir.path()).unwrap().chat_template(), Some("j"));
}
