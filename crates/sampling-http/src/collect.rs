//! Checks a server's tokens one by one and decides where the sample ends.
//!
//! Tokens outlive a failed attempt: the next one continues the sequence where the last broke off. Knows no JSON.

use std::{collections::VecDeque, panic::AssertUnwindSafe};

use sampling::{Flow, SampleEnd, Sampled, Until};

/// A server's answer is not a sample of the request.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidResponse {
    /// It has no ids.
    #[error("it has no `{0}`; the server does not support `return_token_ids`")]
    NoIds(&'static str),
    /// It has no log-probabilities.
    #[error("it has no log-probabilities of the sampled tokens")]
    NoLogprobs,
    /// A field has an unexpected type or value.
    #[error("`{0}` has an unexpected type or value")]
    Field(&'static str),
    /// It has different numbers of tokens and log-probabilities.
    #[error("it has {tokens} tokens and {logprobs} log-probabilities")]
    Lengths {
        /// The number of tokens.
        tokens: usize,
        /// The number of log-probabilities.
        logprobs: usize,
    },
    /// A log-probability is none.
    #[error(
        "the log-probability of token {token} is {value}; are the server's weights damaged, or its log-probabilities logits?"
    )]
    Logprob {
        /// The token.
        token: u32,
        /// The log-probability; NaN where it is missing.
        value: f64,
    },
    /// A token is not in the vocabulary.
    #[error(
        "token {token} is not in the vocabulary of {vocabulary}; does the tokenizer belong to the server's model?"
    )]
    UnknownToken {
        /// The token.
        token: u64,
        /// The size of the vocabulary.
        vocabulary: usize,
    },
    /// The ids and those in the log-probabilities differ.
    #[error("its token {token} has the log-probability of {other:?}")]
    OtherToken {
        /// The token.
        token: u32,
        /// What the log-probability belongs to.
        other: String,
    },
    /// The server evaluated another prompt.
    #[error(
        "the server evaluated a prompt of {found} tokens that is not the one of {sent} that was sent"
    )]
    OtherPrompt {
        /// Tokens sent.
        sent: usize,
        /// Tokens evaluated.
        found: usize,
    },
    /// It ended with a token that does not end responses.
    #[error(
        "it ended with token {0}, which is not one of the requested ends; does the tokenizer belong to the server's model?"
    )]
    OtherEnd(u32),
    /// It ended before it began.
    #[error("it has no tokens")]
    Empty,
    /// It was cut off before the requested length, and the context has room.
    #[error(
        "it was cut off after {tokens} of {requested} tokens; does the server limit responses?"
    )]
    Short {
        /// Tokens received.
        tokens: usize,
        /// Tokens requested.
        requested: usize,
    },
    /// It has more tokens than requested.
    #[error("it has more than the requested {requested} tokens")]
    Long {
        /// Tokens requested.
        requested: usize,
    },
    /// The callback on tokens panicked.
    #[error("the callback on sampled tokens panicked")]
    Panicked,
}

/// Servers keep a few tokens of their context free.
const CONTEXT_SLACK: usize = 16;

/// Servers that decode several tokens at once may send a few more than requested.
const LENGTH_SLACK: usize = 16;

/// vLLM sends this for a probability of 0.
const LOG_OF_ZERO: f64 = -9999.0;

/// Rounding may lift a log-probability above 0 by this much.
const ROUNDING: f64 = 1e-3;

/// A sample in the making.
pub(crate) struct Collector {
    tokens: Vec<u32>,
    logprobs: Vec<f32>,
    /// Ids and log-probabilities that have no counterpart yet.
    ids: VecDeque<u32>,
    values: VecDeque<f64>,
    end: Option<SampleEnd>,
    limits: Limits,
    stop_tokens: Vec<u32>,
    until: Option<Until>,
}

/// The bounds of a sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Tokens of the prompt.
    pub(crate) prompt: usize,
    pub(crate) max_tokens: usize,
    pub(crate) context: usize,
    pub(crate) vocabulary: usize,
}

impl Collector {
    pub(crate) fn new(limits: Limits, stop_tokens: Vec<u32>, until: Option<Until>) -> Self {
        Self {
            tokens: Vec::new(),
            logprobs: Vec::new(),
            ids: VecDeque::new(),
            values: VecDeque::new(),
            end: None,
            limits,
            stop_tokens,
            until,
        }
    }

