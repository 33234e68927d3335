//! How a model is told of its tools and how its calls are found: by the server, or in its text.
//!
//! Wraps any model. Knows the forms in which calls are written, not what the tools do.

mod example;
mod fenced;
mod find;
mod marks;
mod rewrite;
mod script;
mod shape;
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
    Before, Calling, Delta, Error, Listener, Model, Reply, Request, Sampling, ToolSpec,
    repair::Complete,
    think,
    wire::{self, Ids},
};
use find::Call;
use rewrite::{Form, rewrite};

/// How tool calls are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToolFormat {
    /// By the server's own means, and where it has none as in [`ToolFormat::Hermes`].
    #[default]
    Auto,
    /// By the server's own means.
    Native,
    /// As JSON between `<tool_call>` tags.
    Hermes,
    /// As XML with one tag per argument.
    #[serde(rename = "qwen3-coder")]
    Qwen3Coder,
    /// As one block of shell commands, for small models.
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

    /// The best format for a model, as far as its name tells.
    pub fn suggested(model: &str) -> Self {
        if small::is_small(model) { Self::Fenced } else { Self::Auto }
    }

    /// Whether replies can be forced to end with a call of this format.
    pub fn can_be_forced(self) -> bool {
        matches!(self, Self::Hermes | Self::Fenced)
    }

    /// Whether a reply that is being written asks for all it can ask for: its block of commands is closed, and what
    /// follows would not be read. Only fenced replies come to that point.
    pub fn is_settled(self, reply: &str) -> bool {
        let text = visible(reply).and_then(|from| reply.get(from..));
        self == Self::Fenced && text.is_some_and(fenced::is_closed)
    }
}

/// No such format.
#[derive(Debug, thiserror::Error)]
#[error("no tool format is called {0:?}; there are auto, native, hermes, qwen3-coder and fenced")]
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

/// Whether a model is trusted to write calls well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Calls {
    Free,
    Forced,
}

/// A model whose tool calls are asked for in one of the formats.
#[derive(Debug)]
pub struct Formatted<M> {
    model: M,
    format: ToolFormat,
    calls: Calls,
    /// The server said that it has no tools; it is not asked again.
    refused: AtomicBool,
}

impl<M: Model> Formatted<M> {
    /// Wraps a model.
    pub fn new(model: M, format: ToolFormat) -> Self {
        Self { model, format, calls: Calls::Free, refused: AtomicBool::new(false) }
    }

    /// Forces every reply to end with a well-formed call, where the format can be forced.
    #[must_use]
    pub fn forced(self) -> Self {
        Self { calls: Calls::Forced, ..self }
    }

    /// The form of calls in text; none where the server takes care of them.
    fn form(&self, request: &Request<'_>) -> Option<Form> {
        let usual = self.usual_form(request.tools);
        // What the server takes care of has no form that a reply could be held to.
        usual.or_else(|| self.must_call(request).then_some(Form::Hermes))
    }

    /// Whether a reply that has to be a call can be held to that.
    fn must_call(&self, request: &Request<'_>) -> bool {
        request.sampling.calling == Calling::Required && self.model.can_be_held()
    }

    fn usual_form(&self, tools: &[ToolSpec]) -> Option<Form> {
        match self.format {
            ToolFormat::Native => None,
            ToolFormat::Auto if !self.refused.load(Ordering::Relaxed) => None,
            ToolFormat::Auto | ToolFormat::Hermes => Some(Form::Hermes),
            ToolFormat::Qwen3Coder => Some(Form::Qwen3Coder),
            ToolFormat::Fenced if !fit_into_blocks(tools) => Some(Form::Hermes),
            ToolFormat::Fenced => Some(Form::Fenced),
        }
    }

    async fn ask(
        &self,
        request: &Request<'_>,
        form: Option<Form>,
        listener: &dyn Listener,
    ) -> Result<Reply, Error> {
        let reply = match form {
            None => self.model.complete(request, listener).await?,
            Some(form) => {
                let messages = rewrite(request.messages, request.tools, form);
                let before = match (self.must_call(request), self.calls) {
                    (true, _) => Some(Before::Nothing),
                    (false, Calls::Forced) => Some(Before::Text),
                    (false, Calls::Free) => None,
                };
                let shape = before.and_then(|before| form.shape(request.tools, before));
                let sampling = &Sampling { shape, ..request.sampling.clone() };
                let request = Request { messages: &messages, tools: &[], sampling, ..*request };
                self.model.complete(&request, listener).await?
            }
        };
        Ok(understood(reply, request, form))
    }
}

