//! The tokens of one episode as it grows: the environment's text is encoded and appended, sampled tokens are kept as they
//! were sampled.
//!
//! A conversation that no longer starts with the text so far starts a new segment. Knows no sampler and no agent.

use vocabulary::VocabularyError;

use crate::{SampleEnd, Sampled, Segment, codec::ChatCodec};

/// The tokens of an episode.
#[derive(Debug, Default)]
pub(crate) struct TokenStream {
    /// The text of the current segment.
    pieces: Vec<Piece>,
    segment: Segment,
    finished: Vec<Segment>,
    /// Responses so far, in all segments.
    responses: u64,
}

#[derive(Debug)]
struct Piece {
    text: String,
    origin: Origin,
}

#[derive(Debug)]
enum Origin {
    /// The template or the environment.
    Environment,
    /// The policy. It may have written the token that ends its turn.
    Policy { end: String },
}

impl TokenStream {
    /// Appends the rendered conversation: its new part where it extends the text so far, else all of it as a new segment.
    pub(crate) fn extend(&mut self, codec: &ChatCodec, text: &str) -> Result<(), VocabularyError> {
        let (new, tokens) = match self.rest(codec, text) {
            Some(rest) => (rest, codec.tokens(rest)?),
            None => {
                let tokens = codec.opening(text)?;
                self.close();
                (text, tokens)
            }
        };
        self.pieces.push(Piece { text: new.to_owned(), origin: Origin::Environment });
        self.segment.logprobs.extend(tokens.iter().map(|_| 0.0));
        self.segment.sampled.extend(tokens.iter().map(|_| false));
        self.segment.versions.extend(tokens.iter().map(|_| 0));
        self.segment.tokens.extend(tokens);
        Ok(())
    }

    /// Appends a response, and returns its text without the token that ends it.
    pub(crate) fn push_response(&mut self, codec: &ChatCodec, sampled: &Sampled) -> String {
        let vocabulary = codec.vocabulary();
        let (tokens, end) = match (sampled.end, sampled.tokens.split_last()) {
            (SampleEnd::Token, Some((end, tokens))) => (tokens, vocabulary.decode(&[*end])),
            _ => (sampled.tokens.as_slice(), String::new()),
        };
        let text = vocabulary.decode(tokens);
        self.pieces.push(Piece { text: codec.guarded(&text), origin: Origin::Policy { end } });
        self.segment.tokens.extend_from_slice(&sampled.tokens);
        self.segment.logprobs.extend_from_slice(&sampled.logprobs);
        self.segment.sampled.extend(sampled.tokens.iter().map(|_| true));
        self.segment.versions.extend_from_slice(&sampled.versions);
        // A sampler whose weights never change has no versions.
        self.segment.versions.resize(self.segment.tokens.len(), 0);
        self.responses += 1;
        text
    }

    /// The sequence to be continued.
    pub(crate) fn tokens(&self) -> &[u32] {
        &self.segment.tokens
    }

    /// The number of responses.
    pub(crate) fn responses(&self) -> u64 {
        self.responses
    }

    /// Takes all segments with a response. Text after the last response led to nothing and is left out.
    pub(crate) fn finish(&mut self) -> Vec<Segment> {
        self.close();
        std::mem::take(&mut self.finished)
    }

    fn close(&mut self) {
        self.pieces.clear();
        let mut segment = std::mem::take(&mut self.segment);
        let Some(last) = segment.sampled.iter().rposition(|sampled| *sampled) else { return };
        segment.tokens.truncate(last + 1);
        segment.sampled.truncate(last + 1);
        segment.logprobs.truncate(last + 1);
        segment.versions.truncate(last + 1);
        self.finished.push(segment);
    }

    /// The new part of the text; none where it does not start with the text so far.
    fn rest<'t>(&self, codec: &ChatCodec, text: &'t str) -> Option<&'t str> {
        if self.pieces.is_empty() {
            return None;
        }
        self.pieces.iter().try_fold(text, |rest, piece| match &piece.origin {
            Origin::Environment => rest.strip_prefix(piece.text.as_str()),
            Origin::Policy { end } => after_response(codec, &piece.text, end, rest),
        })
    }
}

/// The text after a response. Templates and agents may trim the response: the policy still sees what it wrote.
fn after_response<'t>(
    codec: &ChatCodec,
    response: &str,
    end: &str,
    text: &'t str,
) -> Option<&'t str> {
    let without = |response: &str| text.strip_prefix(response)?.strip_prefix(end);
    without(response).or_else(|| {
        let trimmed = [response.trim_end(), response.trim_start(), response.trim()];
        let rest = trimmed.into_iter().find_map(without)?;
        (!end.is_empty() || codec.begins_with_mark(rest)).then_some(rest)
    })
}

#[cfg(test)]
#[path = "token_stream_tests.rs"]
mod tests;
