//! A policy as a model of one episode: the agent sees messages, and the tokens are kept as they were sampled.
//!
//! Knows neither sandboxes nor rewards.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use chat_template::TemplateError;
use model::{
    Delta, Error, Listener, Model, Overflow, Reply, Request, ToolFormat,
    think::{self, Piece, Splitter},
};
use trajectory::{Assistant, Stop, Usage};

use crate::{
    Ask, Choice, SampleEnd, SampleError, Sampled, Sampler, Segment,
    ending::{self, Begins},
    error::chain,
    seed,
    speech::Speech,
    stream::Stream,
};

/// No token stands for more bytes, on the whole.
pub(crate) const MOST_BYTES: usize = 32;

/// A reply cut off after fewer tokens helps nobody.
const LEAST: usize = 64;

/// Whose fault it is that a conversation cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nobody's: it may go on if it is tried again.
    Nobody,
    /// Ours, however often it is tried.
    Ours,
    /// The policy's: the conversation could be put to it until it spoke.
    Policy,
}

/// A policy in one episode. Its tokens are asked for with [`Self::segments`] at the end.
pub struct PolicyModel<S: Sampler> {
    name: String,
    sampler: Arc<S>,
    speech: Arc<Speech>,
    choice: Choice,
    format: ToolFormat,
    conversation: u64,
    stream: Mutex<Stream>,
    /// Why the last call failed for good, if it did.
    fault: Mutex<Option<Fault>>,
}

impl<S: Sampler> fmt::Debug for PolicyModel<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, choice, format, conversation, .. } = self;
        f.debug_struct("PolicyModel")
            .field("name", name)
            .field("choice", choice)
            .field("format", format)
            .field("conversation", conversation)
            .finish_non_exhaustive()
    }
}