    /// The tokens so far.
    pub(crate) fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// How many tokens arrived so far, with or without their log-probability.
    pub(crate) fn received(&self) -> usize {
        self.tokens.len() + self.ids.len().max(self.values.len())
    }

    /// How many tokens are still requested.
    pub(crate) fn remaining(&self) -> usize {
        self.limits.max_tokens - self.tokens.len()
    }

    pub(crate) fn stop_tokens(&self) -> &[u32] {
        &self.stop_tokens
    }

    pub(crate) fn vocabulary(&self) -> usize {
        self.limits.vocabulary
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.end.is_some()
    }

    /// Forgets what a broken attempt left without a counterpart.
    pub(crate) fn restart(&mut self) {
        self.ids.clear();
        self.values.clear();
    }

    /// Takes ids and log-probabilities, each in order; servers may send one ahead of the other.
    pub(crate) fn push(
        &mut self,
        ids: impl IntoIterator<Item = u32>,
        values: impl IntoIterator<Item = f64>,
    ) -> Result<(), InvalidResponse> {
        self.ids.extend(ids);
        self.values.extend(values);
        while !self.is_ended()
            && let (Some(&token), Some(&value)) = (self.ids.front(), self.values.front())
        {
            self.ids.pop_front();
            self.values.pop_front();
            self.add(token, value)?;
        }
        if self.is_ended() {
            self.restart();
        }
        let requested = self.limits.max_tokens;
        match self.received() > requested.saturating_add(LENGTH_SLACK) {
            true => Err(InvalidResponse::Long { requested }),
            false => Ok(()),
        }
    }

    fn add(&mut self, token: u32, value: f64) -> Result<(), InvalidResponse> {
        let vocabulary = self.limits.vocabulary;
        if token as usize >= vocabulary {
            return Err(InvalidResponse::UnknownToken { token: token.into(), vocabulary });
        }
        // NaN fails both comparisons.
        if !(value > LOG_OF_ZERO && value <= ROUNDING) {
            return Err(InvalidResponse::Logprob { token, value });
        }
        self.tokens.push(token);
        self.logprobs.push(value.min(0.0) as f32);
        let stops = match &mut self.until {
            Some(until) => std::panic::catch_unwind(AssertUnwindSafe(|| until(token)))
                .map_err(|_| InvalidResponse::Panicked)?,
            None => Flow::Continue,
        };
        if self.stop_tokens.contains(&token) {
            self.end = Some(SampleEnd::Token);
        } else if stops == Flow::Stop {
            self.end = Some(SampleEnd::Until);
        } else if self.tokens.len() >= self.limits.max_tokens {
            self.end = Some(SampleEnd::Length);
        }
        Ok(())
    }

    /// The server ended the response by itself.
    pub(crate) fn finish(&mut self, finish: Finish) -> Result<(), InvalidResponse> {
        if self.is_ended() {
            return Ok(());
        }
        let (ids, values) = (self.ids.len(), self.values.len());
        if ids != values {
            let (tokens, logprobs) = (self.tokens.len() + ids, self.logprobs.len() + values);
            return Err(InvalidResponse::Lengths { tokens, logprobs });
        }
        let last = *self.tokens.last().ok_or(InvalidResponse::Empty)?;
        let used = self.limits.prompt + self.tokens.len();
        match finish {
            Finish::Stop => Err(InvalidResponse::OtherEnd(last)),
            Finish::Length if used + CONTEXT_SLACK >= self.limits.context => {
                self.end = Some(SampleEnd::Length);
                Ok(())
            }
            Finish::Length => Err(InvalidResponse::Short {
                tokens: self.tokens.len(),
                requested: self.limits.max_tokens,
            }),
        }
    }

    /// The sample, once it has ended.
    pub(crate) fn take(&mut self) -> Option<Sampled> {
        let end = self.end?;
        let (tokens, logprobs) =
            (std::mem::take(&mut self.tokens), std::mem::take(&mut self.logprobs));
        Some(Sampled { tokens, logprobs, versions: Vec::new(), end })
    }
}

