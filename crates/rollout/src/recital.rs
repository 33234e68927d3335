//! A sampler that says what it is given: demonstrations take the way that a policy's episodes take.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{Ask, SampleEnd, SampleError, Sampled, Sampler, speech::Speech};

/// Says given replies, one after the other.
#[derive(Debug)]
pub(crate) struct Recital {
    speech: Arc<Speech>,
    replies: Mutex<VecDeque<String>>,
}

impl Recital {
    pub(crate) fn new(speech: Arc<Speech>, replies: Vec<String>) -> Self {
        Self { speech, replies: Mutex::new(replies.into()) }
    }
}

impl Sampler for Recital {
    fn context(&self) -> usize {
        usize::MAX
    }

    async fn sample(&self, ask: Ask) -> Result<Sampled, SampleError> {
        let next = self.replies.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let reply = next.ok_or_else(|| SampleError::Failed("there are no more replies".into()))?;
        let guarded = self.speech.guarded(&reply);
        let tokens = self.speech.tokens(&guarded);
        let mut tokens = tokens.map_err(|error| SampleError::Failed(Box::new(error)))?;
        tokens.extend(self.speech.closing());
        let end = match self.speech.closing() {
            Some(_) if tokens.len() <= ask.most => SampleEnd::Token,
            _ => SampleEnd::Length,
        };
        tokens.truncate(ask.most);
        let logprobs = vec![0.0; tokens.len()];
        Ok(Sampled { tokens, logprobs, end })
    }

    fn forget(&self, _: u64) {}
}
