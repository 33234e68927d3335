//! Converts a conversation with tool calls to plain text, for servers and models without native tool calls.
//!
//! The model's own text is sent back unchanged. Calls from elsewhere are written in the same format.

use serde_json::json;
use trajectory::{Arguments, Assistant, Content, Message, ToolCall, ToolResult};

use super::{
    example::example,
    fenced::{BASH, SUBMIT},
    xml,
};
use crate::{Before, Body, Shape, ToolSpec};

/// How calls are written in text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextFormat {
    /// JSON between `<tool_call>` tags.
    Hermes,
    /// One tag per argument.
    Qwen3Coder,
    /// A block of commands.
    Fenced,
}

impl TextFormat {
    /// The shape that constrains a response to this format, if there is one.
    pub(super) fn shape(self, tools: &[ToolSpec], before: Before) -> Option<Shape> {
        let shape = |opens: &str, then: &str, body, closes: &str| Shape {
            before,
            opens: opens.into(),
            then: then.into(),
            body,
            closes: closes.into(),
        };
        match self {
            Self::Hermes => {
                let body = Body::Call(tools.to_vec());
                Some(shape("<tool_call>", "\n", body, "\n</tool_call>"))
            }
            Self::Fenced => Some(shape("```", "bash\n", Body::Text, "\n```")),
            Self::Qwen3Coder => None,
        }
    }
}

/// The conversation in plain text.
pub(super) fn rewrite(
    messages: &[Message],
    tools: &[ToolSpec],
    text_format: TextFormat,
) -> Vec<Message> {
    let mut out: Vec<Message> = Vec::with_capacity(messages.len() + 1);
    let instructions = instructions(tools, text_format);
    if !matches!(messages.first(), Some(Message::System { .. })) {
        out.push(Message::System { text: instructions.clone() });
    }
    let task = messages.iter().position(|message| matches!(message, Message::User { .. }));
    let mut turn = Turn::Own;
    for (at, message) in messages.iter().enumerate() {
        if text_format == TextFormat::Fenced && Some(at) == task {
            out.extend(example(message));
        }
        match message {
            Message::System { text } if at == 0 => {
                out.push(Message::System {
                    text: format!("{}\n\n{instructions}", text.trim_end()),
                });
            }
            Message::System { .. } => out.push(message.clone()),
            Message::Assistant(message) => {
                out.push(Message::Assistant(plain(message, text_format)))
            }
            Message::Tool(result) => add(&mut out, shown(result, text_format), turn),
            Message::User { content } => add(&mut out, content.clone(), turn),
        }
        turn = match (message, turn) {
            (Message::Tool(_), _) | (Message::User { .. }, Turn::Results) => Turn::Results,
            _ => Turn::Own,
        };
    }
    out
}

/// Whether the last message contains tool results. Then what follows is merged into it: many templates require that
/// user and assistant alternate.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Results,
    Own,
}

fn add(out: &mut Vec<Message>, parts: Vec<Content>, turn: Turn) {
    match out.last_mut() {
        Some(Message::User { content }) if turn == Turn::Results => {
            for part in parts {
                match (content.last_mut(), part) {
                    (Some(Content::Text { text }), Content::Text { text: more }) => {
                        text.push_str("\n\n");
                        text.push_str(&more);
                    }
                    (_, part) => content.push(part),
                }
            }
        }
        _ => out.push(Message::User { content: parts }),
    }
}

fn instructions(tools: &[ToolSpec], text_format: TextFormat) -> String {
    let prompt = match text_format {
        TextFormat::Hermes => include_str!("../../prompts/hermes.txt"),
        TextFormat::Qwen3Coder => include_str!("../../prompts/qwen3-coder.txt"),
        TextFormat::Fenced => include_str!("../../prompts/fenced.txt"),
    };
    if text_format != TextFormat::Fenced {
        let listed = tools.iter().map(|tool| serde_json::to_string(tool).unwrap_or_default());
        let listed = listed.collect::<Vec<_>>().join("\n");
        return prompt.trim_end().replacen("{tools}", &listed, 1);
    }
    let others = tools.iter().filter(|tool| ![BASH, SUBMIT].contains(&tool.name.as_str()));
    let lines = others.map(|tool| {
        format!("\n`{}` may be mentioned. You do not need it: the shell does the same.", tool.name)
    });
    format!("{}\n{}", prompt.trim_end(), lines.collect::<String>()).trim_end().to_owned()
}

fn plain(message: &Assistant, text_format: TextFormat) -> Assistant {
    let text = match &message.raw {
        Some(raw) => raw.clone(),
        None => {
            let mut text = message.text.clone();
            let ends_with_submit = message.then_submit && text_format == TextFormat::Fenced;
            for (at, call) in message.calls.iter().enumerate() {
                if !text.is_empty() {
                    text.push('\n');
                }
                let is_last = at + 1 == message.calls.len();
                match command(call) {
                    Some(command) if is_last && ends_with_submit => {
                        block(&format!("{}\n{SUBMIT}", command.trim_end()), &mut text);
                    }
                    _ => write(call, text_format, &mut text),
                }
            }
            text
        }
    };
    Assistant {
        text,
        reasoning: message.reasoning.clone(),
        opaque: message.opaque.clone(),
        ..Assistant::default()
    }
}

/// The command of a call, if it has one.
fn command(call: &ToolCall) -> Option<&str> {
    match &call.arguments {
        Arguments::Object(map) => map.get("command").and_then(|value| value.as_str()),
        Arguments::Malformed { .. } => None,
    }
}

fn write(call: &ToolCall, text_format: TextFormat, out: &mut String) {
    match (text_format, call.name.as_str(), command(call)) {
        (TextFormat::Qwen3Coder, ..) => xml::write(call, out),
        (TextFormat::Fenced, BASH, Some(command)) => block(command, out),
        (TextFormat::Fenced, SUBMIT, _) => block(SUBMIT, out),
        _ => {
            let body = match &call.arguments {
                Arguments::Object(map) => json!({"name": call.name, "arguments": map}).to_string(),
                Arguments::Malformed { malformed, .. } => malformed.clone(),
            };
            out.push_str(&format!("<tool_call>\n{body}\n</tool_call>"));
        }
    }
}

fn block(commands: &str, out: &mut String) {
    out.push_str(&format!("```bash\n{}\n```", commands.trim_end()));
}

fn shown(result: &ToolResult, text_format: TextFormat) -> Vec<Content> {
    let (text, pictures): (Vec<_>, Vec<_>) =
        result.content.iter().partition(|part| part.as_text().is_some());
    let text = text.into_iter().filter_map(Content::as_text).collect::<Vec<_>>().join("\n");
    let text = match text_format {
        TextFormat::Hermes | TextFormat::Qwen3Coder => {
            format!("<tool_response>\n{text}\n</tool_response>")
        }
        TextFormat::Fenced => text,
    };
    std::iter::once(Content::text(text)).chain(pictures.into_iter().cloned()).collect()
}
