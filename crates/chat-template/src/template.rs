//! A conversation as the text a model was trained on, by the chat template in its file.
//!
//! The template is a stranger's program: it reads nothing, and the instructions it executes and the text it writes are
//! bounded. What it keeps in memory meanwhile is not.

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
    /// It is no template.
    #[error("the model's chat template is malformed")]
    Malformed(#[source] Error),
    /// It failed, or refused the conversation.
    #[error("the model's chat template refuses the conversation: {0:#}")]
    Refused(Error),
    /// It writes without end.
    #[error("the model's chat template writes more than {} MiB", MOST_TEXT >> 20)]
    TooLong,
    /// It has no place for tools.
    #[error("the model's chat template does not support tools")]
    NoTools,
}

/// The form in which a model without a template is addressed.
const CHATML: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n\
    {{ message.content }}<|im_end|>\n{% endfor %}{{ '<|im_start|>assistant\n' }}";

/// Instructions a template may execute: hundreds for each of ten thousand messages.
const FUEL: u64 = 5_000_000;

/// Bytes a template may write: more than any context holds.
const MOST_TEXT: usize = 16 << 20;

const NAME: &str = "chat";

/// A template, ready for use.
#[derive(Debug)]
pub struct Template {
    environment: Environment<'static>,
    takes_tools: bool,
    bos: String,
    eos: String,
}

/// How earlier calls of the model are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Calls {
    /// In the model's own words, where they are known: what it said once need not be evaluated again.
    AsSaid,
    /// In the template's form.
    InForm,
}

impl Template {
    /// The template of this text, or ChatML without one. `bos` and `eos` are the texts of the model's
    /// first and last token.
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

    /// The prompt for the next reply. `guard` splits what must stay text.
    pub fn render(
        &self,
        messages: &[Message],
        tools: &[ToolSpec],
        guard: &Guard,
    ) -> Result<String, TemplateError> {
        if !tools.is_empty() && !self.takes_tools {
            return Err(TemplateError::NoTools);
        }
        let said =
            |message: &Message| matches!(message, Message::Assistant(it) if it.said.is_some());
        match self.attempt(messages, tools, guard, Calls::AsSaid) {
            // Some templates insist that a tool's answer follows a call in their form.
            Err(TemplateError::Refused(_)) if messages.iter().any(said) => {
                self.attempt(messages, tools, guard, Calls::InForm)
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
        let tools: Vec<_> = tools.iter().map(|tool| offered(tool, guard)).collect();
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

/// What a template writes, up to [`MOST_TEXT`].
#[derive(Default)]
struct Bounded {
    bytes: Vec<u8>,
    /// More was to be written.
    full: bool,
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.full |= bytes.len() > MOST_TEXT - self.bytes.len();
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

/// What a template sees. Absent tools are not the same as none.
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

/// A tool as templates see it. Clients describe tools, and may do so in others' words.
fn offered(tool: &ToolSpec, guard: &Guard) -> Tool {
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
        Message::Assistant(said) => assistant(said, guard, calls, plain),
    }
}

fn assistant(
    said: &Assistant,
    guard: &Guard,
    calls: Calls,
    plain: impl Fn(&'static str, &str) -> Turn,
) -> Turn {
    let role = "assistant";
    if let (Some(words), Calls::AsSaid) = (&said.said, calls) {
        return plain(role, words);
    }
    let reasoning = (!said.reasoning.is_empty()).then(|| guard.split(&said.reasoning));
    Turn {
        reasoning_content: reasoning,
        tool_calls: said.calls.iter().map(|one| call(one, guard)).collect(),
        ..plain(role, &said.text)
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

/// The arguments with every text in them guarded.
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

/// The texts, joined. Pictures are beyond these models, and the model is told so.
fn text_of(content: &[Content]) -> String {
    let shown = content.iter().map(|part| part.as_text().unwrap_or("[a picture, not shown]"));
    shown.collect::<Vec<_>>().join("\n")
}

/// JSON as models were trained on it: with blanks behind commas and colons, and nothing escaped for HTML.
fn to_json(value: &Value, options: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let mut text = Vec::new();
    let written = match indent {
        Some(indent) => {
            let blanks = " ".repeat(indent.min(16));
            let pretty = serde_json::ser::PrettyFormatter::with_indent(blanks.as_bytes());
            value.serialize(&mut serde_json::Serializer::with_formatter(&mut text, pretty))
        }
        None => value.serialize(&mut serde_json::Serializer::with_formatter(&mut text, Spaced)),
    };
    let bad = |error: String| Error::new(ErrorKind::BadSerialization, error);
    written.map_err(|error| bad(error.to_string()))?;
    let text = String::from_utf8(text).map_err(|error| bad(error.to_string()))?;
    Ok(Value::from_safe_string(text))
}

/// One line, with blanks as Python writes them.
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
