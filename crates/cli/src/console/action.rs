//! Tool calls and their results as text. Calls of unknown tools and malformed calls are shown as they are.

use std::time::Duration;

use serde_json::{Map, Value};
use trajectory::{Arguments, Content, Message, Observed, ToolCall};

use super::{
    format::{Part, head_and_tail, lines, one_line, time},
    styled::{Style, StyledBuffer},
};

/// Precedes each line of a result, which could otherwise look like one of the view.
const GUTTER: &str = "│ ";
/// Characters of a call shown in one line.
const MAX_SUMMARY: usize = 100;
/// Characters of a path or an error.
const MAX_TEXT: usize = 300;

/// Shows a call in full.
pub(super) fn call(out: &mut StyledBuffer, call: &ToolCall) {
    let arguments = match &call.arguments {
        Arguments::Object(arguments) => arguments,
        Arguments::Malformed { malformed, why } => {
            let why = one_line(why, MAX_TEXT);
            out.line(Style::Warning, &format!("{} (malformed: {why})", name(call)));
            return preview(out, "  ", malformed, 4);
        }
    };
    match (call.name.as_str(), text(arguments, "command")) {
        ("execute_bash", Some(command)) => bash(out, command),
        ("str_replace_editor", Some(command)) => edit(out, command, arguments),
        _ => {
            out.put(Style::Mark, &name(call));
            let given = if arguments.is_empty() { String::new() } else { json(arguments) };
            out.line(Style::Normal, &given);
        }
    }
}

/// Shows a call in one line, after its text has streamed.
pub(super) fn mark(out: &mut StyledBuffer, call: &ToolCall) {
    out.put(Style::Mark, "→ ");
    let given = match &call.arguments {
        Arguments::Object(arguments) => arguments,
        Arguments::Malformed { why, .. } => {
            let why = one_line(why, MAX_TEXT);
            return out.line(Style::Warning, &format!("{} (malformed: {why})", name(call)));
        }
    };
    let summary = match (call.name.as_str(), text(given, "command")) {
        ("execute_bash", Some(command)) => format!("$ {}", one_line(command, MAX_SUMMARY)),
        ("str_replace_editor", Some(command)) => edit_title(command, given),
        _ => name(call),
    };
    out.line(Style::Mark, &summary);
}

/// Shows the result of a call, without its middle if it is long.
pub(super) fn observation(out: &mut StyledBuffer, observed: &Observed) {
    let (content, style) = match &observed.message {
        // The result of a submission is of no interest.
        Message::Tool(result) if result.name == "submit" && !result.is_error => return,
        Message::Tool(result) if result.is_error => (&result.content, Style::Warning),
        Message::Tool(result) => (&result.content, Style::Dim),
        Message::User { content } => (content, Style::Warning),
        Message::System { .. } | Message::Assistant(_) => return,
    };
    for part in content {
        match part {
            Content::Text { text } => cut(out, style, GUTTER, text, 8, 7),
            Content::Image { media_type, .. } => {
                let kind = one_line(media_type, MAX_SUMMARY);
                out.line(style, &format!("{GUTTER}[image: {kind}]"));
            }
        }
    }
    if let Some(code) = observed.exit_code {
        let style = if code == 0 { Style::Good } else { Style::Bad };
        let took = time(Duration::from_millis(observed.millis));
        out.put(style, &format!("exit {code}"));
        out.line(Style::Dim, &format!(" · {took}"));
    }
}

fn bash(out: &mut StyledBuffer, command: &str) {
    let mut lead = "$ ";
    for part in head_and_tail(command.trim_end(), 30, 10) {
        match part {
            Part::Line(line) => {
                out.put(Style::Mark, lead);
                out.line(Style::Normal, &line);
            }
            Part::Hidden(number) => hidden(out, "  ", number),
        }
        lead = "  ";
    }
    if lead == "$ " {
        out.line(Style::Mark, "$");
    }
}

fn edit(out: &mut StyledBuffer, command: &str, arguments: &Map<String, Value>) {
    out.line(Style::Mark, &edit_title(command, arguments));
    let given = |key| text(arguments, key).unwrap_or_default();
    match command {
        "create" => preview(out, "  ", given("file_text"), 4),
        "str_replace" => {
            preview(out, "- ", given("old_str"), 3);
            preview(out, "+ ", given("new_str"), 3);
        }
        "insert" => preview(out, "+ ", given("new_str"), 3),
        _ => {}
    }
}

fn edit_title(command: &str, arguments: &Map<String, Value>) -> String {
    let path = one_line(text(arguments, "path").unwrap_or("?"), MAX_TEXT);
    let size = |key| lines(text(arguments, key).unwrap_or_default().lines().count());
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

fn preview(out: &mut StyledBuffer, lead: &str, text: &str, shown: usize) {
    cut(out, Style::Dim, lead, text, shown, 1);
}

fn cut(out: &mut StyledBuffer, style: Style, lead: &str, text: &str, head: usize, tail: usize) {
    for part in head_and_tail(text, head, tail) {
        match part {
            Part::Line(line) => out.line(style, &format!("{lead}{line}")),
            Part::Hidden(number) => hidden(out, lead, number),
        }
    }
}

fn hidden(out: &mut StyledBuffer, lead: &str, number: usize) {
    out.line(Style::Dim, &format!("{lead}… {} more …", lines(number)));
}

fn text<'a>(arguments: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    arguments.get(key).and_then(Value::as_str)
}

fn name(call: &ToolCall) -> String {
    let name = one_line(&call.name, MAX_SUMMARY);
    if name.is_empty() { "(unnamed tool)".into() } else { name }
}

/// The arguments in one line, after a space.
fn json(arguments: &Map<String, Value>) -> String {
    let text = serde_json::to_string(arguments).unwrap_or_default();
    format!(" {}", one_line(&text, MAX_TEXT))
}
