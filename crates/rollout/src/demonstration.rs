//! Recorded conversations as tokens: what a policy would have sampled, had it said what was said there.
//!
//! The conversation is put as the policy would see it, in its own tool-call format; every reply of it is trained on.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt;
use model::{
    Error, Formatted, Listener, Model, Reply, Request, Sampling, Silent, ToolFormat, ToolSpec,
};
use trajectory::{Assistant, Message, Stop, Usage};
use vocabulary::VocabularyError;

use crate::{
    SampleEnd, Sampled, Segment, error::chain, policy::MOST_BYTES, speech::Speech, stream::Stream,
};

/// A conversation cannot be made into tokens.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DemonstrationError {
    /// The chat template refuses it.
    #[error("the conversation cannot be put to this model: {0}")]
    Refused(String),
    /// What the template makes of a reply cannot be told from what stands around it.
    #[error(
        "reply {0} of the conversation is not to be found in what the chat template makes of it"
    )]
    Lost(usize),
    /// There is no room for it.
    #[error("it has {tokens} tokens or more, and no more than {most} are allowed")]
    Long {
        /// Tokens up to where this was seen.
        tokens: usize,
        /// How many there may be.
        most: usize,
    },
    /// The vocabulary refuses it.
    #[error("the conversation has no tokens")]
    Vocabulary(#[from] VocabularyError),
}

/// The tokens of a conversation that was recorded, with those of its replies marked as sampled; their log-probabilities
/// are 0. `tools` are those the model of the record was told of. More than so many tokens are refused as soon as they are
/// seen.
pub fn demonstration(
    speech: &Speech,
    format: ToolFormat,
    tools: &[ToolSpec],
    messages: &[Message],
    most: usize,
) -> Result<Vec<Segment>, DemonstrationError> {
    let replies = messages.iter().filter(|message| is_reply(message)).count();
    let shown = as_shown(format, tools, messages)?;
    let at: Vec<usize> =
        (0..shown.messages.len()).filter(|at| is_reply(&shown.messages[*at])).collect();
    // What a format adds, such as an example, comes before the conversation, and is not trained on.
    let trained = at.get(at.len().saturating_sub(replies)..).unwrap_or_default();
    let mut stream = Stream::default();
    for (number, at) in (1..).zip(trained) {
        let before = shown.text(speech, *at)?;
        if before.len() > most.saturating_mul(MOST_BYTES) {
            return Err(DemonstrationError::Long { tokens: before.len() / MOST_BYTES, most });
        }
        stream.hear(speech, &before)?;
        let said = shown.reply(speech, *at, &before).ok_or(DemonstrationError::Lost(number))?;
        let mut tokens = speech.tokens(&said)?;
        tokens.extend(speech.closing());
        let end = if speech.closing().is_some() { SampleEnd::Token } else { SampleEnd::Length };
        stream.say(speech, &Sampled { logprobs: vec![0.0; tokens.len()], tokens, end });
        let tokens = stream.tokens().len();
        if tokens > most {
            return Err(DemonstrationError::Long { tokens, most });
        }
    }
    Ok(stream.finish())
}

/// A conversation as the innermost model sees it.
#[derive(Debug, Default)]
struct Shown {
    messages: Vec<Message>,
    tools: Vec<ToolSpec>,
}

impl Shown {
    /// The text before a message.
    fn text(&self, speech: &Speech, at: usize) -> Result<String, DemonstrationError> {
        let messages = self.messages.get(..at).unwrap_or_default();
        let text = speech.render(messages, &self.tools);
        text.map_err(|error| DemonstrationError::Refused(chain(&error)))
    }

    /// What the template makes of a reply, up to the mark that ends it.
    fn reply(&self, speech: &Speech, at: usize, before: &str) -> Option<String> {
        let mut messages = self.messages.get(..=at)?.to_vec();
        messages.push(Message::user("."));
        let whole = speech.render(&messages, &self.tools).ok()?;
        let after = whole.strip_prefix(before)?;
        let Some(closing) = speech.closing() else {
            let Some(Message::Assistant(said)) = self.messages.get(at) else { return None };
            let said = speech.guarded(&said.text);
            return after.starts_with(&said).then_some(said);
        };
        let mark = speech.vocabulary().decode(&[closing]);
        after.split_once(&mark).map(|(said, _)| said.to_owned())
    }
}

/// Puts a conversation into a tool-call format, by the code that does it for a model that is asked.
fn as_shown(
    format: ToolFormat,
    tools: &[ToolSpec],
    messages: &[Message],
) -> Result<Shown, DemonstrationError> {
    let seen = Arc::new(Listening::default());
    let formatted = Formatted::new(Arc::clone(&seen), format);
    let request = Request { messages, tools, sampling: &Sampling::default(), max_tokens: 1 };
    let asked = formatted.complete(&request, &Silent).now_or_never();
    match asked {
        Some(Ok(_)) => {
            Ok(std::mem::take(&mut *seen.0.lock().unwrap_or_else(PoisonError::into_inner)))
        }
        Some(Err(error)) => Err(DemonstrationError::Refused(error.with_causes())),
        None => Err(DemonstrationError::Refused("it waits for something".into())),
    }
}

/// A model that only takes down what it is asked.
#[derive(Debug, Default)]
struct Listening(Mutex<Shown>);

impl Model for Listening {
    fn name(&self) -> &str {
        "listening"
    }

    async fn complete(&self, request: &Request<'_>, _: &dyn Listener) -> Result<Reply, Error> {
        let shown = Shown { messages: request.messages.to_vec(), tools: request.tools.to_vec() };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = shown;
        let (message, stop, usage) = (Assistant::default(), Stop::End, Usage::default());
        Ok(Reply { message, stop, usage, from_cache: false })
    }
}

fn is_reply(message: &Message) -> bool {
    matches!(message, Message::Assistant(_))
}
