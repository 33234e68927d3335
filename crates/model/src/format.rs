//! Tool-call formats: how tools are described to a model and how its calls are found, by the server or in its text.
//!
//! Wraps any model. Knows how calls are written, not what the tools do.

mod example;
mod fenced;
mod find;
mod interpret;
mod marks;
mod rewrite;
mod script;
mod small;
mod xml;

use std::{
    fmt,
    str::FromStr,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use trajectory::{Assistant, Message, Stop, ToolCall};

use crate::{
    Before, Delta, Error, Listener, Model, Request, Response, Sampling, ToolChoice, ToolSpec,
    repair::Ending,
    think,
    wire::{self, CallIds},
};
use find::Call;
use rewrite::{TextFormat, rewrite};

/// How tool calls are requested from a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToolFormat {
    /// The server's native tool calls; where it has none, as [`ToolFormat::Hermes`].
    #[default]
    Auto,
    /// The server's native tool calls.
    Native,
    /// JSON between `<tool_call>` tags.
    Hermes,
    /// XML with one tag per argument.
    #[serde(rename = "qwen3-coder")]
    Qwen3Coder,
    /// One fenced block of shell commands, for small models.
    Fenced,
}

impl ToolFormat {
    /// Every format, with its name.
    pub const ALL: [(&str, Self); 5] = [
        ("auto", Self::Auto),
        ("native", Self::Native),
        ("hermes", Self::Hermes),
        ("qwen3-coder", Self::Qwen3Coder),
        ("fenced", Self::Fenced),
    ];

    /// The best format for a model, judging by its name.
    pub fn suggested(model: &str) -> Self {
        if small::is_small(model) { Self::Fenced } else { Self::Auto }
    }

    /// Whether responses can be constrained to end with a call in this format.
    pub fn can_be_forced(self) -> bool {
        matches!(self, Self::Hermes | Self::Fenced)
    }

    /// Whether the partial response already contains its whole call: its block of commands is closed, and what follows
    /// would be ignored. Only [`ToolFormat::Fenced`] responses can tell.
    pub fn is_settled(self, response: &str) -> bool {
        let text = visible(response).and_then(|from| response.get(from..));
        self == Self::Fenced && text.is_some_and(fenced::is_closed)
    }
}

/// The name of a tool format is unknown.
#[derive(Debug, thiserror::Error)]
#[error("unknown tool format `{0}`; use auto, native, hermes, qwen3-coder or fenced")]
pub struct UnknownFormat(String);

impl FromStr for ToolFormat {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|(known, _)| *known == name);
        found.map(|(_, format)| format).ok_or_else(|| UnknownFormat(name.to_owned()))
    }
}

impl fmt::Display for ToolFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.into_iter().find(|(_, format)| format == self);
        f.write_str(name.map_or("auto", |(name, _)| name))
    }
}

/// Whether responses are constrained to contain a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Calls {
    Unconstrained,
    Forced,
}

/// A model whose tool calls are requested in one of the formats.
#[derive(Debug)]
pub struct Formatted<M> {
    model: M,
    format: ToolFormat,
    calls: Calls,
    /// The server rejected native tool calls; they are not tried again.
    native_refused: AtomicBool,
}

impl<M: Model> Formatted<M> {
    /// Wraps a model.
    pub fn new(model: M, format: ToolFormat) -> Self {
        Self { model, format, calls: Calls::Unconstrained, native_refused: AtomicBool::new(false) }
    }

    /// Constrains every response to end with a well-formed call, where the format supports it.
    #[must_use]
    pub fn forced(self) -> Self {
        Self { calls: Calls::Forced, ..self }
    }

    /// The text format of calls; `None` where the server handles them natively.
    fn text_format(&self, request: &Request<'_>) -> Option<TextFormat> {
        let usual = self.default_text_format(request.tools);
        // Native calls have no text form that a response could be constrained to.
        usual.or_else(|| self.must_call(request).then_some(TextFormat::Hermes))
    }

    /// Whether a call is required and the model can be constrained to write one.
    fn must_call(&self, request: &Request<'_>) -> bool {
        request.sampling.tool_choice == ToolChoice::Required && self.model.supports_shapes()
    }

    fn default_text_format(&self, tools: &[ToolSpec]) -> Option<TextFormat> {
        match self.format {
            ToolFormat::Native => None,
            ToolFormat::Auto if !self.native_refused.load(Ordering::Relaxed) => None,
            ToolFormat::Auto | ToolFormat::Hermes => Some(TextFormat::Hermes),
            ToolFormat::Qwen3Coder => Some(TextFormat::Qwen3Coder),
            ToolFormat::Fenced if !fit_into_blocks(tools) => Some(TextFormat::Hermes),
            ToolFormat::Fenced => Some(TextFormat::Fenced),
        }
    }

    async fn ask(
        &self,
        request: &Request<'_>,
        text_format: Option<TextFormat>,
        listener: &dyn Listener,
    ) -> Result<Response, Error> {
        let response = match text_format {
            None => self.model.complete(request, listener).await?,
            Some(text_format) => {
                let messages = rewrite(request.messages, request.tools, text_format);
                let before = match (self.must_call(request), self.calls) {
                    (true, _) => Some(Before::Nothing),
                    (false, Calls::Forced) => Some(Before::Text),
                    (false, Calls::Unconstrained) => None,
                };
                let shape = before.and_then(|before| text_format.shape(request.tools, before));
                let sampling = &Sampling { shape, ..request.sampling.clone() };
                let request = Request { messages: &messages, tools: &[], sampling, ..*request };
                self.model.complete(&request, listener).await?
            }
        };
        Ok(parse_calls(response, request, text_format))
    }
}

