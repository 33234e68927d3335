//! Rendering a conversation with a model's chat template.
//!
//! The template is untrusted: it can read nothing, and the instructions it executes and the text it writes are bounded.
//! The memory it uses meanwhile is not.

use std::io;

use minijinja::{
    Environment, Error, ErrorKind,
    syntax::SyntaxConfig,
    value::{Kwargs, Serde, Value},
};
use model::ToolSpec;
use serde::Serialize;
use serde_json::{Map, json};
use trajectory::{Arguments, Assistant, Content, Message, ToolCall};

use crate::{Guard, date};

/// A chat template cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// It cannot be parsed.
    #[error("the model's chat template is malformed")]
    Malformed(#[source] Error),
    /// It failed, or raised an exception.
    // The engine's alternate form names the line and what the template raised.
    #[error("the model's chat template refuses the conversation: {0:#}")]
    Refused(Error),
    /// It writes too much.
    #[error("the model's chat template writes more than {} MiB", MAX_TEXT >> 20)]
    TooLong,
    /// It does not support tools.
    #[error("the model's chat template does not support tools")]
    NoTools,
}

/// The template for models without one.
const CHATML: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n\
    {{ message.content }}<|im_end|>\n{% endfor %}{{ '<|im_start|>assistant\n' }}";

/// Instructions that a template may execute: hundreds for each of ten thousand messages.
const FUEL: u64 = 5_000_000;

/// Bytes that a template may write: more than any context holds.
const MAX_TEXT: usize = 16 << 20;

const NAME: &str = "chat";

/// A parsed chat template.
#[derive(Debug)]
pub struct Template {
    environment: Environment<'static>,
    takes_tools: bool,
    bos: String,
    eos: String,
}

/// How the model's earlier tool calls are rendered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Calls {
    /// As the text the model wrote, where it is recorded: its tokens are then those already in the cache.
    Verbatim,
    /// In the template's format.
    Formatted,
}

impl Template {
    /// Parses a template; ChatML if there is none. `bos` and `eos` are the texts of the tokens that begin and end a
    /// sequence.
    pub fn new(source: Option<String>, bos: String, eos: String) -> Result<Self, TemplateError> {
        let source = source.unwrap_or_else(|| CHATML.to_owned());
        let takes_tools = source.contains("tools");
        let mut environment = Environment::new();
        let mut syntax = SyntaxConfig::builder();
        let syntax = syntax.trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(TemplateError::Malformed)?);
        environment.set_fuel(Some(FUEL));
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_filter("tojson", to_json);
        environment.add_function("raise_exception", |why: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, why))
        });
        environment.add_function("strftime_now", |pattern: String| date::now(&pattern));
        environment.add_template_owned(NAME, source).map_err(TemplateError::Malformed)?;
        Ok(Self { environment, takes_tools, bos, eos })
    }

    /// Renders the prompt for the next response. `guard` is applied to all text of the messages and tools.
    pub fn render(
        &self,
        messages: &[Message],
        tools: &[ToolSpec],
        guard: &Guard,
    ) -> Result<String, TemplateError> {
        if !tools.is_empty() && !self.takes_tools {
            return Err(TemplateError::NoTools);
        }
        let has_verbatim =
            |message: &Message| matches!(message, Message::Assistant(it) if it.raw.is_some());
        match self.attempt(messages, tools, guard, Calls::Verbatim) {
            // Some templates insist that a tool result follows a tool call in their format.
            Err(TemplateError::Refused(_)) if messages.iter().any(has_verbatim) => {
                self.attempt(messages, tools, guard, Calls::Formatted)
            }
            rendered => rendered,
        }
    }

    fn attempt(
        &self,
        messages: &[Message],
        tools: &[ToolSpec],
        guard: &Guard,
        calls: Calls,
    ) -> Result<String, TemplateError> {
        let messages: Vec<_> = messages.iter().map(|message| turn(message, guard, calls)).collect();
        let tools: Vec<_> = tools.iter().map(|tool| tool_entry(tool, guard)).collect();
        let context = Context {
            messages,
            tools: (!tools.is_empty()).then_some(tools),
            add_generation_prompt: true,
            bos_token: &self.bos,
            eos_token: &self.eos,
        };
        let template = self.environment.get_template(NAME).map_err(TemplateError::Malformed)?;
        let mut text = Bounded::default();
        let rendered = template.render_captured_to(Serde(&context), &mut text);
        match rendered {
            Err(_) if text.full => Err(TemplateError::TooLong),
            Err(error) => Err(TemplateError::Refused(error)),
            Ok(_) => String::from_utf8(text.bytes).map_err(|error| {
                TemplateError::Refused(Error::new(ErrorKind::WriteFailure, error.to_string()))
            }),
        }
    }
}

