//! A vocabulary is saved in the format of the model hub, and loads again as the same.

use lis_vocabulary::Vocabulary;
use serde_json::{Value, json};

use crate::support::{MODELS, TEXTS, file};

fn same_again(vocabulary: &Vocabulary) {
    let dir = tempfile::tempdir().unwrap();
    vocabulary.save(dir.path()).unwrap();
    let again = Vocabulary::load(dir.path()).unwrap();
    assert_eq!(again.size(), vocabulary.size());
    assert_eq!(again.end_of_turn(), vocabulary.end_of_turn());
    assert_eq!(again.chat_template(), vocabulary.chat_template());
    assert_eq!((again.bos(), again.eos()), (vocabulary.bos(), vocabulary.eos()));
    assert_eq!(again.bos_to_add(), vocabulary.bos_to_add());
    assert!(again.added_tokens().eq(vocabulary.added_tokens()));
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
fn all_forms_of_eos_tokens_and_templates_are_read() {
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
    assert_eq!(vocabulary.end_of_turn(), [256, 65, 258]);
    assert_eq!(vocabulary.bos_to_add(), Some(257));
    assert_eq!(vocabulary.chat_template(), Some("d"));
    std::fs::write(dir.path().join("chat_template.jinja"), "j").unwrap();
    assert_eq!(Vocabulary::load(dir.path()).unwrap().chat_template(), Some("j"));
}
