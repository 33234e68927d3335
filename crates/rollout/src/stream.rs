//! The tokens of one episode as they grow: what it is told is appended, what it sampled is kept as it was sampled.
//!
//! A conversation that no longer begins with what was said so far starts a new segment. Knows no sampler and no agent.

use vocabulary::VocabularyError;

use crate::{SampleEnd, Sampled, Segment, speech::Speech};

/// The tokens of an episode.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// What the segment consists of, as text.
    pieces: Vec<Piece>,
    segment: Segment,
    done: Vec<Segment>,
    /// Replies so far, in all segments.
    replies: u64,
}

#[derive(Debug)]
struct Piece {
    text: String,
    by: By,
}

#[derive(Debug)]
enum By {
    /// Templates and the environment.
    Others,
    /// The policy. It may have written the mark that ends its turn.
    Policy { end: String },
}

impl Stream {
    /// Takes up the conversation as it is now: the new part of it where it goes on, all of it where it does not.
    pub(crate) fn hear(&mut self, speech: &Speech, text: &str) -> Result<(), VocabularyError> {
        let (new, tokens) = match self.rest(speech, text) {
            Some(rest) => (rest, speech.tokens(rest)?),
            None => {
                let tokens = speech.opening(text)?;
                self.close();
                (text, tokens)
            }
        };
        self.pieces.push(Piece { text: new.to_owned(), by: By::Others });
        self.segment.logprobs.extend(tokens.iter().map(|_| 0.0));
        self.segment.sampled.extend(tokens.iter().map(|_| false));
        self.segment.tokens.extend(tokens);
        Ok(())
    }

    /// Adds a reply, and gives its text without the token that ends it.
    pub(crate) fn say(&mut self, speech: &Speech, sampled: &Sampled) -> String {
        let vocabulary = speech.vocabulary();
        let (said, end) = match (sampled.end, sampled.tokens.split_last()) {
            (SampleEnd::Token, Some((end, said))) => (said, vocabulary.decode(&[*end])),
            _ => (sampled.tokens.as_slice(), String::new()),
        };
        let said = vocabulary.decode(said);
        self.pieces.push(Piece { text: speech.guarded(&said), by: By::Policy { end } });
        self.segment.tokens.extend_from_slice(&sampled.tokens);
        self.segment.logprobs.extend_from_slice(&sampled.logprobs);
        self.segment.sampled.extend(sampled.tokens.iter().map(|_| true));
        self.replies += 1;
        said
    }

    /// The sequence to be continued.
    pub(crate) fn tokens(&self) -> &[u32] {
        &self.segment.tokens
    }

    /// How many replies there are.
    pub(crate) fn replies(&self) -> u64 {
        self.replies
    }

    /// All segments with a reply in them. What was heard after the last reply led to nothing, and is left out.
    pub(crate) fn finish(&mut self) -> Vec<Segment> {
        self.close();
        std::mem::take(&mut self.done)
    }

    fn close(&mut self) {
        self.pieces.clear();
        let mut segment = std::mem::take(&mut self.segment);
        let Some(last) = segment.sampled.iter().rposition(|sampled| *sampled) else { return };
        segment.tokens.truncate(last + 1);
        segment.sampled.truncate(last + 1);
        segment.logprobs.truncate(last + 1);
        self.done.push(segment);
    }

    /// What is new in the text; none where it does not begin with all that was said.
    fn rest<'t>(&self, speech: &Speech, text: &'t str) -> Option<&'t str> {
        if self.pieces.is_empty() {
            return None;
        }
        self.pieces.iter().try_fold(text, |rest, piece| match &piece.by {
            By::Others => rest.strip_prefix(piece.text.as_str()),
            By::Policy { end } => behind(speech, &piece.text, end, rest),
        })
    }
}

/// The text behind a reply. Templates and agents may drop the blanks around it: the policy still sees what it wrote.
fn behind<'t>(speech: &Speech, said: &str, end: &str, text: &'t str) -> Option<&'t str> {
    let without = |said: &str| text.strip_prefix(said)?.strip_prefix(end);
    without(said).or_else(|| {
        let trimmed = [said.trim_end(), said.trim_start(), said.trim()];
        let rest = trimmed.into_iter().find_map(without)?;
        (!end.is_empty() || speech.begins_with_mark(rest)).then_some(rest)
    })
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
