//! The vocabulary itself: what its tokens stand for, which of them are marks, and text in tokens.
//!
//! Where it comes from is others' business.

use std::{fmt, path::Path};

use tokenizers::Tokenizer;

use crate::{Decoder, VocabularyError, alphabet::Letters, directory, from_gguf, toy, written};

/// No vocabulary has more tokens.
pub(crate) const MOST_TOKENS: usize = 1 << 22;

/// So many bytes are made into tokens at once.
const MOST_AT_ONCE: usize = 64 << 10;

/// Control tokens that end a turn, whatever else a model's files say.
const ENDS: [&str; 8] = [
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|end|>",
    "<end_of_turn>",
    "</s>",
];

/// The vocabulary of a model.
pub struct Vocabulary {
    tokenizer: Tokenizer,
    /// What each token stands for, by its id.
    words: Vec<Box<[u8]>>,
    /// Tokens that are written in text as such: their ids and texts.
    marks: Vec<(u32, String)>,
    about: About,
    /// The files it is written as.
    files: Vec<(&'static str, String)>,
}

/// What the files of a model say about its vocabulary, besides its tokens.
#[derive(Clone, Debug, Default)]
pub(crate) struct About {
    /// The text of the first token.
    pub(crate) bos: Option<String>,
    /// The text of the last one.
    pub(crate) eos: Option<String>,
    /// Ids of tokens that end a turn.
    pub(crate) ends: Vec<u32>,
    /// Whether sequences begin with the first token even where a template does not write it.
    pub(crate) begins: Begins,
    pub(crate) chat_template: Option<String>,
}

/// How sequences begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Begins {
    #[default]
    Anyhow,
    WithBos,
}

impl fmt::Debug for Vocabulary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { words, marks, about, .. } = self;
        let (tokens, marks) = (words.len(), marks.len());
        f.debug_struct("Vocabulary")
            .field("tokens", &tokens)
            .field("marks", &marks)
            .field("ends", &about.ends)
            .finish_non_exhaustive()
    }
}

impl Vocabulary {
    /// The vocabulary of a model: a directory with `tokenizer.json`, or a GGUF file.
    pub fn load(path: &Path) -> Result<Self, VocabularyError> {
        if path.is_dir() { directory::load(path) } else { from_gguf::load(path) }
    }

    /// One token for each byte, and `<|endoftext|>`, `<|im_start|>` and `<|im_end|>`, in this order: 259 tokens. For
    /// tests and for models so small that nothing else fits them.
    pub fn bytes() -> Result<Self, VocabularyError> {
        toy::bytes()
    }

    /// Puts a vocabulary together. `files` are kept to be written again; the first is `tokenizer.json`.
    pub(crate) fn new(
        mut about: About,
        files: Vec<(&'static str, String)>,
    ) -> Result<Self, VocabularyError> {
        let json = files.first().map_or("", |(_, text)| text.as_str());
        written::check(json)?;
        let mut tokenizer = Tokenizer::from_bytes(json).map_err(VocabularyError::Refused)?;
        tokenizer.with_truncation(None).map_err(VocabularyError::Refused)?;
        tokenizer.with_padding(None);
        let mut marks: Vec<(u32, String)> = tokenizer
            .get_added_tokens_decoder()
            .into_iter()
            .map(|(id, token)| (id, token.content.to_string()))
            .collect();
        marks.sort_unstable();
        let words = words(&tokenizer, &marks)?;
        let known = |name: &str| marks.iter().find(|(_, text)| text == name).map(|(id, _)| *id);
        let eos = about.eos.as_deref().and_then(|eos| tokenizer.token_to_id(eos));
        let usual = ENDS.iter().filter_map(|name| known(name));
        let said = std::mem::take(&mut about.ends);
        for id in eos.into_iter().chain(said).chain(usual) {
            if (id as usize) < words.len() && !about.ends.contains(&id) {
                about.ends.push(id);
            }
        }
        if about.ends.is_empty() {
            return Err(VocabularyError::Malformed(
                "no token ends a turn: neither eos_token nor any of the usual ones is there".into(),
            ));
        }
        Ok(Self { tokenizer, words, marks, about, files })
    }

    /// How many tokens there are. The rows of a model's matrices may be more.
    pub fn size(&self) -> usize {
        self.words.len()
    }

    /// The tokens of a text. Marks written in it become the tokens they are: text of others is guarded before.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, VocabularyError> {
        let mut ids = Vec::new();
        for piece in pieces(text) {
            let encoding =
                self.tokenizer.encode_fast(piece, false).map_err(VocabularyError::Refused)?;
            ids.extend_from_slice(encoding.get_ids());
        }
        Ok(ids)
    }

