//! The local model as a sampler: token ids in, token ids with their log-probabilities out. Renders and tokenizes nothing.

use llama_cpp_2::token::LlamaToken;
use sampling::{Flow, OnToken, SampleEnd, SampleError, SampleRequest, Sampled, Sampler, Until};
use tokio::sync::mpsc;
use trajectory::Stop;

use crate::{
    LocalModel,
    engine::{Job, Output, Wanted},
    slots::Fingerprint,
};

impl LocalModel {
    /// The size of the vocabulary.
    pub fn vocabulary(&self) -> usize {
        usize::try_from(self.shared.prompts.model.n_vocab()).unwrap_or_default()
    }

    /// The bytes of a token; none where there is no such token.
    pub fn token_bytes(&self, token: u32) -> Vec<u8> {
        match i32::try_from(token) {
            Ok(id) if (token as usize) < self.vocabulary() => {
                self.shared.prompts.model.vocab().token_to_piece(LlamaToken(id), true, None)
            }
            _ => Vec::new(),
        }
    }

    /// The tokens that end a response.
    pub fn end_tokens(&self) -> Vec<u32> {
        let vocabulary = self.shared.prompts.model.vocab();
        let ends = vocabulary.tokens().filter(|token| vocabulary.is_eog(*token));
        ends.filter_map(|token| u32::try_from(token.0).ok()).collect()
    }

    fn check(&self, request: &SampleRequest) -> Result<u64, SampleError> {
        let (tokens, context) = (request.tokens.len(), Sampler::context(self));
        if tokens == 0 {
            return Err(SampleError::Empty);
        }
        if tokens >= context {
            return Err(SampleError::TooLong { tokens, context });
        }
        let vocabulary = self.vocabulary();
        if let Some(&token) = request.tokens.iter().find(|token| **token as usize >= vocabulary) {
            let vocabulary = i64::try_from(vocabulary).unwrap_or(i64::MAX);
            return Err(SampleError::UnknownToken { token, vocabulary });
        }
        let sampling::SamplingParams { temperature, top_p, top_k, .. } = request.params;
        let valid = [
            (
                "the temperature",
                temperature,
                temperature == 0.0 || (0.001..=100.0).contains(&temperature),
            ),
            ("top_p", top_p, top_p > 0.0 && top_p <= 1.0),
            ("top_k", 0.0, top_k != Some(0)),
            ("the number of tokens to add", 0.0, request.max_tokens > 0),
        ];
        if let Some((name, value, _)) = valid.into_iter().find(|(.., valid)| !valid) {
            return Err(SampleError::InvalidParameter { name, value });
        }
        Ok(request.max_tokens.min(context - tokens) as u64)
    }
}

impl Sampler for LocalModel {
    fn context(&self) -> usize {
        LocalModel::context(self) as usize
    }

    async fn sample(&self, request: SampleRequest) -> Result<Sampled, SampleError> {
        self.sample_with(request, Box::new(|_, _| {})).await
    }

    async fn sample_with(
        &self,
        request: SampleRequest,
        mut on_token: OnToken,
    ) -> Result<Sampled, SampleError> {
        let max_tokens = self.check(&request)?;
        let SampleRequest { tokens, params, stop_tokens, mut until, .. } = request;
        let id = |token: &u32| i32::try_from(*token).ok().map(LlamaToken);
        let (output, mut outputs) = mpsc::unbounded_channel();
        let job = Job {
            prompt: tokens.iter().filter_map(id).collect(),
            fingerprint: Fingerprint::default(),
            max_tokens,
            wanted: Wanted::Tokens { params, stop: stop_tokens },
            output,
        };
        self.shared.engine.submit(job).map_err(|_| SampleError::Stopped)?;
        let mut sampled = Sampled {
            tokens: Vec::new(),
            logprobs: Vec::new(),
            versions: Vec::new(),
            end: SampleEnd::Length,
        };
        while let Some(output) = outputs.recv().await {
            match output {
                Output::Token(token, logprob) => {
                    sampled.tokens.push(token);
                    sampled.logprobs.push(logprob);
                    on_token(token, logprob);
                    if call(&mut until, token)? == Flow::Stop {
                        // The engine ends the response once its receiver is gone.
                        sampled.end = SampleEnd::Until;
                        return Ok(sampled);
                    }
                }
                Output::Done(stop, _) => {
                    if stop == Stop::End {
                        sampled.end = SampleEnd::Token;
                    }
                    return Ok(sampled);
                }
                Output::Failed(why) => return Err(SampleError::Failed(why.into())),
                // Only where text was requested.
                Output::Text(_) => {}
            }
        }
        Err(SampleError::Stopped)
    }

    /// The cache is reused by whatever continues it, and given to others in order of use.
    fn release(&self, _conversation: u64) {}
}

fn call(until: &mut Option<Until>, token: u32) -> Result<Flow, SampleError> {
    let Some(until) = until else { return Ok(Flow::Continue) };
    let called = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| until(token)));
    called.map_err(|_| SampleError::Panicked)
}
