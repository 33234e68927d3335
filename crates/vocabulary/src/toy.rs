//! The smallest vocabulary there is: bytes, and the marks of a conversation.

use serde_json::json;

use crate::{
    Vocabulary, VocabularyError, alphabet,
    directory::about_files,
    vocabulary::About,
    written::{self, Mark, MarkKind, Parts, Whole},
};

const MARKS: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];

/// How conversations are written without a model's own template.
const TEMPLATE: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n\
    {{ message.content }}<|im_end|>\n{% endfor %}{{ '<|im_start|>assistant\n' }}";

pub(crate) fn bytes() -> Result<Vocabulary, VocabularyError> {
    let letters = (0..=u8::MAX).map(|byte| alphabet::letter(byte).to_string());
    let tokens: Vec<String> = letters.chain(MARKS.map(str::to_owned)).collect();
    let marks = (256..).zip(MARKS).map(|(id, _)| Mark { id, kind: MarkKind::Control }).collect();
    let cut = json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false,
    });
    let parts = Parts { tokens: &tokens, merges: &[], cut, whole: Whole::Merged, marks };
    let about = About {
        eos: Some("<|im_end|>".into()),
        chat_template: Some(TEMPLATE.into()),
        ..About::default()
    };
    let mut files = vec![("tokenizer.json", written::write(&parts)?)];
    files.extend(about_files(&about, &[258, 256]));
    Vocabulary::new(about, files)
}
