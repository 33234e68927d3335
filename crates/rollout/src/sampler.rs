//! Who continues token sequences: the trait, what it is asked and what it answers.
//!
//! Knows no network and no text. Whether the tokens come from a GPU or from a script is behind the trait.

use std::{future::Future, sync::Arc};

/// Continues token sequences, many at a time.
pub trait Sampler: Send + Sync + 'static {
    /// The most tokens of a sequence, reply included.
    fn context(&self) -> usize;

    /// The continuation of a sequence. A caller that drops the future wants it no more.
    fn sample(&self, ask: Ask) -> impl Future<Output = Result<Sampled, SampleError>> + Send;

    /// Nobody asks about this conversation again: what is remembered of it may go.
    fn forget(&self, conversation: u64);
}

impl<S: Sampler> Sampler for Arc<S> {
    fn context(&self) -> usize {
        S::context(self)
    }

    async fn sample(&self, ask: Ask) -> Result<Sampled, SampleError> {
        S::sample(self, ask).await
    }

    fn forget(&self, conversation: u64) {
        S::forget(self, conversation);
    }
}

/// One question to a sampler.
pub struct Ask {
    /// Which conversation it belongs to. What extends the remembered sequence of that conversation costs only its new
    /// part.
    pub conversation: u64,
    /// The whole sequence so far.
    pub tokens: Arc<[u32]>,
    /// The most tokens to add; at least 1.
    pub most: usize,
    /// How they are chosen.
    pub choice: Choice,
    /// Tokens that end the reply.
    pub ends: Vec<u32>,
    /// Hears every token that is added, in order, and may end the reply after it.
    pub until: Option<Until>,
}

/// Hears the tokens of a reply and says whether it goes on.
pub type Until = Box<dyn FnMut(u32) -> Flow + Send>;

/// Whether a reply goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// It does.
    Continue,
    /// It ends after this token.
    Stop,
}

/// How tokens are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// Randomness; 0 always takes the likeliest token.
    pub temperature: f64,
    /// Only the likeliest tokens that together have this probability.
    pub top_p: f64,
    /// Only this many of the likeliest tokens.
    pub top_k: Option<usize>,
    /// The same seed and the same sequence give the same tokens.
    pub seed: u64,
}

/// What a sampler added.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampled {
    /// The tokens, one that ends the reply included.
    pub tokens: Vec<u32>,
    /// The log-probability of each at the temperature asked for (at 1 where that is 0), before `top_p` and `top_k`.
    pub logprobs: Vec<f32>,
    /// Why there are no more.
    pub end: SampleEnd,
}

/// Why a continuation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleEnd {
    /// Its last token is one of [`Ask::ends`].
    Token,
    /// [`Ask::until`] said so.
    Until,
    /// There were to be no more.
    Length,
}

/// A sequence cannot be continued.
#[derive(Debug, thiserror::Error)]
pub enum SampleError {
    /// It has no room for a reply.
    #[error("the sequence has {tokens} tokens, and the context is {context}")]
    TooLong {
        /// What it has.
        tokens: usize,
        /// What there is.
        context: usize,
    },
    /// The sampler failed.
    #[error("the sampler failed")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The sampler has said all it has to say, and would have no more another time.
    #[error("there are no more replies")]
    Over,
}
