//! The interface of a model that continues token sequences: any [`Sampler`] with the texts of its tokens.
//!
//! Object-safe, so that one server can have models of different kinds.

use std::{fmt, future::Future, pin::Pin, sync::Arc};

use sampling::{OnToken, SampleError, SampleRequest, Sampled, Sampler};

/// The tokens of a vocabulary as text.
pub trait TokenText: Send + Sync + 'static {
    /// The bytes of a token; none where there is no such token.
    fn bytes(&self, token: u32) -> Vec<u8>;

    /// The tokens that end a response unless the client asks to ignore them.
    fn ends(&self) -> Vec<u32>;
}

/// A model that continues token sequences.
#[derive(Clone)]
pub struct TokenModel(Arc<dyn Backend>);

impl TokenModel {
    /// The model of a sampler and its vocabulary.
    pub fn new(sampler: impl Sampler, text: impl TokenText) -> Self {
        let ends = text.ends();
        Self(Arc::new(Pair { sampler, text, ends }))
    }

    pub(crate) fn context(&self) -> usize {
        self.0.context()
    }

    pub(crate) fn bytes(&self, token: u32) -> Vec<u8> {
        self.0.bytes(token)
    }

    pub(crate) fn ends(&self) -> &[u32] {
        self.0.ends()
    }

    pub(crate) async fn sample(
        &self,
        request: SampleRequest,
        on_token: OnToken,
    ) -> Result<Sampled, SampleError> {
        // The cache is left to the sampler: a later request may continue the sequence.
        self.0.sample(request, on_token).await
    }
}

impl fmt::Debug for TokenModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenModel").field("context", &self.context()).finish_non_exhaustive()
    }
}

type Sampling<'a> = Pin<Box<dyn Future<Output = Result<Sampled, SampleError>> + Send + 'a>>;

trait Backend: Send + Sync {
    fn context(&self) -> usize;
    fn bytes(&self, token: u32) -> Vec<u8>;
    fn ends(&self) -> &[u32];
    fn sample(&self, request: SampleRequest, on_token: OnToken) -> Sampling<'_>;
}

struct Pair<S, T> {
    sampler: S,
    text: T,
    ends: Vec<u32>,
}

impl<S: Sampler, T: TokenText> Backend for Pair<S, T> {
    fn context(&self) -> usize {
        self.sampler.context()
    }

    fn bytes(&self, token: u32) -> Vec<u8> {
        self.text.bytes(token)
    }

    fn ends(&self) -> &[u32] {
        &self.ends
    }

    fn sample(&self, request: SampleRequest, on_token: OnToken) -> Sampling<'_> {
        Box::pin(self.sampler.sample_with(request, on_token))
    }
}
