//! How tool calls and their results look. Knows the tools by name only, and shows a call of any other, or
//! one that makes no sense, as it came.

use std::time::Duration;

use serde_json::{Map, Value};
use trajectory::{Arguments, Content, Message, Observed, ToolCall};

use super::{
    figures::{Part, head_and_tail, lines, one_line, time},
    ink::{Ink, Style},
};

/// Before each line of a result, which could otherwise pass for one of ours.
const GUTTER: &str = "│ ";
/// Characters of a call that is told in one line.
const MARK: usize = 100;
/// Characters of a path or a complaint.
const WORDS: usize = 300;

/// Shows a call as a whole.
pub(super) fn call(ink: &mut Ink, call: &ToolCall) {
    let arguments = match &call.arguments {
        Arguments::Object(arguments) => arguments,
        Arguments::Malformed { malformed, why } => {
            let why = one_line(why, WORDS);
            ink.line(Style::Warning, &format!("{} (malformed: {why})", name(call)));
            return preview(ink, "  ", malformed, 4);
        }
    };
    match (call.name.as_str(), word(arguments, "command")) {
        ("execute_bash", Some(command)) => bash(ink, command),
        ("str_replace_editor", Some(command)) => edit(ink, command, arguments),
        _ => {
            ink.put(Style::Mark, &name(call));
            let given = if arguments.is_empty() { String::new() } else { json(arguments) };
            ink.line(Style::Normal, &given);
        }
    }
}

/// Shows a call in one line, where its text was already seen.
pub(super) fn mark(ink: &mut Ink, call: &ToolCall) {
    ink.put(Style::Mark, "→ ");
    let given = match &call.arguments {
        Arguments::Object(arguments) => arguments,
        Arguments::Malformed { why, .. } => {
            let why = one_line(why, WORDS);
            return ink.line(Style::Warning, &format!("{} (malformed: {why})", name(call)));
        }
    };
    let summary = match (call.name.as_str(), word(given, "command")) {
        ("execute_bash", Some(command)) => format!("$ {}", one_line(command, MARK)),
        ("str_replace_editor", Some(command)) => edit_title(command, given),
        _ => name(call),
    };
    ink.line(Style::Mark, &summary);
}

/// Shows what came of a call, its middle left out where it is long.
pub(super) fn observation(ink: &mut Ink, observed: &Observed) {
    let (content, style) = match &observed.message {
        // Whoever submits gets to see nothing worth telling.
        Message::Tool(result) if result.name == "submit" && !result.is_error => return,
        Message::Tool(result) if result.is_error => (&result.content, Style::Warning),
        Message::Tool(result) => (&result.content, Style::Dim),
        Message::User { content } => (content, Style::Warning),
        Message::System { .. } | Message::Assistant(_) => return,
    };
    for part in content {
        match part {
            Content::Text { text } => cut(ink, style, GUTTER, text, 8, 7),
            Content::Image { media_type, .. } => {
                let kind = one_line(media_type, MARK);
                ink.line(style, &format!("{GUTTER}[a picture: {kind}]"));
            }
        }
    }
    if let Some(code) = observed.exit_code {
        let style = if code == 0 { Style::Good } else { Style::Bad };
        let took = time(Duration::from_millis(observed.millis));
        ink.put(style, &format!("exit {code}"));
        ink.line(Style::Dim, &format!(" · {took}"));
    }
}

fn bash(ink: &mut Ink, command: &str) {
    let mut lead = "$ ";
    for part in head_and_tail(command.trim_end(), 30, 10) {
        match part {
            Part::Line(line) => {
                ink.put(Style::Mark, lead);
                ink.line(Style::Normal, &line);
            }
            Part::Hidden(number) => hidden(ink, "  ", number),
        }
        lead = "  ";
    }
    if lead == "$ " {
        ink.line(Style::Mark, "$");
    }
}

fn edit(ink: &mut Ink, command: &str, arguments: &Map<String, Value>) {
    ink.line(Style::Mark, &edit_title(command, arguments));
    let given = |key| word(arguments, key).unwrap_or_default();
    match command {
        "create" => preview(ink, "  ", given("file_text"), 4),
        "str_replace" => {
            preview(ink, "- ", given("old_str"), 3);
            preview(ink, "+ ", given("new_str"), 3);
        }
        "insert" => preview(ink, "+ ", given("new_str"), 3),
        _ => {}
    }
}

fn edit_title(command: &str, arguments: &Map<String, Value>) -> String {
    let path = one_line(word(arguments, "path").unwrap_or("?"), WORDS);
    let size = |key| lines(word(arguments, key).unwrap_or_default().lines().count());
    let more = match command {
        "create" => format!(" ({})", size("file_text")),
        "str_replace" => format!(" ({} for {})", size("new_str"), size("old_str")),
        "insert" => {
            let after = arguments.get("insert_line").map(Value::to_string).unwrap_or_default();
            format!(" ({} after line {})", size("new_str"), one_line(&after, 20))
        }
        "view" => match arguments.get("view_range").and_then(Value::as_array).map(Vec::as_slice) {
            Some([from, to]) => format!(" {}", one_line(&format!("lines {from} to {to}"), 60)),
            _ => String::new(),
        },
        _ => String::new(),
    };
    format!("edit {} {path}{more}", one_line(command, 40))
}

fn preview(ink: &mut Ink, lead: &str, text: &str, shown: usize) {
    cut(ink, Style::Dim, lead, text, shown, 1);
}

fn cut(ink: &mut Ink, style: Style, lead: &str, text: &str, head: usize, tail: usize) {
    for part in head_and_tail(text, head, tail) {
        match part {
            Part::Line(line) => ink.line(style, &format!("{lead}{line}")),
            Part::Hidden(number) => hidden(ink, lead, number),
        }
    }
}

fn hidden(ink: &mut Ink, lead: &str, number: usize) {
    ink.line(Style::Dim, &format!("{lead}… {} more …", lines(number)));
}

fn word<'a>(arguments: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    arguments.get(key).and_then(Value::as_str)
}

fn name(call: &ToolCall) -> String {
    let name = one_line(&call.name, MARK);
    if name.is_empty() { "a tool without a name".into() } else { name }
}

/// The arguments in one line, behind a gap.
fn json(arguments: &Map<String, Value>) -> String {
    let text = serde_json::to_string(arguments).unwrap_or_default();
    format!(" {}", one_line(&text, WORDS))
}