impl<M: Model> Model for Formatted<M> {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn can_be_held(&self) -> bool {
        self.model.can_be_held()
    }

    fn how_to_call(&self, tools: &[ToolSpec]) -> &'static str {
        match self.usual_form(tools) {
            None => self.model.how_to_call(tools),
            Some(Form::Hermes) => {
                "write a call as <tool_call>{\"name\": \"NAME\", \"arguments\": {\"KEY\": \
                 \"VALUE\"}}</tool_call>"
            }
            Some(Form::Qwen3Coder) => {
                "write a call as <tool_call>, <function=NAME>, <parameter=KEY>VALUE</parameter>, \
                 </function>, </tool_call>, each on a line of its own"
            }
            Some(Form::Fenced) => {
                "write exactly one ```bash block with the commands to run; a block with nothing but \
                 `submit` in it finishes the work"
            }
        }
    }

    async fn complete(
        &self,
        request: &Request<'_>,
        listener: &dyn Listener,
    ) -> Result<Reply, Error> {
        if request.tools.is_empty() {
            return self.model.complete(request, listener).await;
        }
        let form = self.form(request);
        match self.ask(request, form, listener).await {
            Err(error)
                if self.format == ToolFormat::Auto && form.is_none() && refuses_tools(&error) =>
            {
                self.refused.store(true, Ordering::Relaxed);
                let why = "the server has no tools; calls are asked for in the text";
                listener.hear(Delta::Retry { attempt: 1, wait: Duration::ZERO, why });
                self.ask(request, self.form(request), listener).await
            }
            other => other,
        }
    }
}

/// Without a shell there is nothing a block could be for, and none can say with what to end the work.
fn fit_into_blocks(tools: &[ToolSpec]) -> bool {
    let wants_more = |tool: &ToolSpec| {
        let required = tool.parameters.get("required").and_then(serde_json::Value::as_array);
        tool.name == fenced::SUBMIT && required.is_some_and(|names| !names.is_empty())
    };
    tools.iter().any(|tool| tool.name == fenced::BASH) && !tools.iter().any(wants_more)
}

/// Whether the server says that it, or the model's template, has no tools.
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

/// The reply with the calls that its text holds.
fn understood(mut reply: Reply, request: &Request<'_>, form: Option<Form>) -> Reply {
    if !reply.message.calls.is_empty() {
        return reply;
    }
    let complete = match reply.stop {
        Stop::End | Stop::ToolCalls => Complete::Whole,
        Stop::Length | Stop::Refusal | Stop::Other(_) => Complete::CutOff,
    };
    let Some(from) = visible(&reply.message.text) else { return reply };
    let text = reply.message.text.get(from..).unwrap_or_default();
    let (calls, kept) = match form {
        Some(Form::Fenced) => {
            let parsed = fenced::parse(text, request.tools, complete);
            (parsed.calls, parsed.kept)
        }
        _ => {
            let found = find::find(text, request.tools, complete);
            (found.calls, found.kept)
        }
    };
    if let Some(first) = calls.first() {
        let before = (from, from + first.start, from + kept);
        place(&mut reply.message, before, numbered(calls, request.messages));
    }
    reply
}

/// Sorts what was said into thinking, text and calls.
fn place(
    message: &mut Assistant,
    (from, start, kept): (usize, usize, usize),
    calls: Vec<ToolCall>,
) {
    let mut said = std::mem::take(&mut message.text);
    if message.reasoning.is_empty() {
        let thought = said.get(..from).unwrap_or_default().trim();
        let thought = thought.strip_prefix(think::OPEN).unwrap_or(thought);
        message.reasoning = thought.strip_suffix(think::CLOSE).unwrap_or(thought).trim().to_owned();
    }
    message.text = said.get(from..start).unwrap_or_default().trim().to_owned();
    message.calls = calls;
    said.truncate(kept);
    message.said = Some(said);
}

/// Where thinking that the server left in the text ends. None where it does not end: what a model only
/// thinks of is not done.
fn visible(text: &str) -> Option<usize> {
    let end = |at: usize| at + think::CLOSE.len();
    if text.trim_start().starts_with(think::OPEN) {
        return text.find(think::CLOSE).map(end);
    }
    Some(think::closing(text).map_or(0, end))
}

/// Gives each call an id that no other call of the conversation has.
fn numbered(calls: Vec<Call>, messages: &[Message]) -> Vec<ToolCall> {
    let mut ids = Ids::new(messages);
    let named = calls.into_iter().map(|call| ToolCall {
        id: ids.unique(String::new()),
        name: wire::bounded(call.name),
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
