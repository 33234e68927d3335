//! A sampler that says what it is given: demonstrations take the way that a policy's episodes take.

use std::sync::{Arc, Mutex, PoisonError};

use crate::{Ask, SampleEnd, SampleError, Sampled, Sampler, speech::Speech};

/// Says given replies, one after the other, and in another conversation from the first again.
#[derive(Debug)]
pub(crate) struct Recital {
    speech: Arc<Speech>,
    replies: Vec<String>,
    /// The conversation, and how many replies it has heard.
    said: Mutex<(u64, usize)>,
}

impl Recital {
    pub(crate) fn new(speech: Arc<Speech>, replies: Vec<String>) -> Self {
        Self { speech, replies, said: Mutex::default() }
    }

    fn next(&self, conversation: u64) -> Option<&str> {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let at = if said.0 == conversation { said.1 } else { 0 };
        *said = (conversation, at + 1);
        self.replies.get(at).map(String::as_str)
    }
}

impl Sampler for Recital {
    fn context(&self) -> usize {
        usize::MAX
    }

    async fn sample(&self, ask: Ask) -> Result<Sampled, SampleError> {
        let reply = self.next(ask.conversation).ok_or(SampleError::Over)?;
        let guarded = self.speech.guarded(reply);
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
