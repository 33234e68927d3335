//! Recorded conversations as tokens, as if the policy had sampled the responses.
//!
//! The conversation is rendered as the policy would see it, in its own tool-call format; every response is trained on.

use std::{
    borrow::Cow,
    sync::{Arc, Mutex, PoisonError},
};

use agent::tools::SUBMIT;
use futures_util::FutureExt;
use model::{
    Error, Formatted, Listener, Model, Request, Response, Sampling, Silent, ToolFormat, ToolSpec,
};
use trajectory::{Arguments, Assistant, Message, Stop, ToolCall, Usage, error_chain};
use vocabulary::VocabularyError;

use crate::{
    SampleEnd, Sampled, Segment, codec::ChatCodec, policy::MAX_TOKEN_BYTES,
    token_stream::TokenStream,
};

/// A conversation cannot be converted to tokens.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DemonstrationError {
    /// The chat template rejects it.
    #[error("the conversation cannot be rendered for this model: {0}")]
    Refused(String),
    /// A response cannot be located in the rendered conversation.
    #[error("response {0} of the conversation cannot be located in the rendered chat template")]
    NotFound(usize),
    /// It is too long.
    #[error("it has {tokens} tokens or more; the limit is {max_tokens}")]
    TooLong {
        /// A lower bound of its tokens.
        tokens: usize,
        /// The limit.
        max_tokens: usize,
    },
    /// The vocabulary cannot encode it.
    #[error("the conversation cannot be encoded")]
    Vocabulary(#[from] VocabularyError),
}

/// The tokens of a recorded conversation, with those of its responses marked as sampled; their log-probabilities are 0.
/// `tools` are those of the recorded model. A conversation of more than `max_tokens` tokens is rejected early.
pub fn demonstration(
    codec: &ChatCodec,
    format: ToolFormat,
    tools: &[ToolSpec],
    messages: &[Message],
    max_tokens: usize,
) -> Result<Vec<Segment>, DemonstrationError> {
    let replies = messages.iter().filter(|message| is_reply(message)).count();
    let shown = as_shown(format, tools, messages)?;
    let at: Vec<usize> =
        (0..shown.messages.len()).filter(|at| is_reply(&shown.messages[*at])).collect();
    // What a format adds, such as an example, comes before the conversation, and is not trained on.
    let trained = at.get(at.len().saturating_sub(replies)..).unwrap_or_default();
    let mut stream = TokenStream::default();
    for (number, at) in (1..).zip(trained) {
        let before = shown.text(codec, *at)?;
        if before.len() > max_tokens.saturating_mul(MAX_TOKEN_BYTES) {
            return Err(DemonstrationError::TooLong {
                tokens: before.len() / MAX_TOKEN_BYTES,
                max_tokens,
            });
        }
        stream.extend(codec, &before)?;
        let said = shown.reply(codec, *at, &before).ok_or(DemonstrationError::NotFound(number))?;
        let mut tokens = codec.tokens(&said)?;
        tokens.extend(codec.closing());
        let end = if codec.closing().is_some() { SampleEnd::Token } else { SampleEnd::Length };
        let (logprobs, versions) = (vec![0.0; tokens.len()], Vec::new());
        stream.push_response(codec, &Sampled { logprobs, tokens, versions, end });
        let tokens = stream.tokens().len();
        if tokens > max_tokens {
            return Err(DemonstrationError::TooLong { tokens, max_tokens });
        }
    }
    Ok(stream.finish())
}

/// A conversation as the innermost model receives it.
#[derive(Debug, Default)]
struct Rendered {
    messages: Vec<Message>,
    tools: Vec<ToolSpec>,
}

impl Rendered {
    /// The rendered text before a message.
    fn text(&self, codec: &ChatCodec, at: usize) -> Result<String, DemonstrationError> {
        let messages = self.messages.get(..at).unwrap_or_default();
        let text = codec.render(messages, &self.tools);
        text.map_err(|error| DemonstrationError::Refused(error_chain(&error)))
    }

    /// The rendered text of a response, up to the token that ends it.
    fn reply(&self, codec: &ChatCodec, at: usize, before: &str) -> Option<String> {
        let mut messages = self.messages.get(..=at)?.to_vec();
        messages.push(Message::user("."));
        let whole = codec.render(&messages, &self.tools).ok()?;
        let after = whole.strip_prefix(before)?;
        let Some(closing) = codec.closing() else {
            let Some(Message::Assistant(said)) = self.messages.get(at) else { return None };
            let said = codec.guarded(&said.text);
            return after.starts_with(&said).then_some(said);
        };
        let mark = codec.vocabulary().decode(&[closing]);
        after.split_once(&mark).map(|(said, _)| said.to_owned())
    }
}

/// Applies a tool-call format to a conversation, by the code that does it for every request.
fn as_shown(
    format: ToolFormat,
    tools: &[ToolSpec],
    messages: &[Message],
) -> Result<Rendered, DemonstrationError> {
    let messages = &with_submit(format, messages)[..];
    let seen = Arc::new(RequestRecorder::default());
    let formatted = Formatted::new(Arc::clone(&seen), format);
    let request = Request { messages, tools, sampling: &Sampling::default(), max_tokens: 1 };
    let asked = formatted.complete(&request, &Silent).now_or_never();
    match asked {
        Some(Ok(_)) => {
            Ok(std::mem::take(&mut *seen.0.lock().unwrap_or_else(PoisonError::into_inner)))
        }
        Some(Err(error)) => Err(DemonstrationError::Refused(error_chain(&error))),
        None => Err(DemonstrationError::Refused("it waits for something".into())),
    }
}

/// The conversation with a call of its own for the submission of its last response. Only blocks of commands can end with
/// one.
fn with_submit(format: ToolFormat, messages: &[Message]) -> Cow<'_, [Message]> {
    match messages.split_last() {
        Some((Message::Assistant(last), before))
            if last.then_submit && format != ToolFormat::Fenced =>
        {
            let mut last = last.clone();
            let id = format!("submit_{}", messages.len());
            let arguments = Arguments::Object(serde_json::Map::new());
            last.calls.push(ToolCall { id, name: SUBMIT.into(), arguments });
            let last = Message::Assistant(Assistant { then_submit: false, ..last });
            Cow::Owned(before.iter().cloned().chain([last]).collect())
        }
        _ => Cow::Borrowed(messages),
    }
}

/// A model that only records its request.
#[derive(Debug, Default)]
struct RequestRecorder(Mutex<Rendered>);

impl Model for RequestRecorder {
    fn name(&self) -> &str {
        "listening"
    }

    async fn complete(&self, request: &Request<'_>, _: &dyn Listener) -> Result<Response, Error> {
        let shown = Rendered { messages: request.messages.to_vec(), tools: request.tools.to_vec() };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = shown;
        let (message, stop, usage) = (Assistant::default(), Stop::End, Usage::default());
        Ok(Response { message, stop, usage, from_cache: false })
    }
}

fn is_reply(message: &Message) -> bool {
    matches!(message, Message::Assistant(_))
}
