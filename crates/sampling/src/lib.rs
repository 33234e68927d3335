//! The interface of a token sampler: the trait [`Sampler`], its request, its result and its errors.
//!
//! The implementation (`policy::Engine`, or a script in a test) and the caller (`rollout`) know only this crate, not
//! each other. Start reading at [`Sampler`].
//!
//! ```
//! use lis_sampling::{SampleEnd, SampleError, SampleRequest, Sampled, Sampler, SamplingParams};
//!
//! /// Always answers with token 7.
//! struct Constant;
//!
//! impl Sampler for Constant {
//!     fn context(&self) -> usize {
//!         1024
//!     }
//!
//!     async fn sample(&self, request: SampleRequest) -> Result<Sampled, SampleError> {
//!         let tokens = vec![7; request.max_tokens];
//!         let logprobs = vec![0.0; tokens.len()];
//!         Ok(Sampled { tokens, logprobs, versions: Vec::new(), end: SampleEnd::Length })
//!     }
//!
//!     fn release(&self, _conversation: u64) {}
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), SampleError> {
//! let request = SampleRequest {
//!     conversation: 1,
//!     tokens: [1, 2, 3].into(),
//!     max_tokens: 2,
//!     params: SamplingParams { temperature: 1.0, top_p: 1.0, top_k: None, seed: 0 },
//!     stop_tokens: Vec::new(),
//!     until: None,
//! };
//! assert_eq!(Constant.sample(request).await?.tokens, [7, 7]);
//! # Ok(())
//! # }
//! ```

use std::{error::Error, future::Future, sync::Arc};

/// Continues token sequences, many concurrently.
pub trait Sampler: Send + Sync + 'static {
    /// The maximum number of tokens of a sequence, prompt and response together.
    fn context(&self) -> usize;

    /// Samples a continuation of a sequence. Dropping the future cancels the request.
    fn sample(
        &self,
        request: SampleRequest,
    ) -> impl Future<Output = Result<Sampled, SampleError>> + Send;

    /// Like [`Self::sample`], and calls `on_token` with every token and its log-probability: as they are sampled where the
    /// sampler can, otherwise all at the end.
    fn sample_with(
        &self,
        request: SampleRequest,
        mut on_token: OnToken,
    ) -> impl Future<Output = Result<Sampled, SampleError>> + Send {
        async move {
            let sampled = self.sample(request).await?;
            let pairs = sampled.tokens.iter().zip(&sampled.logprobs);
            pairs.for_each(|(token, logprob)| on_token(*token, *logprob));
            Ok(sampled)
        }
    }

    /// Frees what is cached for a conversation. A later request of the same conversation is still served.
    fn release(&self, conversation: u64);

    /// Whether another process samples, whose delays and failures say nothing about the policy.
    fn is_remote(&self) -> bool {
        false
    }
}

impl<S: Sampler> Sampler for Arc<S> {
    fn context(&self) -> usize {
        S::context(self)
    }

    async fn sample(&self, request: SampleRequest) -> Result<Sampled, SampleError> {
        S::sample(self, request).await
    }

    async fn sample_with(
        &self,
        request: SampleRequest,
        on_token: OnToken,
    ) -> Result<Sampled, SampleError> {
        S::sample_with(self, request, on_token).await
    }

    fn release(&self, conversation: u64) {
        S::release(self, conversation);
    }

    fn is_remote(&self) -> bool {
        S::is_remote(self)
    }
}

/// A request to continue one sequence.
pub struct SampleRequest {
    /// The conversation it belongs to. A sequence that extends the cached one of its conversation costs only its new
    /// part. Requests of one conversation are served one after the other.
    pub conversation: u64,
    /// The whole sequence so far; not empty.
    pub tokens: Arc<[u32]>,
    /// The maximum number of tokens to add; at least 1. The context may allow fewer.
    pub max_tokens: usize,
    /// How tokens are drawn.
    pub params: SamplingParams,
    /// Tokens that end the response.
    pub stop_tokens: Vec<u32>,
    /// Called with every added token, in order; may end the response after it.
    pub until: Option<Until>,
}

/// Callback on the tokens of a response. It may run on the sampler's own thread, where all responses wait for it.
pub type Until = Box<dyn FnMut(u32) -> Flow + Send>;

/// Receives tokens with their log-probabilities. It may run on the sampler's own thread, where all responses wait for it.
pub type OnToken = Box<dyn FnMut(u32, f32) + Send>;

/// Whether a response continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Continues.
    Continue,
    /// Ends after this token.
    Stop,
}

/// How tokens are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingParams {
    /// Divides the logits; 0 always takes the most likely token. Otherwise from 0.001 to 100.
    pub temperature: f64,
    /// Nucleus sampling: only the most likely tokens that together have this probability; 1 disables it.
    pub top_p: f64,
    /// Only this many of the most likely tokens; `None` disables it.
    pub top_k: Option<usize>,
    /// The same seed and the same sequence give the same tokens, independent of concurrent requests (on a GPU up to
    /// rounding).
    pub seed: u64,
}

/// A sampled continuation.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampled {
    /// The added tokens, including a stop token.
    pub tokens: Vec<u32>,
    /// The log-probability of each token at the requested temperature (at 1 where that is 0), before `top_p` and
    /// `top_k`.
    pub logprobs: Vec<f32>,
    /// The version of the weights that sampled each token: the number of updates since the sampler started. Empty where
    /// weights never change.
    pub versions: Vec<u32>,
    /// Why the continuation ended.
    pub end: SampleEnd,
}

/// Why a continuation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleEnd {
    /// Its last token is one of [`SampleRequest::stop_tokens`].
    Token,
    /// [`SampleRequest::until`] returned [`Flow::Stop`].
    Until,
    /// The maximum number of tokens was reached, or the context is full.
    Length,
}

/// A sequence cannot be continued.
#[derive(Debug, thiserror::Error)]
pub enum SampleError {
    /// The sequence is empty.
    #[error("the sequence has no tokens")]
    Empty,
    /// The sequence leaves no room for a response.
    #[error("the sequence has {tokens} tokens, and the context is {context}")]
    TooLong {
        /// Tokens of the sequence.
        tokens: usize,
        /// Tokens that fit.
        context: usize,
    },
    /// A token id is outside the vocabulary.
    #[error("there is no token {token} in a vocabulary of {vocabulary}")]
    UnknownToken {
        /// The token id.
        token: u32,
        /// The size of the vocabulary.
        vocabulary: i64,
    },
    /// A parameter of the request is out of range.
    #[error("{name} cannot be {value}")]
    InvalidParameter {
        /// The parameter.
        name: &'static str,
        /// Its value.
        value: f64,
    },
    /// The network's logits are NaN or infinite.
    #[error("the network's logits are not finite; did its weights diverge?")]
    NotFinite,
    /// The callback [`SampleRequest::until`] panicked.
    #[error("the callback on sampled tokens panicked")]
    Panicked,
    /// The sampler failed for a reason of its own.
    #[error("the sampler failed")]
    Failed(#[source] Box<dyn Error + Send + Sync>),
    /// The sampler was shut down.
    #[error("the sampler has stopped")]
    Stopped,
    /// A scripted sampler has no further responses; a retry fails as well.
    #[error("there are no more scripted responses")]
    Exhausted,
}
