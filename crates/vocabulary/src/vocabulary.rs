//! The vocabulary: the bytes of its tokens, its control tokens, and text as tokens.
//!
//! Loading it is in `directory` and `from_gguf`.

use std::{fmt, path::Path};

use tokenizers::Tokenizer;

use crate::{
    Decoder, VocabularyError, byte_alphabet::ByteAlphabet, byte_level, directory, from_gguf,
    tokenizer_json,
};

/// The most tokens of a vocabulary.
pub(crate) const MAX_TOKENS: usize = 1 << 22;

/// Control tokens that end a turn, besides those that a model's files declare.
const END_OF_TURN: [&str; 8] = [
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|end|>",
    "<end_of_turn>",
    "</s>",
];

/// The tokenizer of a model.
pub struct Vocabulary {
    tokenizer: Tokenizer,
    /// The bytes of each token, by its id.
    token_bytes: Vec<Box<[u8]>>,
    /// Tokens that are matched in text before anything else, control tokens above all: their ids and texts.
    added_tokens: Vec<(u32, String)>,
    info: TokenizerInfo,
    /// The files that [`Vocabulary::save`] writes.
    files: Vec<(&'static str, String)>,
}

/// What a model's files declare besides the tokens.
#[derive(Clone, Debug, Default)]
pub(crate) struct TokenizerInfo {
    /// The text of the token that begins a sequence.
    pub(crate) bos: Option<String>,
    /// The text of the token that ends a sequence.
    pub(crate) eos: Option<String>,
    /// Ids of tokens that end a turn.
    pub(crate) end_of_turn: Vec<u32>,
    /// Whether sequences begin with `bos` even where the template does not write it.
    pub(crate) bos_policy: BosPolicy,
    pub(crate) chat_template: Option<String>,
}

/// Whether the tokenizer adds the token that begins a sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum BosPolicy {
    #[default]
    FromText,
    Add,
}

impl fmt::Debug for Vocabulary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vocabulary")
            .field("tokens", &self.token_bytes.len())
            .field("added_tokens", &self.added_tokens.len())
            .field("end_of_turn", &self.info.end_of_turn)
            .finish_non_exhaustive()
    }
}

impl Vocabulary {
    /// Loads the vocabulary of a model: a directory with `tokenizer.json`, or a GGUF file.
    pub fn load(path: &Path) -> Result<Self, VocabularyError> {
        if path.is_dir() { directory::load(path) } else { from_gguf::load(path) }
    }

    /// One token for each byte, and `<|endoftext|>`, `<|im_start|>` and `<|im_end|>`, in this order: 259 tokens. For
    /// tests and for tiny models.
    pub fn bytes() -> Result<Self, VocabularyError> {
        byte_level::bytes()
    }

