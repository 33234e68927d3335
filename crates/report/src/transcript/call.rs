//! One tool call: the command, the edit as a diff, or the arguments; and its result.

use std::fmt::Write;

use serde_json::Value;
use trajectory::{Step, THEN_SUBMIT};

use super::{
    cut::{Look, Room, write},
    text::{counted, isolated, time},
};
use crate::text::excerpt;

/// Characters of a tool's name or a path.
const NAME: usize = 300;

/// Writes the call of a step and its result; nothing where there is neither.
pub(super) fn step(out: &mut String, number: usize, alone: bool, step: &Step, room: Room<'_>) {
    let function = step.action.function.as_str();
    if function.is_empty() {
        if !step.observation.trim().is_empty() {
            out.push_str(
                "<section class=\"call note\"><header><b>Message to the model</b></header>",
            );
            write(out, Look::Code, &step.observation, room);
            out.push_str("</section>");
        }
        return;
    }
    let label = if alone { String::new() } else { format!("Step {number} · ") };
    let _ = write!(
        out,
        "<section class=\"call\"{}><header><b>{label}{}</b><span>{}</span></header>",
        if alone { String::new() } else { format!(" id=\"step-{number}\"") },
        isolated(&title(function, &step.action.parameters)),
        status(step),
    );
    arguments(out, function, &step.action.parameters, room);
    if !step.observation.trim().is_empty() {
        out.push_str("<div class=\"out\">");
        write(out, Look::Code, &step.observation, room);
        out.push_str("</div>");
    }
    out.push_str("</section>");
}

/// The exit code and the duration.
fn status(step: &Step) -> String {
    let mut parts = Vec::new();
    if let Some(code) = step.metadata.get("exit_code").and_then(Value::as_i64) {
        let class = if code == 0 { "good" } else { "bad" };
        parts.push(format!("<span class=\"chip {class}\">exit {code}</span>"));
    }
    if step.metadata.get(THEN_SUBMIT) == Some(&Value::Bool(true)) {
        parts.push("then <b>submit</b>".to_owned());
    }
    let seconds = step.metadata.get("tool_time").and_then(Value::as_f64);
    if let Some(seconds) = seconds.filter(|seconds| seconds.is_finite() && *seconds >= 0.0) {
        parts.push(time((seconds * 1000.0) as u64));
    }
    parts.join(" ")
}

/// The tool, and for an edit its path.
fn title(function: &str, parameters: &Value) -> String {
    let given = |key: &str| parameters.get(key).and_then(Value::as_str);
    match (function, given("command"), given("path")) {
        ("str_replace_editor", Some(command), Some(path)) => {
            let lines = |key: &str| counted(given(key).unwrap_or_default().lines().count(), "line");
            let more = match command {
                "create" => format!(" ({})", lines("file_text")),
                "insert" => {
                    let after = parameters.get("insert_line").and_then(Value::as_u64);
                    after.map(|line| format!(" after line {line}")).unwrap_or_default()
                }
                "view" => match parameters.get("view_range").and_then(Value::as_array) {
                    Some(range) if range.len() == 2 => {
                        format!(" {}", excerpt(&format!("lines {} to {}", range[0], range[1]), 60))
                    }
                    _ => String::new(),
                },
                _ => String::new(),
            };
            format!("{} {}{more}", excerpt(command, 40), excerpt(path, NAME))
        }
        _ => excerpt(function, NAME),
    }
}