/// The output of a template, up to [`MAX_TEXT`].
#[derive(Default)]
struct Bounded {
    bytes: Vec<u8>,
    /// Whether more was written than fits.
    full: bool,
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.full |= bytes.len() > MAX_TEXT - self.bytes.len();
        if self.full {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The variables of a template. For templates, absent tools differ from an empty list.
#[derive(Serialize)]
struct Context<'a> {
    messages: Vec<Turn>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<Vec<Tool>>,
    add_generation_prompt: bool,
    bos_token: &'a str,
    eos_token: &'a str,
}

#[derive(Serialize)]
struct Tool {
    #[serde(rename = "type")]
    kind: &'static str,
    function: ToolSpec,
}

#[derive(Serialize)]
struct Turn {
    role: &'static str,
    content: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Call>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

#[derive(Serialize)]
struct Call {
    id: String,
    #[serde(rename = "type")]
    kind: &'static str,
    function: Function,
}

#[derive(Serialize)]
struct Function {
    name: String,
    arguments: serde_json::Value,
}

/// A tool as templates see it. Its description comes from clients and is untrusted.
fn tool_entry(tool: &ToolSpec, guard: &Guard) -> Tool {
    let function = ToolSpec {
        name: guard.split(&tool.name),
        description: guard.split(&tool.description),
        parameters: split_value(&tool.parameters, guard),
    };
    Tool { kind: "function", function }
}

fn turn(message: &Message, guard: &Guard, calls: Calls) -> Turn {
    let plain = |role, text: &str| Turn {
        role,
        content: guard.split(text),
        reasoning_content: None,
        tool_calls: Vec::new(),
        tool_call_id: None,
        name: None,
    };
    match message {
        Message::System { text } => plain("system", text),
        Message::User { content } => plain("user", &text_of(content)),
        Message::Tool(result) => Turn {
            tool_call_id: Some(guard.split(&result.call_id)),
            name: Some(guard.split(&result.name)),
            ..plain("tool", &text_of(&result.content))
        },
        Message::Assistant(response) => assistant(response, guard, calls, plain),
    }
}

fn assistant(
    response: &Assistant,
    guard: &Guard,
    calls: Calls,
    plain: impl Fn(&'static str, &str) -> Turn,
) -> Turn {
    let role = "assistant";
    if let (Some(text), Calls::Verbatim) = (&response.raw, calls) {
        return plain(role, text);
    }
    let reasoning = (!response.reasoning.is_empty()).then(|| guard.split(&response.reasoning));
    Turn {
        reasoning_content: reasoning,
        tool_calls: response.calls.iter().map(|one| call(one, guard)).collect(),
        ..plain(role, &response.text)
    }
}

fn call(call: &ToolCall, guard: &Guard) -> Call {
    let arguments = match &call.arguments {
        Arguments::Object(map) => split_object(map, guard),
        Arguments::Malformed { malformed, .. } => json!({ "malformed": guard.split(malformed) }),
    };
    let function = Function { name: guard.split(&call.name), arguments };
    Call { id: guard.split(&call.id), kind: "function", function }
}

/// Guards every string of an object.
fn split_object(map: &Map<String, serde_json::Value>, guard: &Guard) -> serde_json::Value {
    let split = |(key, value): (&String, &_)| (guard.split(key), split_value(value, guard));
    serde_json::Value::Object(map.iter().map(split).collect())
}

fn split_value(value: &serde_json::Value, guard: &Guard) -> serde_json::Value {
    match value {
        serde_json::Value::String(text) => guard.split(text).into(),
        serde_json::Value::Array(items) => {
            items.iter().map(|item| split_value(item, guard)).collect()
        }
        serde_json::Value::Object(map) => split_object(map, guard),
        other => other.clone(),
    }
}

/// The texts, joined. Images are not supported; the model gets a placeholder.
fn text_of(content: &[Content]) -> String {
    let shown = content.iter().map(|part| part.as_text().unwrap_or("[a picture, not shown]"));
    shown.collect::<Vec<_>>().join("\n")
}

/// JSON as models were trained on it, that is as Python writes it: with spaces after commas and colons, and nothing
/// escaped for HTML.
fn to_json(value: &Value, options: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let mut text = Vec::new();
    let written = match indent {
        Some(indent) => {
            let spaces = " ".repeat(indent.min(16));
            let pretty = serde_json::ser::PrettyFormatter::with_indent(spaces.as_bytes());
            value.serialize(&mut serde_json::Serializer::with_formatter(&mut text, pretty))
        }
        None => value.serialize(&mut serde_json::Serializer::with_formatter(&mut text, Spaced)),
    };
    let bad = |error: String| Error::new(ErrorKind::BadSerialization, error);
    written.map_err(|error| bad(error.to_string()))?;
    let text = String::from_utf8(text).map_err(|error| bad(error.to_string()))?;
    Ok(Value::from_safe_string(text))
}

/// One line, with spaces as Python writes them.
struct Spaced;

impl serde_json::ser::Formatter for Spaced {
    fn begin_array_value<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
    ) -> std::io::Result<()> {
        writer.write_all(b": ")
    }
}

#[cfg(test)]
#[path = "template_tests.rs"]
mod tests;