    /// The text of tokens, marks included. Bytes that are no text are replaced.
    pub fn decode(&self, ids: &[u32]) -> String {
        let mut decoder = Decoder::default();
        let mut text: String = ids.iter().map(|id| decoder.push(self.bytes_of(*id))).collect();
        text.push_str(&decoder.finish());
        text
    }

    /// What a token stands for; nothing where there is no such token.
    pub fn bytes_of(&self, id: u32) -> &[u8] {
        self.words.get(id as usize).map_or(&[][..], |word| word)
    }

    /// The token that is written like this, mark or not.
    pub fn id(&self, text: &str) -> Option<u32> {
        self.tokenizer.token_to_id(text)
    }

    /// Tokens that are written in text as such, with their texts.
    pub fn marks(&self) -> impl Iterator<Item = (u32, &str)> {
        self.marks.iter().map(|(id, text)| (*id, text.as_str()))
    }

    /// Tokens that end a turn; the model's own first.
    pub fn ends(&self) -> &[u32] {
        &self.about.ends
    }

    /// The text of the first token; may be empty.
    pub fn bos(&self) -> &str {
        self.about.bos.as_deref().unwrap_or_default()
    }

    /// The text of the last token; may be empty.
    pub fn eos(&self) -> &str {
        self.about.eos.as_deref().unwrap_or_default()
    }

    /// The token every sequence begins with, where the text of the sequence does not begin with it anyway.
    pub fn first(&self) -> Option<u32> {
        match self.about.begins {
            Begins::WithBos => self.about.bos.as_deref().and_then(|bos| self.id(bos)),
            Begins::Anyhow => None,
        }
    }

    /// The template for conversations, where the model has one.
    pub fn chat_template(&self) -> Option<&str> {
        self.about.chat_template.as_deref()
    }

    /// Writes it as the files of the model hub, into a directory that exists.
    pub fn save(&self, dir: &Path) -> Result<(), VocabularyError> {
        for (name, text) in &self.files {
            let path = dir.join(name);
            std::fs::write(&path, text)
                .map_err(|source| VocabularyError::Write { path, source })?;
        }
        Ok(())
    }
}

/// What each token stands for.
fn words(
    tokenizer: &Tokenizer,
    marks: &[(u32, String)],
) -> Result<Vec<Box<[u8]>>, VocabularyError> {
    let letters = Letters::new();
    let vocabulary = tokenizer.get_vocab(false);
    let ids = vocabulary.values().copied().chain(marks.iter().map(|(id, _)| *id));
    let size = ids.max().map_or(0, |id| id as usize + 1);
    if size == 0 || size > MOST_TOKENS {
        let why = format!("it has {size} tokens; from 1 to {MOST_TOKENS} are possible");
        return Err(VocabularyError::Malformed(why));
    }
    let mut words = vec![Box::default(); size];
    for (token, id) in &vocabulary {
        if let Some(word) = words.get_mut(*id as usize) {
            *word = letters.bytes(token).into_boxed_slice();
        }
    }
    for (id, text) in marks {
        if let Some(word) = words.get_mut(*id as usize) {
            *word = text.as_bytes().into();
        }
    }
    Ok(words)
}

/// The text in parts, cut before a blank or a mark where there is one: what takes long is bounded. Where it is cut
/// depends on what stands before alone, so that a longer text still begins with the same tokens.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text).filter(|text| !text.is_empty());
    std::iter::from_fn(move || {
        let text = rest?;
        if text.len() <= MOST_AT_ONCE {
            return rest.take();
        }
        let end = text.floor_char_boundary(MOST_AT_ONCE);
        let half = text.floor_char_boundary(MOST_AT_ONCE / 2);
        let blank = text.get(half..end)?.rfind([' ', '\n', '<']);
        let (piece, after) = text.split_at(blank.map_or(end, |at| half + at));
        rest = Some(after);
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_before_blanks_and_nothing_is_lost() {
        for word in ["word ", "é", "x", "<tag>", "a b\n"] {
            let text = word.repeat(300_000 / word.len());
            let parts: Vec<_> = pieces(&text).collect();
            assert_eq!(parts.concat(), text);
            assert!(parts.iter().all(|part| part.len() <= MOST_AT_ONCE && !part.is_empty()));
            let longer = text.clone() + "and more";
            let again: Vec<_> = pieces(&longer).take(parts.len() - 1).collect();
            assert_eq!(parts[..parts.len() - 1], again);
        }
        assert_eq!(pieces("").count(), 0);
        assert_eq!(pieces("short").collect::<Vec<_>>(), ["short"]);
    }
}