    /// Builds a vocabulary. `files` are those to save; the first is `tokenizer.json`.
    pub(crate) fn new(
        mut info: TokenizerInfo,
        files: Vec<(&'static str, String)>,
    ) -> Result<Self, VocabularyError> {
        let json = files.first().map_or("", |(_, text)| text.as_str());
        tokenizer_json::check(json)?;
        let mut tokenizer = Tokenizer::from_bytes(json).map_err(VocabularyError::Refused)?;
        tokenizer.with_truncation(None).map_err(VocabularyError::Refused)?;
        tokenizer.with_padding(None);
        let mut added_tokens: Vec<(u32, String)> = tokenizer
            .get_added_tokens_decoder()
            .into_iter()
            .map(|(id, token)| (id, token.content.to_string()))
            .collect();
        added_tokens.sort_unstable();
        let token_bytes = token_bytes(&tokenizer, &added_tokens)?;
        let id = |name: &str| added_tokens.iter().find(|(_, text)| text == name).map(|(id, _)| *id);
        let eos = info.eos.as_deref().and_then(|eos| tokenizer.token_to_id(eos));
        let usual = END_OF_TURN.iter().filter_map(|name| id(name));
        let declared = std::mem::take(&mut info.end_of_turn);
        for id in eos.into_iter().chain(declared).chain(usual) {
            if (id as usize) < token_bytes.len() && !info.end_of_turn.contains(&id) {
                info.end_of_turn.push(id);
            }
        }
        if info.end_of_turn.is_empty() {
            return Err(VocabularyError::Malformed(
                "no token ends a turn: there is neither an eos_token nor any of the usual tokens"
                    .into(),
            ));
        }
        Ok(Self { tokenizer, token_bytes, added_tokens, info, files })
    }

    /// The number of tokens. A model's embedding matrix may have more rows.
    pub fn size(&self) -> usize {
        self.token_bytes.len()
    }

    /// Encodes a text. Control tokens written in it become control tokens: guard untrusted text before (`Guard` in
    /// `chat-template`).
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, VocabularyError> {
        let mut ids = Vec::new();
        for chunk in gguf::tokenizer_chunks(text) {
            let encoding =
                self.tokenizer.encode_fast(chunk, false).map_err(VocabularyError::Refused)?;
            ids.extend_from_slice(encoding.get_ids());
        }
        Ok(ids)
    }

    /// Decodes tokens, control tokens included. Invalid UTF-8 is replaced.
    pub fn decode(&self, ids: &[u32]) -> String {
        let mut decoder = Decoder::default();
        let mut text: String = ids.iter().map(|id| decoder.push(self.bytes_of(*id))).collect();
        text.push_str(&decoder.finish());
        text
    }

    /// The bytes of a token; empty for an unknown id.
    pub fn bytes_of(&self, id: u32) -> &[u8] {
        self.token_bytes.get(id as usize).map_or(&[][..], |bytes| bytes)
    }

    /// The id of the token with this text.
    pub fn id(&self, text: &str) -> Option<u32> {
        self.tokenizer.token_to_id(text)
    }

    /// The ids and texts of tokens that are matched in text before anything else, control tokens above all.
    pub fn added_tokens(&self) -> impl Iterator<Item = (u32, &str)> {
        self.added_tokens.iter().map(|(id, text)| (*id, text.as_str()))
    }

    /// The ids of tokens that end a turn, the declared ones first; never empty.
    pub fn end_of_turn(&self) -> &[u32] {
        &self.info.end_of_turn
    }

    /// The text of the token that begins a sequence; empty if there is none.
    pub fn bos(&self) -> &str {
        self.info.bos.as_deref().unwrap_or_default()
    }

    /// The text of the token that ends a sequence; empty if there is none.
    pub fn eos(&self) -> &str {
        self.info.eos.as_deref().unwrap_or_default()
    }

    /// The id of the token to put before every sequence whose text does not begin with it.
    pub fn bos_to_add(&self) -> Option<u32> {
        match self.info.bos_policy {
            BosPolicy::Add => self.info.bos.as_deref().and_then(|bos| self.id(bos)),
            BosPolicy::FromText => None,
        }
    }

    /// The text of the chat template, if the model has one.
    pub fn chat_template(&self) -> Option<&str> {
        self.info.chat_template.as_deref()
    }

    /// Writes the files of the model hub into an existing directory.
    pub fn save(&self, dir: &Path) -> Result<(), VocabularyError> {
        for (name, text) in &self.files {
            let path = dir.join(name);
            atomic_file::write(&path, text)
                .map_err(|source| VocabularyError::Write { path, source })?;
        }
        Ok(())
    }
}

/// The bytes of each token, by its id.
fn token_bytes(
    tokenizer: &Tokenizer,
    added_tokens: &[(u32, String)],
) -> Result<Vec<Box<[u8]>>, VocabularyError> {
    let alphabet = ByteAlphabet::new();
    let vocabulary = tokenizer.get_vocab(false);
    let ids = vocabulary.values().copied().chain(added_tokens.iter().map(|(id, _)| *id));
    let size = ids.max().map_or(0, |id| id as usize + 1);
    if size == 0 || size > MAX_TOKENS {
        let why = format!("it has {size} tokens, not 1 to {MAX_TOKENS}");
        return Err(VocabularyError::Malformed(why));
    }
    let mut all = vec![Box::default(); size];
    for (token, id) in &vocabulary {
        if let Some(bytes) = all.get_mut(*id as usize) {
            *bytes = alphabet.bytes(token).into_boxed_slice();
        }
    }
    for (id, text) in added_tokens {
        if let Some(bytes) = all.get_mut(*id as usize) {
            *bytes = text.as_bytes().into();
        }
    }
    Ok(all)
}
