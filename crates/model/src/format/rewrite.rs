//! Turns a conversation with tool calls into one of plain text, for servers and models without tools.
//!
//! What the model said goes back as it said it. Calls from elsewhere are written in the same form.

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
pub(super) enum Form {
    /// JSON between `<tool_call>` tags.
    Hermes,
    /// One tag per argument.
    Qwen3Coder,
    /// A block of commands.
    Fenced,
}

impl Form {
    /// What a reply in this form is forced into, if it can be.
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
pub(super) fn rewrite(messages: &[Message], tools: &[ToolSpec], form: Form) -> Vec<Message> {
    let mut out: Vec<Message> = Vec::with_capacity(messages.len() + 1);
    let told = instructions(tools, form);
    if !matches!(messages.first(), Some(Message::System { .. })) {
        out.push(Message::System { text: told.clone() });
    }
    let task = messages.iter().position(|message| matches!(message, Message::User { .. }));
    let mut turn = Turn::Own;
    for (at, message) in messages.iter().enumerate() {
        if form == Form::Fenced && Some(at) == task {
            out.extend(example(message));
        }
        match message {
            Message::System { text } if at == 0 => {
                out.push(Message::System { text: format!("{}\n\n{told}", text.trim_end()) });
            }
            Message::System { .. } => out.push(message.clone()),
            Message::Assistant(said) => out.push(Message::Assistant(plain(said, form))),
            Message::Tool(result) => add(&mut out, shown(result, form), turn),
            Message::User { content } => add(&mut out, content.clone(), turn),
        }
        turn = match (message, turn) {
            (Message::Tool(_), _) | (Message::User { .. }, Turn::OfResults) => Turn::OfResults,
            _ => Turn::Own,
        };
    }
    out
}

/// Whether the last message holds results. Then what follows joins it: many templates want user and
/// assistant to take turns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    OfResults,
    Own,
}

fn add(out: &mut Vec<Message>, parts: Vec<Content>, turn: Turn) {
    match out.last_mut() {
        Some(Message::User { content }) if turn == Turn::OfResults => {
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

fn instructions(tools: &[ToolSpec], form: Form) -> String {
    let prompt = match form {
        Form::Hermes => include_str!("../../prompts/hermes.txt"),
        Form::Qwen3Coder => include_str!("../../prompts/qwen3-coder.txt"),
        Form::Fenced => include_str!("../../prompts/fenced.txt"),
    };
    if form != Form::Fenced {
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

fn plain(message: &Assistant, form: Form) -> Assistant {
    let text = match &message.said {
        Some(said) => said.clone(),
        None => {
            let mut text = message.text.clone();
            for call in &message.calls {
                if !text.is_empty() {
                    text.push('\n');
                }
                write(call, form, &mut text);
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

fn write(call: &ToolCall, form: Form, out: &mut String) {
    let command = match &call.arguments {
        Arguments::Object(map) => map.get("command").and_then(|value| value.as_str()),
        Arguments::Malformed { .. } => None,
    };
    match (form, call.name.as_str(), command) {
        (Form::Qwen3Coder, ..) => xml::write(call, out),
        (Form::Fenced, BASH, Some(command)) => block(command, out),
        (Form::Fenced, SUBMIT, _) => block(SUBMIT, out),
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

fn shown(result: &ToolResult, form: Form) -> Vec<Content> {
    let (text, pictures): (Vec<_>, Vec<_>) =
        result.content.iter().partition(|part| part.as_text().is_some());
    let text = text.into_iter().filter_map(Content::as_text).collect::<Vec<_>>().join("\n");
    let text = match form {
        Form::Hermes | Form::Qwen3Coder => format!("<tool_response>\n{text}\n</tool_response>"),
        Form::Fenced => text,
    };
    std::iter::once(Content::text(text)).chain(pictures.into_iter().cloned()).collect()
}
