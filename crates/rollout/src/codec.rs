//! Chat messages from and to tokens: the chat template renders messages as text, the vocabulary encodes text as tokens.
//!
//! Stateless: which tokens were sampled before is [`crate::token_stream`]'s business.

use std::path::Path;

use chat_template::{Guard, SPLIT, Template, TemplateError};
use model::ToolSpec;
use trajectory::{Assistant, Message};
use vocabulary::{Vocabulary, VocabularyError};

/// The codec of a model: its vocabulary and its chat template.
#[derive(Debug)]
pub struct ChatCodec {
    vocabulary: Vocabulary,
    template: Template,
    guard: Guard,
    marks: Vec<String>,
    closing: Option<u32>,
}

/// A model's vocabulary or chat template cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The vocabulary cannot be used.
    #[error("cannot use the vocabulary")]
    Vocabulary(#[from] VocabularyError),
    /// The chat template cannot be used.
    #[error("cannot use the chat template")]
    Template(#[from] TemplateError),
}

impl ChatCodec {
    /// Loads the codec of a model: a directory with `tokenizer.json`, or a GGUF file.
    pub fn load(path: &Path) -> Result<Self, CodecError> {
        Self::new(Vocabulary::load(path)?)
    }

    /// The codec with this vocabulary and its chat template.
    pub fn new(vocabulary: Vocabulary) -> Result<Self, CodecError> {
        let source = vocabulary.chat_template().map(str::to_owned);
        let template =
            Template::new(source, vocabulary.bos().to_owned(), vocabulary.eos().to_owned())?;
        let ends = vocabulary.end_of_turn().iter();
        let ends = ends.map(|id| String::from_utf8_lossy(vocabulary.bytes_of(*id)).into_owned());
        let mut marks: Vec<String> =
            vocabulary.added_tokens().map(|(_, text)| text.to_owned()).collect();
        marks.extend(ends);
        marks.retain(|mark| !mark.is_empty());
        let guard = Guard::new(marks.iter().cloned());
        let mut codec = Self { vocabulary, template, guard, marks, closing: None };
        codec.closing = codec.find_closing();
        Ok(codec)
    }

    /// The vocabulary.
    pub fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    /// The token that the template writes after a response, where that is one that ends turns.
    pub fn closing(&self) -> Option<u32> {
        self.closing
    }

    /// Renders a conversation up to where the next response begins.
    pub(crate) fn render(
        &self,
        messages: &[Message],
        tools: &[ToolSpec],
    ) -> Result<String, TemplateError> {
        self.template.render(messages, tools, &self.guard)
    }

    /// Encodes text at the start of a sequence.
    pub(crate) fn opening(&self, text: &str) -> Result<Vec<u32>, VocabularyError> {
        // Most templates write the first token themselves; a second one confuses models.
        let bos = self.vocabulary.bos();
        let first =
            self.vocabulary.bos_to_add().filter(|_| bos.is_empty() || !text.starts_with(bos));
        let mut tokens: Vec<u32> = first.into_iter().collect();
        tokens.extend(self.tokens(text)?);
        Ok(tokens)
    }

    /// Encodes text within a sequence. What the guard has split stays text.
    pub(crate) fn tokens(&self, text: &str) -> Result<Vec<u32>, VocabularyError> {
        let mut tokens = Vec::new();
        for piece in text.split(SPLIT).filter(|piece| !piece.is_empty()) {
            tokens.extend(self.vocabulary.encode(piece)?);
        }
        Ok(tokens)
    }

    /// A model's text as templates write it.
    pub(crate) fn guarded(&self, text: &str) -> String {
        self.guard.split(text)
    }

    /// Whether text starts with a control token, which cannot be part of a response.
    pub(crate) fn begins_with_mark(&self, text: &str) -> bool {
        self.marks.iter().any(|mark| text.starts_with(mark.as_str()))
    }

    fn find_closing(&self) -> Option<u32> {
        const RESPONSE: &str = "reply";
        let mut messages = vec![Message::user("question")];
        let before = self.render(&messages, &[]).ok()?;
        messages
            .push(Message::Assistant(Assistant { text: RESPONSE.into(), ..Assistant::default() }));
        messages.push(Message::user("question"));
        let whole = self.render(&messages, &[]).ok()?;
        let after = whole.strip_prefix(&before)?.strip_prefix(RESPONSE)?;
        let first = *self.tokens(after).ok()?.first()?;
        self.vocabulary.end_of_turn().contains(&first).then_some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_shows_what_ends_a_response() {
        let codec = ChatCodec::new(Vocabulary::bytes().unwrap()).unwrap();
        assert_eq!(codec.closing(), codec.vocabulary().id("<|im_end|>"));
    }

    #[test]
    fn marks_in_the_text_of_others_stay_text() {
        let codec = ChatCodec::new(Vocabulary::bytes().unwrap()).unwrap();
        let text = codec.render(&[Message::user("a<|im_end|>b")], &[]).unwrap();
        let tokens = codec.opening(&text).unwrap();
        let end = codec.closing().unwrap();
        assert_eq!(tokens.iter().filter(|token| **token == end).count(), 1);
        assert_eq!(codec.vocabulary().decode(&tokens), text.replace(SPLIT, ""));
    }
}
