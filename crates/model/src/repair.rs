//! Arguments of tool calls as models really write them, made into what the tool's schema asks for.
//!
//! Whatever the way of writing, a call of which a part is missing is refused: half a command is never run.

mod conform;
mod read;

use serde_json::Value;
use trajectory::Arguments;

pub(crate) use conform::{WRAPPERS, conform};
pub(crate) use read::{Closers, LENGTH, Node, Problem, near, read};

/// Whether the model came to the end of what it wanted to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Complete {
    /// It ended by itself.
    Whole,
    /// Something stopped it.
    CutOff,
}

impl Complete {
    /// Whether brackets may be missing at the end of the reply.
    pub(crate) fn closers(self) -> Closers {
        match self {
            Self::Whole => Closers::MayLack,
            Self::CutOff => Closers::Required,
        }
    }
}

/// Reads the arguments of a call to a tool with this schema.
pub(crate) fn arguments(text: &str, schema: &Value, complete: Complete) -> Arguments {
    let understood = members(text, complete).and_then(|node| conform(node, schema));
    match understood {
        Ok(map) => Arguments::Object(map),
        Err(problem) => refused(text, &problem, schema, complete),
    }
}

/// A call that is not carried out, with the reason and the remedy in words for the model.
pub(crate) fn refused(
    text: &str,
    problem: &Problem,
    schema: &Value,
    complete: Complete,
) -> Arguments {
    let why = match complete {
        Complete::CutOff => format!(
            "{}, so nothing was run. Send the whole call again, shorter: a long file can be written in \
             several parts",
            Problem::CutOff
        ),
        Complete::Whole => format!("{problem}. Nothing was run. {}", remedy(problem, schema)),
    };
    Arguments::Malformed { malformed: kept(text), why }
}

/// Whether what follows a value on its line can be left out. Text that looks like the rest of a string
/// shows that an unescaped quotation mark ended the string too early.
pub(crate) fn settles(rest: &str) -> Result<(), Problem> {
    let start = rest.trim_start_matches(|c: char| c.is_whitespace() || "}])>,;".contains(c));
    // The next value, or the next mark.
    if start.starts_with(['{', '<', '[']) {
        return Ok(());
    }
    let line = start.lines().next().unwrap_or_default();
    let line = line.get(..line.find("</").unwrap_or(line.len())).unwrap_or_default().trim_end();
    let quoted = line.contains(['"', '\'']);
    if start.starts_with(['"', '\'', ':', '\\']) || quoted && line.ends_with(['}', ']']) {
        return Err(Problem::Rest { near: near(start) });
    }
    Ok(())
}

fn members(text: &str, complete: Complete) -> Result<Node, Problem> {
    let text = unfenced(text.trim());
    if text.is_empty() {
        return match complete {
            Complete::Whole => Ok(Node::Object(Vec::new())),
            Complete::CutOff => Err(Problem::CutOff),
        };
    }
    let (node, end) = read(text, complete.closers()).map_err(|fault| fault.problem)?;
    let rest = text.get(end..).unwrap_or_default();
    if rest.trim_start().starts_with('{') {
        return Err(Problem::Several);
    }
    settles(rest)?;
    Ok(node)
}

/// The inside of a fenced block, up to the end of the text: the reader finds where the value ends.
fn unfenced(text: &str) -> &str {
    match text.strip_prefix("```") {
        Some(block) => {
            let word = block.trim_start_matches(|c: char| c.is_ascii_alphanumeric());
            // A closing fence is no part of a value whose brackets are missing.
            word.trim().strip_suffix("```").unwrap_or(word).trim()
        }
        None => text,
    }
}

fn remedy(problem: &Problem, schema: &Value) -> String {
    match problem {
        Problem::OpenParameter(_) | Problem::Stray { .. } => {
            "Write the call again, each value between \
            <parameter=NAME> and </parameter>, all of them before </function>"
                .into()
        }
        Problem::NoName => "A call has the form {\"name\": \"...\", \"arguments\": {...}}".into(),
        Problem::OpenBlock => {
            "Send the whole block again and close it with ``` on a line of its own".into()
        }
        Problem::OpenHeredoc(_) => {
            "Send the whole block again: the word that ends the here-document \
            stands at the start of a line of its own, before the closing ```"
                .into()
        }
        _ => format!("Send the arguments as one JSON object, such as {}", example(schema)),
    }
}

fn example(schema: &Value) -> String {
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let members = required.map(|key| {
        let value = match schema["properties"][key]["type"].as_str() {
            Some("integer" | "number") => "1",
            Some("array") => "[1, 2]",
            Some("boolean") => "true",
            Some("object") => "{}",
            _ => "\"...\"",
        };
        format!("{key:?}: {value}")
    });
    format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
}

fn kept(text: &str) -> String {
    if text.len() <= LENGTH { text.to_owned() } else { text.chars().take(4096).collect() }
}

#[cfg(test)]
#[path = "repair_tests.rs"]
mod tests;
