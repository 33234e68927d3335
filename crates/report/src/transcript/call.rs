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
                "<div class=\"reminder\"><span class=\"label\">Message to the model</span>",
            );
            write(out, Look::Output, &step.observation, room);
            out.push_str("</div>");
        }
        return;
    }
    let label = if alone { String::new() } else { format!("Step {number} · ") };
    let _ = write!(
        out,
        "<section class=\"call{}\"{}><div class=\"call-head\"><span class=\"tool\">{label}{}</span>{}<span class=\"grow\"></span>{}</div>",
        if exit_code(step).is_some_and(|code| code != 0) { " call-failed" } else { "" },
        if alone { String::new() } else { format!(" id=\"step-{number}\"") },
        isolated(&excerpt(function, NAME)),
        edited(function, &step.action.parameters),
        status(step),
    );
    arguments(out, function, &step.action.parameters, room);
    if !step.observation.trim().is_empty() {
        match without_exit_code(step) {
            rest if rest.trim().is_empty() => {
                out.push_str("<p class=\"soft small\">no output</p>");
            }
            rest => write(out, Look::Output, rest, room),
        }
    }
    out.push_str("</section>");
}

/// The result of a step without its exit code, which is shown beside the call.
fn without_exit_code(step: &Step) -> &str {
    let line = exit_code(step).map(|code| format!("[exit code {code}]"));
    let rest = line.and_then(|line| step.observation.strip_prefix(line.as_str()));
    match rest {
        Some("") => "",
        Some(rest) => rest.strip_prefix('\n').unwrap_or(&step.observation),
        None => &step.observation,
    }
}

fn exit_code(step: &Step) -> Option<i64> {
    step.metadata.get("exit_code").and_then(Value::as_i64)
}

/// The exit code and the duration.
fn status(step: &Step) -> String {
    let mut parts = String::new();
    if let Some(code) = exit_code(step) {
        let class = if code == 0 { "" } else { " badge-bad" };
        let _ = write!(parts, "<span class=\"badge{class}\">exit {code}</span>");
    }
    if step.metadata.get(THEN_SUBMIT) == Some(&Value::Bool(true)) {
        parts.push_str("<span class=\"small\">then submit</span>");
    }
    let seconds = step.metadata.get("tool_time").and_then(Value::as_f64);
    if let Some(seconds) = seconds.filter(|seconds| seconds.is_finite() && *seconds >= 0.0) {
        let time = time((seconds * 1000.0) as u64);
        let _ = write!(parts, "<span class=\"soft small\">{time}</span>");
    }
    parts
}

/// What an edit does, and its path.
fn edited(function: &str, parameters: &Value) -> String {
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
            let (command, path) = (isolated(&excerpt(command, 40)), isolated(&excerpt(path, NAME)));
            let more = if more.is_empty() {
                more
            } else {
                format!("<span class=\"soft\">{}</span>", isolated(&more))
            };
            format!(
                "<span class=\"call-path mono\"><span class=\"soft\">{command}</span> {path}{more}</span>"
            )
        }
        _ => String::new(),
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
            out.push_str("<div class=\"diff\">");
            write(out, Look::Added, &marked("+ ", given("new_str").unwrap_or_default()), room);
            out.push_str("</div>");
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
    out.push_str("<div class=\"diff\">");
    write(out, Look::Kept, &marked_lines("  ", &old[..before]), room);
    write(out, Look::Removed, &marked_lines("- ", &old[before..old.len() - after]), room);
    write(out, Look::Added, &marked_lines("+ ", &new[before..new.len() - after]), room);
    write(out, Look::Kept, &marked_lines("  ", &old[old.len() - after..]), room);
    out.push_str("</div>");
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
        assert!(html.contains("prompted\"><pre>ls &lt;x&gt;\nfalse</pre>"), "{html}");
        let status =
            "<span class=\"badge badge-bad\">exit 1</span><span class=\"soft small\">250 ms</span>";
        assert!(html.contains(status) && html.contains("<section class=\"call call-failed\">"));
    }

    #[test]
    fn the_exit_code_is_shown_once() {
        let shown = |observation: &str| {
            let metadata = json!({"exit_code": 1}).as_object().unwrap().clone();
            let step = Step { observation: observation.into(), metadata, ..Step::default() };
            without_exit_code(&step).to_owned()
        };
        assert_eq!(shown("[exit code 1]\n[stdout]\nx"), "[stdout]\nx");
        assert_eq!(shown("[exit code 1]"), "");
        assert_eq!(shown("[exit code 1] x"), "[exit code 1] x");
        assert_eq!(shown("[exit code 2]\nx"), "[exit code 2]\nx");
    }

    #[test]
    fn edits_are_diffs() {
        let change = json!({"command": "str_replace", "path": "/a&b", "old_str": "1\n2\n3", "new_str": "1\n<4>\n3"});
        let html = shown("str_replace_editor", change);
        assert!(html.contains("<span class=\"soft\">str_replace</span> /a&amp;b</span>"), "{html}");
        let lines = "<div class=\"diff\"><pre>  1</pre><pre class=\"diff-old\">- 2</pre><pre class=\"diff-new\">+ &lt;4&gt;</pre><pre>  3</pre></div>";
        assert!(html.contains(lines), "{html}");
        let create = json!({"command": "create", "path": "/x.py", "file_text": "a\nb\n"});
        let html = shown("str_replace_editor", create);
        assert!(
            html.contains("create</span> /x.py<span class=\"soft\"> (2 lines)</span>"),
            "{html}"
        );
        assert!(html.contains("<pre>a\nb</pre>"), "{html}");
        let view = json!({"command": "view", "path": "/x.py", "view_range": [1, "</b>"]});
        let html = shown("str_replace_editor", view);
        assert!(
            html.contains("/x.py<span class=\"soft\"> lines 1 to &quot;&lt;/b&gt;&quot;</span>"),
            "{html}"
        );
    }

    #[test]
    fn unknown_and_malformed_calls_are_shown_as_they_are() {
        let html = shown("<img>", json!({"a": ["</script>"]}));
        assert!(
            html.contains("<span class=\"tool\">&lt;img&gt;</span>")
                && html.contains("&lt;/script&gt;"),
            "{html}"
        );
        assert!(shown("execute_bash", json!("{\"comm")).contains("{&quot;comm"));
        assert!(shown("execute_bash", json!({"command": 7})).contains("&quot;command&quot;: 7"));
    }
}