/// Why a server ended a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finish {
    /// A token that ends responses.
    Stop,
    /// The number of tokens.
    Length,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collector(max_tokens: usize) -> Collector {
        let limits = Limits { prompt: 10, max_tokens, context: 100, vocabulary: 50 };
        Collector::new(limits, vec![7], None)
    }

    #[test]
    fn a_sample_ends_with_its_stop_token_whatever_follows() {
        let mut sample = collector(9);
        sample.push([1, 2, 7, 3], [-0.5, -0.25, -1.0, -1.0]).unwrap();
        let sampled = sample.take().unwrap();
        assert_eq!(sampled.tokens, [1, 2, 7]);
        assert_eq!(sampled.logprobs, [-0.5, -0.25, -1.0]);
        assert_eq!(sampled.end, SampleEnd::Token);
    }

    #[test]
    fn ids_and_logprobs_may_arrive_apart() {
        let mut sample = collector(2);
        sample.push([1], []).unwrap();
        sample.push([], [-0.5, -0.25]).unwrap();
        assert!(!sample.is_ended());
        sample.push([2], []).unwrap();
        assert_eq!(sample.take().unwrap().end, SampleEnd::Length);
    }

    #[test]
    fn the_callback_ends_a_sample_and_sees_each_token_once() {
        let (seen, sent) = std::sync::mpsc::channel();
        let until: Until = Box::new(move |token| {
            seen.send(token).unwrap();
            if token == 2 { Flow::Stop } else { Flow::Continue }
        });
        let limits = Limits { prompt: 1, max_tokens: 9, context: 100, vocabulary: 50 };
        let mut sample = Collector::new(limits, vec![7], Some(until));
        sample.push([1], [-0.5]).unwrap();
        sample.restart();
        sample.push([2, 3], [-0.5, -0.5]).unwrap();
        assert_eq!(sample.take().unwrap().end, SampleEnd::Until);
        assert_eq!(sent.try_iter().collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn a_callback_that_panics_is_an_error() {
        let limits = Limits { prompt: 1, max_tokens: 9, context: 100, vocabulary: 50 };
        let mut sample = Collector::new(limits, vec![], Some(Box::new(|_| panic!("no"))));
        assert_eq!(sample.push([1], [-0.5]), Err(InvalidResponse::Panicked));
    }

    #[test]
    fn what_cannot_be_a_sample_is_refused() {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -9999.0, 3.5] {
            let refused = collector(9).push([1], [value]).unwrap_err();
            assert!(matches!(refused, InvalidResponse::Logprob { token: 1, .. }), "{value}");
        }
        let unknown = InvalidResponse::UnknownToken { token: 50, vocabulary: 50 };
        assert_eq!(collector(9).push([50], [-1.0]), Err(unknown));
        assert_eq!(collector(9).finish(Finish::Stop), Err(InvalidResponse::Empty));
        let with = |ids: &[u32], values: &[f64], finish| {
            let mut sample = collector(9);
            sample.push(ids.iter().copied(), values.iter().copied()).unwrap();
            sample.finish(finish)
        };
        let lengths = InvalidResponse::Lengths { tokens: 2, logprobs: 1 };
        assert_eq!(with(&[1, 2], &[-1.0], Finish::Stop), Err(lengths));
        assert_eq!(with(&[1], &[-1.0], Finish::Stop), Err(InvalidResponse::OtherEnd(1)));
        let short = InvalidResponse::Short { tokens: 1, requested: 9 };
        assert_eq!(with(&[1], &[-1.0], Finish::Length), Err(short));
    }

    #[test]
    fn ids_without_logprobs_do_not_pile_up() {
        let long = InvalidResponse::Long { requested: 9 };
        assert_eq!(collector(9).push([1; 26], []), Err(long.clone()));
        assert_eq!(collector(9).push([], [-0.5; 26]), Err(long));
        assert_eq!(collector(9).push([1; 25], []), Ok(()));
        // What follows the end is dropped.
        assert_eq!(collector(9).push([1; 99], [-0.5; 99]), Ok(()));
    }

    #[test]
    fn a_full_context_ends_a_sample() {
        let limits = Limits { prompt: 90, max_tokens: 9, context: 100, vocabulary: 50 };
        let mut sample = Collector::new(limits, vec![7], None);
        sample.push([1], [-0.5]).unwrap();
        sample.finish(Finish::Length).unwrap();
        assert_eq!(sample.take().unwrap().end, SampleEnd::Length);
    }

    #[test]
    fn rounding_above_zero_is_zero() {
        let mut sample = collector(1);
        sample.push([1], [1e-6]).unwrap();
        assert_eq!(sample.take().unwrap().logprobs, [0.0]);
    }
}
