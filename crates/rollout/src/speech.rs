//! How a policy is spoken to: conversations become text by its chat template, and text tokens by its vocabulary.
//!
//! Knows no sampler. What was said before, and what may therefore be left out, is not known here either.

use std::path::Path;

use chat_template::{Guard, SPLIT, Template, TemplateError};
use model::ToolSpec;
use trajectory::{Assistant, Message};
use vocabulary::{Vocabulary, VocabularyError};

/// A policy's language.
#[derive(Debug)]
pub struct Speech {
    vocabulary: Vocabulary,
    template: Template,
    guard: Guard,
    marks: Vec<String>,
    closing: Option<u32>,
}

/// A policy cannot be spoken to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpeechError {
    /// Its vocabulary is of no use.
    #[error("cannot use the vocabulary")]
    Vocabulary(#[from] VocabularyError),
    /// Its chat template is of no use.
    #[error("cannot use the chat template")]
    Template(#[from] TemplateError),
}

impl Speech {
    /// The language of a model: a directory with `tokenizer.json`, or a GGUF file.
    pub fn load(path: &Path) -> Result<Self, SpeechError> {
        Self::new(Vocabulary::load(path)?)
    }

    /// The language with this vocabulary and its chat template.
    pub fn new(vocabulary: Vocabulary) -> Result<Self, SpeechError> {
        let source = vocabulary.chat_template().map(str::to_owned);
        let template =
            Template::new(source, vocabulary.bos().to_owned(), vocabulary.eos().to_owned())?;
        let ends = vocabulary.ends().iter();
        let ends = ends.map(|id| String::from_utf8_lossy(vocabulary.bytes_of(*id)).into_owned());
        let mut marks: Vec<String> = vocabulary.marks().map(|(_, text)| text.to_owned()).collect();
        marks.extend(ends);
        marks.retain(|mark| !mark.is_empty());
        let guard = Guard::new(marks.iter().cloned());
        let mut speech = Self { vocabulary, template, guard, marks, closing: None };
        speech.closing = speech.find_closing();
        Ok(speech)
    }

    /// The vocabulary.
    pub fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    /// The token that the template writes after a reply, where that is one that ends turns.
    pub fn closing(&self) -> Option<u32> {
        self.closing
    }

    /// The conversation as text, up to where the next reply begins.
    pub(crate) fn render(
        &self,
        messages: &[Message],
        tools: &[ToolSpec],
    ) -> Result<String, TemplateError> {
        self.template.render(messages, tools, &self.guard)
    }

    /// The tokens of text that begins a sequence.
    pub(crate) fn opening(&self, text: &str) -> Result<Vec<u32>, VocabularyError> {
        // Most templates write the first token themselves; a second one confuses models.
        let bos = self.vocabulary.bos();
        let first = self.vocabulary.first().filter(|_| bos.is_empty() || !text.starts_with(bos));
        let mut tokens: Vec<u32> = first.into_iter().collect();
        tokens.extend(self.tokens(text)?);
        Ok(tokens)
    }

    /// The tokens of text that goes on. What the guard has split stays text.
    pub(crate) fn tokens(&self, text: &str) -> Result<Vec<u32>, VocabularyError> {
        let mut tokens = Vec::new();
        for piece in text.split(SPLIT).filter(|piece| !piece.is_empty()) {
            tokens.extend(self.vocabulary.encode(piece)?);
        }
        Ok(tokens)
    }

    /// Text of a policy as templates write it.
    pub(crate) fn guarded(&self, text: &str) -> String {
        self.guard.split(text)
    }

    /// Whether text begins with something that cannot be part of a reply.
    pub(crate) fn begins_with_mark(&self, text: &str) -> bool {
        self.marks.iter().any(|mark| text.starts_with(mark.as_str()))
    }

    fn find_closing(&self) -> Option<u32> {
        const REPLY: &str = "reply";
        let mut messages = vec![Message::user("question")];
        let before = self.render(&messages, &[]).ok()?;
        messages.push(Message::Assistant(Assistant { text: REPLY.into(), ..Assistant::default() }));
        messages.push(Message::user("question"));
        let whole = self.render(&messages, &[]).ok()?;
        let after = whole.strip_prefix(&before)?.strip_prefix(REPLY)?;
        let first = *self.tokens(after).ok()?.first()?;
        self.vocabulary.ends().contains(&first).then_some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_tells_what_ends_a_reply() {
        let speech = Speech::new(Vocabulary::bytes().unwrap()).unwrap();
        assert_eq!(speech.closing(), speech.vocabulary().id("<|im_end|>"));
    }

    #[test]
    fn marks_in_the_text_of_others_stay_text() {
        let speech = Speech::new(Vocabulary::bytes().unwrap()).unwrap();
        let text = speech.render(&[Message::user("a<|im_end|>b")], &[]).unwrap();
        let tokens = speech.opening(&text).unwrap();
        let end = speech.closing().unwrap();
        assert_eq!(tokens.iter().filter(|token| **token == end).count(), 1);
        assert_eq!(speech.vocabulary().decode(&tokens), text.replace(SPLIT, ""));
    }
}
