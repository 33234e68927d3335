//! The tokens of a text are those that llama.cpp makes with the same file.

use std::{path::Path, sync::OnceLock};

use lis_vocabulary::Vocabulary;
use llama_cpp_2::{
    llama_backend::LlamaBackend,
    model::{LlamaModel, params::LlamaModelParams},
};
use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};

use crate::support::{MODELS, TEXTS, file};

struct Both {
    theirs: LlamaModel,
    ours: Vocabulary,
}

impl Both {
    fn load(path: &Path) -> Self {
        static BACKEND: OnceLock<LlamaBackend> = OnceLock::new();
        let backend = BACKEND.get_or_init(|| {
            let mut backend = LlamaBackend::init().unwrap();
            backend.void_logs();
            backend
        });
        let params = LlamaModelParams::default().with_vocab_only(true);
        let theirs = LlamaModel::load_from_file(backend, path, &params).unwrap();
        Self { theirs, ours: Vocabulary::load(path).unwrap() }
    }

    fn differ(&self, text: &str) -> Option<String> {
        let theirs = self.theirs.vocab().tokenize(text.as_bytes(), false, true);
        let theirs: Vec<u32> = theirs.iter().map(|token| token.0.try_into().unwrap()).collect();
        let ours = self.ours.encode(text).unwrap();
        (ours != theirs).then(|| format!("{text:?}\n  ours   {ours:?}\n  theirs {theirs:?}"))
    }
}

#[test]
fn on_texts_that_tokenizers_stumble_over() {
    for variable in MODELS {
        let Some(path) = file(variable) else { continue };
        let both = Both::load(&path);
        let long = "a".repeat(3000) + &" ".repeat(3000) + &"é\n".repeat(1000) + &"7".repeat(1000);
        let texts = TEXTS.into_iter().chain([long.as_str()]);
        let wrong: Vec<String> = texts.filter_map(|text| both.differ(text)).collect();
        assert!(wrong.is_empty(), "{variable}:\n{}", wrong.join("\n"));
    }
}

#[test]
fn on_any_text() {
    // Scripts and signs that are older than llama.cpp's tables of Unicode.
    let old = "[\\u{a1}-\\u{377}\\u{400}-\\u{52f}\\u{905}-\\u{939}\\u{2010}-\\u{2027}\\u{3041}-\\u{3096}\\u{4e00}-\\u{9fa5}\\u{ac00}-\\u{d7a3}\\u{1f300}-\\u{1f64f}]{1,4}";
    let word = prop_oneof![
        4 => "[a-zA-Z]{1,12}",
        2 => "[ \t\n\r]{1,5}",
        2 => "[0-9]{1,6}",
        2 => "['’.,:;!?(){}<>|`$#_*-]{1,4}",
        1 => old,
        1 => prop::sample::select(vec!["<|im_start|>", "<|im_end|>", "'re", "\u{a0}", "```bash\n"])
            .prop_map(str::to_owned),
    ];
    let text = prop::collection::vec(word, 0..12).prop_map(|words| words.concat());
    for variable in MODELS {
        let Some(path) = file(variable) else { continue };
        let both = Both::load(&path);
        let mut runner =
            TestRunner::new(Config { cases: 400, failure_persistence: None, ..Config::default() });
        let outcome = runner.run(&text, |text| match both.differ(&text) {
            None => Ok(()),
            Some(why) => Err(TestCaseError::fail(why)),
        });
        outcome.unwrap();
    }
}
