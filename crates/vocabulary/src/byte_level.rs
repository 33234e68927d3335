//! The smallest vocabulary: bytes and the control tokens of ChatML.

use serde_json::json;

use crate::{
    Vocabulary, VocabularyError, byte_alphabet,
    directory::companion_files,
    tokenizer_json::{self, AddedToken, AddedTokenKind, Parts, WordLookup},
    vocabulary::TokenizerInfo,
};

const CONTROL_TOKENS: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];

/// The chat template, ChatML.
const TEMPLATE: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n\
    {{ message.content }}<|im_end|>\n{% endfor %}{{ '<|im_start|>assistant\n' }}";

pub(crate) fn bytes() -> Result<Vocabulary, VocabularyError> {
    let letters = (0..=u8::MAX).map(|byte| byte_alphabet::letter(byte).to_string());
    let tokens: Vec<String> = letters.chain(CONTROL_TOKENS.map(str::to_owned)).collect();
    let added_tokens = (256..)
        .zip(CONTROL_TOKENS)
        .map(|(id, _)| AddedToken { id, kind: AddedTokenKind::Control })
        .collect();
    let pre_tokenizer = json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false,
    });
    let word_lookup = WordLookup::Merged;
    let parts = Parts { tokens: &tokens, merges: &[], pre_tokenizer, word_lookup, added_tokens };
    let info = TokenizerInfo {
        eos: Some("<|im_end|>".into()),
        chat_template: Some(TEMPLATE.into()),
        ..TokenizerInfo::default()
    };
    let mut files = vec![("tokenizer.json", tokenizer_json::write(&parts)?)];
    files.extend(companion_files(&info, &[258, 256]));
    Vocabulary::new(info, files)
}
