//! A policy as the model of one episode: the agent sees messages, and the tokens are kept as they were sampled.
//!
//! Knows neither sandboxes nor rewards.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use chat_template::TemplateError;
use model::{
    Delta, Error, Listener, Model, Overflow, Request, Response, ToolFormat,
    think::{self, Piece, Splitter},
};
use trajectory::{Assistant, Stop, Usage, error_chain};

use crate::{
    ChatCodec, SampleEnd, SampleError, SampleRequest, Sampled, Sampler, SamplingParams, Segment,
    early_stop::{self, ResponseStart},
    seed,
    token_stream::TokenStream,
};

/// An upper bound of the mean bytes per token.
pub(crate) const MAX_TOKEN_BYTES: usize = 32;

/// Requests with room for fewer tokens are not made: a response cut off so early is useless.
const MIN_ROOM: usize = 64;

/// A policy in one episode. [`Self::segments`] takes its tokens at the end.
pub struct PolicyModel<S: Sampler> {
    name: String,
    sampler: Arc<S>,
    codec: Arc<ChatCodec>,
    params: SamplingParams,
    format: ToolFormat,
    conversation: u64,
    stream: Mutex<TokenStream>,
    released: AtomicBool,
    /// Whether a response is being sampled. Stays set where the episode ends meanwhile.
    sampling: AtomicBool,
}

impl<S: Sampler> fmt::Debug for PolicyModel<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, params, format, conversation, .. } = self;
        f.debug_struct("PolicyModel")
            .field("name", name)
            .field("params", params)
            .field("format", format)
            .field("conversation", conversation)
            .finish_non_exhaustive()
    }
}

impl<S: Sampler> PolicyModel<S> {
    /// A policy at the start of an episode. All its responses are sampled with `params`, whatever the agent requests: what is
    /// trained on has to come from one distribution. Responses in the fenced format end with their block; without tools,
    /// use [`ToolFormat::Native`].
    pub fn new(
        name: &str,
        sampler: Arc<S>,
        codec: Arc<ChatCodec>,
        params: SamplingParams,
        format: ToolFormat,
    ) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let conversation = NEXT.fetch_add(1, Ordering::Relaxed);
        Self {
            name: name.to_owned(),
            sampler,
            codec,
            params,
            format,
            conversation,
            stream: Mutex::default(),
            released: AtomicBool::new(false),
            sampling: AtomicBool::new(false),
        }
    }

    /// Takes the tokens of the episode so far.
    pub fn segments(&self) -> Vec<Segment> {
        self.stream().finish()
    }

    /// Whether the episode ended while another process sampled a response.
    pub(crate) fn awaits_server(&self) -> bool {
        self.sampler.is_remote() && self.sampling.load(Ordering::Relaxed)
    }

    /// Frees the conversation's slot in the sampler.
    pub(crate) fn release(&self) {
        if !self.released.swap(true, Ordering::Relaxed) {
            self.sampler.release(self.conversation);
        }
    }

    /// The error for a conversation that the codec rejects. What the policy wrote must not let it avoid its reward.
    fn rejected(&self, message: String) -> Error {
        match self.stream().responses() {
            0 => refused(message),
            _ => Error::InvalidHistory(message),
        }
    }

    fn stream(&self) -> std::sync::MutexGuard<'_, TokenStream> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The request to the sampler for the rendered conversation.
    fn sample_request(
        &self,
        text: &str,
        start: ResponseStart,
        request: &Request<'_>,
    ) -> Result<SampleRequest, Error> {
        let context = self.sampler.context();
        if text.len() > context.saturating_mul(MAX_TOKEN_BYTES) {
            let message =
                format!("it has {} bytes, and the context is {context} tokens", text.len());
            return Err(overflow(context, None, message));
        }
        let extended = self.stream().extend(&self.codec, text);
        extended.map_err(|error| self.rejected(error_chain(&error)))?;
        let stream = self.stream();
        let prompt = stream.tokens().len();
        let max_tokens = usize::try_from(request.max_tokens).unwrap_or(usize::MAX).max(1);
        let room = context.saturating_sub(prompt);
        if prompt == 0 {
            return Err(refused("the conversation is empty".into()));
        }
        if room < max_tokens.min(MIN_ROOM) {
            let message = format!("it has {prompt} tokens, and the context is {context}");
            return Err(overflow(context, Some(prompt), message));
        }
        let seed = seed::of_turn(self.params.seed, stream.responses());
        Ok(SampleRequest {
            conversation: self.conversation,
            tokens: stream.tokens().into(),
            max_tokens: max_tokens.min(room),
            params: SamplingParams { seed, ..self.params },
            stop_tokens: self.codec.vocabulary().end_of_turn().to_vec(),
            until: early_stop::until(&self.codec, self.format, start),
        })
    }
}