fn arguments(out: &mut String, function: &str, parameters: &Value, room: Room<'_>) {
    let given = |key: &str| parameters.get(key).and_then(Value::as_str);
    match (function, given("command")) {
        ("execute_bash", Some(command)) => write(out, Look::Command, command, room),
        ("str_replace_editor", Some("create")) => {
            write(out, Look::Code, given("file_text").unwrap_or_default(), room);
        }
        ("str_replace_editor", Some("insert")) => {
            write(out, Look::Added, &marked("+ ", given("new_str").unwrap_or_default()), room);
        }
        ("str_replace_editor", Some("str_replace")) => {
            let new = given("new_str").unwrap_or_default();
            diff(out, given("old_str").unwrap_or_default(), new, room);
        }
        ("str_replace_editor", Some("view")) => {}
        ("submit", None) if given("answer").is_some() => {
            write(out, Look::Code, given("answer").unwrap_or_default(), room);
        }
        _ => match parameters {
            Value::Null => {}
            Value::Object(map) if map.is_empty() => {}
            // Arguments that could not be parsed.
            Value::String(text) => write(out, Look::Code, text, room),
            other => {
                let text = serde_json::to_string_pretty(other).unwrap_or_default();
                write(out, Look::Code, &text, room);
            }
        },
    }
}

/// Writes the lines that are removed and added, with those that stay around them.
fn diff(out: &mut String, old: &str, new: &str, room: Room<'_>) {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let before = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let ends = old[before..].iter().rev().zip(new[before..].iter().rev());
    let after = ends.take_while(|(a, b)| a == b).count();
    write(out, Look::Code, &marked_lines("  ", &old[..before]), room);
    write(out, Look::Removed, &marked_lines("- ", &old[before..old.len() - after]), room);
    write(out, Look::Added, &marked_lines("+ ", &new[before..new.len() - after]), room);
    write(out, Look::Code, &marked_lines("  ", &old[old.len() - after..]), room);
}

fn marked(mark: &str, text: &str) -> String {
    marked_lines(mark, &text.lines().collect::<Vec<_>>())
}

fn marked_lines(mark: &str, lines: &[&str]) -> String {
    lines.iter().map(|line| format!("{mark}{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trajectory::Action;

    use super::*;

    fn shown(function: &str, parameters: Value) -> String {
        let action = Action { function: function.to_owned(), parameters };
        let metadata = json!({"exit_code": 1, "tool_time": 0.25}).as_object().unwrap().clone();
        let mut out = String::new();
        let room = Room { most: 10_000, source: "" };
        step(&mut out, 3, true, &Step { action, metadata, ..Step::default() }, room);
        out
    }

    #[test]
    fn commands_show_their_exit_code_and_duration() {
        let html = shown("execute_bash", json!({"command": "ls <x>\nfalse"}));
        assert!(html.contains("<pre class=\"cmd\">ls &lt;x&gt;\nfalse</pre>"), "{html}");
        assert!(html.contains("<span class=\"chip bad\">exit 1</span> 250 ms"), "{html}");
    }

    #[test]
    fn edits_are_diffs() {
        let change = json!({"command": "str_replace", "path": "/a&b", "old_str": "1\n2\n3", "new_str": "1\n<4>\n3"});
        let html = shown("str_replace_editor", change);
        assert!(html.contains("<b>str_replace /a&amp;b</b>"), "{html}");
        let lines = "<pre>  1</pre><pre class=\"del\">- 2</pre><pre class=\"ins\">+ &lt;4&gt;</pre><pre>  3</pre>";
        assert!(html.contains(lines), "{html}");
        let create = json!({"command": "create", "path": "/x.py", "file_text": "a\nb\n"});
        let html = shown("str_replace_editor", create);
        assert!(html.contains("<b>create /x.py (2 lines)</b>"), "{html}");
        assert!(html.contains("<pre>a\nb</pre>"), "{html}");
        let view = json!({"command": "view", "path": "/x.py", "view_range": [1, "</b>"]});
        let html = shown("str_replace_editor", view);
        assert!(html.contains("<b>view /x.py lines 1 to &quot;&lt;/b&gt;&quot;</b>"), "{html}");
    }

    #[test]
    fn unknown_and_malformed_calls_are_shown_as_they_are() {
        let html = shown("<img>", json!({"a": ["</script>"]}));
        assert!(html.contains("<b>&lt;img&gt;</b>") && html.contains("&lt;/script&gt;"), "{html}");
        assert!(shown("execute_bash", json!("{\"comm")).contains("{&quot;comm"));
        assert!(shown("execute_bash", json!({"command": 7})).contains("&quot;command&quot;: 7"));
    }
}