impl<M: Model> Model for Formatted<M> {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn supports_shapes(&self) -> bool {
        self.model.supports_shapes()
    }

    fn tool_call_hint(&self, tools: &[ToolSpec]) -> &'static str {
        match self.default_text_format(tools) {
            None => self.model.tool_call_hint(tools),
            Some(TextFormat::Hermes) => {
                "write a call as <tool_call>{\"name\": \"NAME\", \"arguments\": {\"KEY\": \
                 \"VALUE\"}}</tool_call>"
            }
            Some(TextFormat::Qwen3Coder) => {
                "write a call as <tool_call>, <function=NAME>, <parameter=KEY>VALUE</parameter>, \
                 </function>, </tool_call>, each on a line of its own"
            }
            Some(TextFormat::Fenced) => {
                "write exactly one ```bash block with the commands to run; a block with nothing but \
                 `submit` in it finishes the work"
            }
        }
    }

    async fn complete(
        &self,
        request: &Request<'_>,
        listener: &dyn Listener,
    ) -> Result<Response, Error> {
        if request.tools.is_empty() {
            return self.model.complete(request, listener).await;
        }
        let text_format = self.text_format(request);
        match self.ask(request, text_format, listener).await {
            Err(error)
                if self.format == ToolFormat::Auto
                    && text_format.is_none()
                    && refuses_tools(&error) =>
            {
                self.native_refused.store(true, Ordering::Relaxed);
                let why = "the server has no native tool calls; requesting them in the text";
                listener.on_delta(Delta::Retry { attempt: 1, wait: Duration::ZERO, why });
                self.ask(request, self.text_format(request), listener).await
            }
            other => other,
        }
    }
}

/// Blocks need a shell to run in, and cannot express a `submit` with required arguments.
fn fit_into_blocks(tools: &[ToolSpec]) -> bool {
    let has_arguments = |tool: &ToolSpec| {
        let required = tool.parameters.get("required").and_then(serde_json::Value::as_array);
        tool.name == fenced::SUBMIT && required.is_some_and(|names| !names.is_empty())
    };
    tools.iter().any(|tool| tool.name == fenced::BASH) && !tools.iter().any(has_arguments)
}

/// Whether the server reports that it, or the model's template, does not support tools.
fn refuses_tools(error: &Error) -> bool {
    let message = match error {
        Error::Refused { message, .. } | Error::Busy { message, .. } => message.to_lowercase(),
        Error::GaveUp { last, .. } => return refuses_tools(last),
        _ => return false,
    };
    let about = ["tool", "function call", "functions"];
    let refusal = [
        "not support",
        "unsupported",
        "no endpoints found",
        "not enabled",
        "not allowed",
        "not permitted",
        "not available",
        "unrecognized",
        "unknown field",
        "unknown parameter",
        "unexpected keyword",
        "requires --",
        "not handle",
    ];
    about.iter().any(|word| message.contains(word))
        && refusal.iter().any(|word| message.contains(word))
}

/// The response with the calls that its text contains.
fn parse_calls(
    mut response: Response,
    request: &Request<'_>,
    text_format: Option<TextFormat>,
) -> Response {
    if !response.message.calls.is_empty() {
        return response;
    }
    let ending = match response.stop {
        Stop::End | Stop::ToolCalls => Ending::Finished,
        Stop::Length | Stop::Refusal | Stop::Other(_) => Ending::CutOff,
    };
    let Some(from) = visible(&response.message.text) else { return response };
    let text = response.message.text.get(from..).unwrap_or_default();
    let (calls, kept, then_submit) = match text_format {
        Some(TextFormat::Fenced) => {
            let parsed = fenced::parse(text, request.tools, ending);
            (parsed.calls, parsed.kept, parsed.then_submit)
        }
        _ => {
            let found = find::find(text, request.tools, ending);
            (found.calls, found.kept, false)
        }
    };
    if let Some(first) = calls.first() {
        response.message.then_submit = then_submit;
        let before = (from, from + first.start, from + kept);
        distribute(&mut response.message, before, numbered(calls, request.messages));
    }
    response
}

/// Splits the generated text into thinking, text and calls.
fn distribute(
    message: &mut Assistant,
    (from, start, kept): (usize, usize, usize),
    calls: Vec<ToolCall>,
) {
    let mut raw = std::mem::take(&mut message.text);
    if message.reasoning.is_empty() {
        let thought = raw.get(..from).unwrap_or_default().trim();
        let thought = thought.strip_prefix(think::OPEN).unwrap_or(thought);
        message.reasoning = thought.strip_suffix(think::CLOSE).unwrap_or(thought).trim().to_owned();
    }
    message.text = raw.get(from..start).unwrap_or_default().trim().to_owned();
    message.calls = calls;
    raw.truncate(kept);
    message.raw = Some(raw);
}

/// Where thinking that the server left in the text ends. `None` where it does not end: calls inside thinking are not
/// executed.
fn visible(text: &str) -> Option<usize> {
    let end = |at: usize| at + think::CLOSE.len();
    if text.trim_start().starts_with(think::OPEN) {
        return text.find(think::CLOSE).map(end);
    }
    Some(think::closing(text).map_or(0, end))
}

/// Gives each call an id that is unique in the conversation.
fn numbered(calls: Vec<Call>, messages: &[Message]) -> Vec<ToolCall> {
    let mut ids = CallIds::new(messages);
    let named = calls.into_iter().map(|call| ToolCall {
        id: ids.unique(String::new()),
        name: wire::bounded_name(call.name),
        arguments: call.arguments,
    });
    named.collect()
}

#[cfg(test)]
#[path = "format_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "format_properties.rs"]
mod properties;
