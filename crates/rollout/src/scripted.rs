//! A sampler with given responses: demonstrations take the same path as a policy's episodes.

use std::sync::{Arc, Mutex, PoisonError};

use crate::{SampleEnd, SampleError, SampleRequest, Sampled, Sampler, codec::ChatCodec};

/// Gives the responses one after the other, and from the first again in another conversation.
#[derive(Debug)]
pub(crate) struct ScriptedSampler {
    codec: Arc<ChatCodec>,
    responses: Vec<String>,
    /// The conversation, and the number of responses given in it.
    position: Mutex<(u64, usize)>,
}

impl ScriptedSampler {
    pub(crate) fn new(codec: Arc<ChatCodec>, responses: Vec<String>) -> Self {
        Self { codec, responses, position: Mutex::default() }
    }

    fn next(&self, conversation: u64) -> Option<&str> {
        let mut position = self.position.lock().unwrap_or_else(PoisonError::into_inner);
        let at = if position.0 == conversation { position.1 } else { 0 };
        *position = (conversation, at + 1);
        self.responses.get(at).map(String::as_str)
    }
}

impl Sampler for ScriptedSampler {
    fn context(&self) -> usize {
        usize::MAX
    }

    async fn sample(&self, request: SampleRequest) -> Result<Sampled, SampleError> {
        let response = self.next(request.conversation).ok_or(SampleError::Exhausted)?;
        let guarded = self.codec.guarded(response);
        let tokens = self.codec.tokens(&guarded);
        let mut tokens = tokens.map_err(|error| SampleError::Failed(Box::new(error)))?;
        tokens.extend(self.codec.closing());
        let end = match self.codec.closing() {
            Some(_) if tokens.len() <= request.max_tokens => SampleEnd::Token,
            _ => SampleEnd::Length,
        };
        tokens.truncate(request.max_tokens);
        let logprobs = vec![0.0; tokens.len()];
        Ok(Sampled { tokens, logprobs, versions: Vec::new(), end })
    }

    fn release(&self, _: u64) {}
}