impl<S: Sampler> PolicyModel<S> {
    /// A policy at the beginning of an episode. All its replies are chosen alike, whatever the agent asks for: what is
    /// trained on has to come from one distribution. Replies in the fenced format end with their block; without tools,
    /// say [`ToolFormat::Native`].
    pub fn new(
        name: &str,
        sampler: Arc<S>,
        speech: Arc<Speech>,
        choice: Choice,
        format: ToolFormat,
    ) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let conversation = NEXT.fetch_add(1, Ordering::Relaxed);
        Self {
            name: name.to_owned(),
            sampler,
            speech,
            choice,
            format,
            conversation,
            stream: Mutex::default(),
            fault: Mutex::default(),
        }
    }

    /// Takes out the tokens of the episode so far.
    pub fn segments(&self) -> Vec<Segment> {
        self.stream().finish()
    }

    /// Whose fault it is that the last call failed; none where it did not.
    pub(crate) fn fault(&self) -> Option<Fault> {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fault_of(&self, error: &Error) -> Option<Fault> {
        match error {
            Error::Overflow { .. } => None,
            Error::Refused { .. } if self.stream().replies() > 0 => Some(Fault::Policy),
            error if error.is_passing() => Some(Fault::Nobody),
            _ => Some(Fault::Ours),
        }
    }

    fn stream(&self) -> std::sync::MutexGuard<'_, Stream> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes up the conversation and says what is to be sampled.
    fn ask(&self, text: &str, begins: Begins, request: &Request<'_>) -> Result<Ask, Error> {
        let context = self.sampler.context();
        if text.len() > context.saturating_mul(MOST_BYTES) {
            let message =
                format!("it has {} bytes, and the context is {context} tokens", text.len());
            return Err(overflow(context, None, message));
        }
        let mut stream = self.stream();
        stream.hear(&self.speech, text).map_err(|error| refused(chain(&error)))?;
        let prompt = stream.tokens().len();
        let most = usize::try_from(request.max_tokens).unwrap_or(usize::MAX).max(1);
        let room = context.saturating_sub(prompt);
        if prompt == 0 {
            return Err(refused("the conversation is empty".into()));
        }
        if room < most.min(LEAST) {
            let message = format!("it has {prompt} tokens, and the context is {context}");
            return Err(overflow(context, Some(prompt), message));
        }
        let seed = seed::of_turn(self.choice.seed, stream.replies());
        Ok(Ask {
            conversation: self.conversation,
            tokens: stream.tokens().into(),
            most: most.min(room),
            choice: Choice { seed, ..self.choice },
            ends: self.speech.vocabulary().ends().to_vec(),
            until: ending::until(&self.speech, self.format, begins),
        })
    }

    async fn reply(&self, request: &Request<'_>, listener: &dyn Listener) -> Result<Reply, Error> {
        if request.sampling.shape.is_some() {
            return Err(Error::Settings("a policy's replies cannot be held to a form".into()));
        }
        let text = self.speech.render(request.messages, request.tools);
        let text = text.map_err(|error| match error {
            TemplateError::TooLong => overflow(self.sampler.context(), None, error.to_string()),
            error => refused(chain(&error)),
        })?;
        // Templates of models that always think may open the thinking themselves.
        let begins = match text.trim_end().ends_with(think::OPEN) {
            true => Begins::Inside,
            false => Begins::Afresh,
        };
        let ask = self.ask(&text, begins, request)?;
        let (prompt, most) = (ask.tokens.len(), ask.most);
        let sampled = self.sampler.sample(ask).await.map_err(failed)?;
        check(&sampled, most)?;
        let said = self.stream().say(&self.speech, &sampled);
        let mut splitter = match begins {
            Begins::Inside => Splitter::inside(),
            Begins::Afresh => Splitter::default(),
        };
        let mut message = Assistant::default();
        let mut say = |piece: Piece<'_>| match piece {
            Piece::Reasoning(piece) if !piece.is_empty() => {
                listener.hear(Delta::Reasoning(piece));
                message.reasoning.push_str(piece);
            }
            Piece::Text(piece) if !piece.is_empty() => {
                listener.hear(Delta::Text(piece));
                message.text.push_str(piece);
            }
            Piece::Reasoning(_) | Piece::Text(_) => {}
        };
        splitter.push(&said, &mut say);
        splitter.finish(&mut say);
        let (input, output) = (prompt as u64, sampled.tokens.len() as u64);
        Ok(Reply {
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

impl<S: Sampler> Drop for PolicyModel<S> {
    fn drop(&mut self) {
        self.sampler.forget(self.conversation);
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
    ) -> Result<Reply, Error> {
        let replied = self.reply(request, listener).await;
        let fault = replied.as_ref().err().and_then(|error| self.fault_of(error));
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
        replied
    }
}

/// What is trained on is looked at: a sampler that miscounts would spoil every step from here on.
fn check(sampled: &Sampled, most: usize) -> Result<(), Error> {
    let Sampled { tokens, logprobs, .. } = sampled;
    let wrong = if tokens.len() != logprobs.len() {
        format!("{} tokens and {} log-probabilities", tokens.len(), logprobs.len())
    } else if tokens.len() > most {
        format!("{} tokens where {most} were asked for", tokens.len())
    } else if let Some(odd) = logprobs.iter().find(|logprob| !logprob.is_finite()) {
        format!("a log-probability of {odd}")
    } else {
        return Ok(());
    };
    Err(Error::Protocol(format!("the sampler gave {wrong}")))
}

fn failed(error: SampleError) -> Error {
    match error {
        SampleError::TooLong { tokens, context } => {
            overflow(context, Some(tokens), error.to_string())
        }
        SampleError::Failed(_) => Error::Cut(chain(&error)),
        SampleError::Over => Error::Settings(error.to_string()),
    }
}

fn overflow(context: usize, prompt: Option<usize>, message: String) -> Error {
    let (context, prompt) = (Some(context as u64), prompt.map(|prompt| prompt as u64));
    Error::Overflow { numbers: Overflow { context, prompt, output: None }, message }
}

fn refused(message: String) -> Error {
    Error::Refused { status: 400, message }
}