impl<S: Sampler> Drop for PolicyModel<S> {
    fn drop(&mut self) {
        self.release();
    }
}

impl<S: Sampler> Model for PolicyModel<S> {
    fn name(&self) -> &str {
        &self.name
    }

    async fn complete(
        &self,
        request: &Request<'_>,
        listener: &dyn Listener,
    ) -> Result<Response, Error> {
        if request.sampling.shape.is_some() {
            return Err(Error::Settings("a policy does not support constrained responses".into()));
        }
        let text = self.codec.render(request.messages, request.tools);
        let text = text.map_err(|error| match error {
            TemplateError::TooLong => overflow(self.sampler.context(), None, error.to_string()),
            error => self.rejected(error_chain(&error)),
        })?;
        // Templates of models that always think may open the thinking block themselves.
        let start = match text.trim_end().ends_with(think::OPEN) {
            true => ResponseStart::Thinking,
            false => ResponseStart::Text,
        };
        let sample = self.sample_request(&text, start, request)?;
        let (prompt, max_tokens) = (sample.tokens.len(), sample.max_tokens);
        self.sampling.store(true, Ordering::Relaxed);
        let sampled = self.sampler.sample(sample).await;
        self.sampling.store(false, Ordering::Relaxed);
        let sampled = sampled.map_err(failed)?;
        check(&sampled, max_tokens)?;
        let text = self.stream().push_response(&self.codec, &sampled);
        let mut splitter = match start {
            ResponseStart::Thinking => Splitter::inside(),
            ResponseStart::Text => Splitter::default(),
        };
        let mut message = Assistant::default();
        let mut push = |piece: Piece<'_>| match piece {
            Piece::Reasoning(piece) if !piece.is_empty() => {
                listener.on_delta(Delta::Reasoning(piece));
                message.reasoning.push_str(piece);
            }
            Piece::Text(piece) if !piece.is_empty() => {
                listener.on_delta(Delta::Text(piece));
                message.text.push_str(piece);
            }
            Piece::Reasoning(_) | Piece::Text(_) => {}
        };
        splitter.push(&text, &mut push);
        splitter.finish(&mut push);
        let (input, output) = (prompt as u64, sampled.tokens.len() as u64);
        Ok(Response {
            message,
            stop: match sampled.end {
                SampleEnd::Token | SampleEnd::Until => Stop::End,
                SampleEnd::Length => Stop::Length,
            },
            usage: Usage { input, output, ..Usage::default() },
            from_cache: false,
        })
    }
}

/// Checks what will be trained on: a sampler that miscounts would spoil every later step.
fn check(sampled: &Sampled, max_tokens: usize) -> Result<(), Error> {
    let Sampled { tokens, logprobs, versions, .. } = sampled;
    let wrong = if tokens.len() != logprobs.len() {
        format!("{} tokens and {} log-probabilities", tokens.len(), logprobs.len())
    } else if !versions.is_empty() && versions.len() != tokens.len() {
        format!("{} tokens and {} versions", tokens.len(), versions.len())
    } else if tokens.len() > max_tokens {
        format!("{} tokens where {max_tokens} were requested", tokens.len())
    } else if let Some(logprob) = logprobs.iter().find(|logprob| !logprob.is_finite()) {
        format!("a log-probability of {logprob}")
    } else {
        return Ok(());
    };
    Err(Error::Protocol(format!("the sampler returned {wrong}")))
}

fn failed(error: SampleError) -> Error {
    match error {
        SampleError::TooLong { tokens, context } => {
            overflow(context, Some(tokens), error.to_string())
        }
        SampleError::Exhausted => Error::Settings(error.to_string()),
        error => Error::Cut(error_chain(&error)),
    }
}

fn overflow(context: usize, prompt: Option<usize>, message: String) -> Error {
    let (context, prompt) = (Some(context as u64), prompt.map(|prompt| prompt as u64));
    Error::Overflow { numbers: Overflow { context, prompt, output: None }, message }
}

fn refused(message: String) -> Error {
    Error::Refused { status: 400, message }
}
