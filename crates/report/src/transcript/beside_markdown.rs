//! Episodes of two runs beside each other as Markdown, for documents. Texts of models are in fences longer than any in
//! them, without invisible characters, and cut to a size.

use std::fmt::Write;

use plot::count;
use serde_json::Value;
use trajectory::{Line, Step, is_hidden};

use super::{
    beside::{Side, end, first_difference, title},
    text::counted,
    turns::Turn,
};
use crate::{markdown::plain, text::excerpt, validation::EpisodePair};

/// Characters of one text.
const TEXT: usize = 3000;
/// Characters of a cell.
const CELL: usize = 200;
/// Turns of an episode.
const TURNS: usize = 40;
/// Calls of a turn.
const CALLS: usize = 8;

/// Renders the episodes of a problem, with their events where there are any. The labels name the runs.
pub fn beside_markdown(
    labels: [&str; 2],
    pair: &EpisodePair,
    events: [Option<&[Line]>; 2],
) -> String {
    let labels = labels.map(|label| plain(&excerpt(label, CELL)));
    let sides = [0, 1].map(|at| Side::new(&pair.records[at], events[at]));
    let mut out = format!("### {}\n\n", plain(&title(pair)));
    if let Some(side) = sides.iter().find(|side| side.recorded) {
        fence(&mut out, &cut(&side.trajectory.problem_statement));
    }
    table(&mut out, &labels, &sides);
    let all = [sides[0].turns(), sides[1].turns()];
    let different = first_difference(&all);
    let last = all[0].len().max(all[1].len());
    for row in 0..last.min(TURNS) {
        let mark = if different == Some(row) { " (first different turn)" } else { "" };
        let _ = write!(out, "#### Turn {}{mark}\n\n", row + 1);
        for at in [0, 1] {
            match all[at].get(row) {
                Some(turn) => {
                    let _ = write!(out, "{}:\n\n", labels[at]);
                    fence(&mut out, &text_of(turn));
                }
                None if row == all[at].len() && sides[at].recorded => {
                    let turns = counted(row, "turn");
                    let _ = write!(out, "{}: ended after {turns}.\n\n", labels[at]);
                }
                None => {}
            }
        }
    }
    if last > TURNS {
        let _ = write!(out, "{}: not shown.\n\n", counted(last - TURNS, "more turn"));
    }
    out
}

fn table(out: &mut String, labels: &[String; 2], sides: &[Side<'_>; 2]) {
    let _ = writeln!(out, "| | {} | {} |\n|---|---|---|", labels[0], labels[1]);
    let mut row = |name: &str, of: &dyn Fn(&Side<'_>) -> String| {
        let [first, second] = [&sides[0], &sides[1]].map(of);
        let _ = writeln!(out, "| {name} | {first} | {second} |");
    };
    row("score", &|side| {
        side.record.score.map_or_else(|| "none".to_owned(), |score| format!("{score:.2}"))
    });
    row("end", &|side| plain(&end(side.record)));
    row("turns", &|side| count(f64::from(side.record.turns)));
    row("sampled tokens", &|side| count(side.record.response_tokens as f64));
    row("answer", &|side| plain(&excerpt(&side.record.answer, CELL)));
    if sides.iter().any(|side| !side.recorded) {
        row("events", &|side| if side.recorded { "read" } else { "cannot be read" }.to_owned());
    }
    out.push('\n');
}

/// What the model wrote in a turn, and what came back.
fn text_of(turn: &Turn<'_>) -> String {
    let mut parts = Vec::new();
    for step in turn.steps.iter().take(CALLS) {
        parts.extend([&step.reasoning_content, &step.thought].map(|text| cut(text)));
        parts.push(call(step));
        parts.push(cut(&step.observation));
    }
    if turn.steps.len() > CALLS {
        parts.push(format!("[{} not shown]", counted(turn.steps.len() - CALLS, "more call")));
    }
    parts.retain(|part| !part.is_empty());
    parts.join("\n")
}

/// A command as in a shell, any other call with its arguments.
fn call(step: &Step) -> String {
    let (name, arguments) = (&step.action.function, &step.action.parameters);
    match (name.as_str(), arguments.get("command").and_then(Value::as_str)) {
        ("", _) => String::new(),
        ("execute_bash", Some(command)) => format!("$ {}", cut(command)),
        _ => {
            let empty = arguments.as_object().is_some_and(serde_json::Map::is_empty);
            let given = if empty { String::new() } else { cut(&arguments.to_string()) };
            format!("[{}] {given}", excerpt(name, CELL)).trim_end().to_owned()
        }
    }
}

/// A text with its middle cut out where it is long.
fn cut(text: &str) -> String {
    let text = text.trim();
    // No character is shorter than a byte.
    if text.len() <= TEXT {
        return text.to_owned();
    }
    let head = text.floor_char_boundary(TEXT / 3 * 2);
    let tail = text.ceil_char_boundary(text.len() - TEXT / 3);
    let omitted = counted(text[head..tail].chars().count(), "character");
    format!("{}\n[{omitted} not shown]\n{}", &text[..head], &text[tail..])
}

/// Writes a text as a code block that it cannot end.
fn fence(out: &mut String, text: &str) {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let marks = "`".repeat(longest.max(2) + 1);
    let _ = writeln!(out, "{marks}text");
    for c in text.replace("\r\n", "\n").chars() {
        match c {
            '\n' | '\t' => out.push(c),
            c if is_hidden(c) => {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    let _ = write!(out, "\n{marks}\n\n");
}
