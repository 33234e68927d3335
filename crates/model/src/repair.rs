//! Parses the arguments of tool calls as models actually write them, and fits them to the tool's schema.
//!
//! Lenient about notation, but a call with a missing part is rejected: half a command is never run.

mod conform;
mod read;

use serde_json::Value;
use trajectory::Arguments;

pub(crate) use conform::{WRAPPERS, conform};
pub(crate) use read::{Closers, MAX_LENGTH, Node, Problem, near, read};

/// How a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The model ended it.
    Finished,
    /// It was cut off, such as by the token limit.
    CutOff,
}

impl Ending {
    /// Whether brackets may be missing at the end.
    pub(crate) fn closers(self) -> Closers {
        match self {
            Self::Finished => Closers::MayLack,
            Self::CutOff => Closers::Required,
        }
    }
}

/// Parses the arguments of a call to a tool with this schema.
pub(crate) fn arguments(text: &str, schema: &Value, ending: Ending) -> Arguments {
    let parsed = members(text, ending).and_then(|node| conform(node, schema));
    match parsed {
        Ok(map) => Arguments::Object(map),
        Err(problem) => malformed(text, &problem, schema, ending),
    }
}

/// Arguments of a call that is not executed, with the reason and the remedy as the model sees them.
pub(crate) fn malformed(
    text: &str,
    problem: &Problem,
    schema: &Value,
    ending: Ending,
) -> Arguments {
    let why = match ending {
        Ending::CutOff => format!(
            "{}, so nothing was run. Send the whole call again, shorter: a long file can be written in \
             several parts",
            Problem::CutOff
        ),
        Ending::Finished => format!("{problem}. Nothing was run. {}", remedy(problem, schema)),
    };
    Arguments::Malformed { malformed: excerpt(text), why }
}

/// Checks that the text after a value can be ignored. Text that looks like the rest of a string shows that an unescaped
/// quotation mark ended the string too early.
pub(crate) fn check_rest(rest: &str) -> Result<(), Problem> {
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

fn members(text: &str, ending: Ending) -> Result<Node, Problem> {
    let text = unfenced(text.trim());
    if text.is_empty() {
        return match ending {
            Ending::Finished => Ok(Node::Object(Vec::new())),
            Ending::CutOff => Err(Problem::CutOff),
        };
    }
    let (node, end) = read(text, ending.closers()).map_err(|fault| fault.problem)?;
    let rest = text.get(end..).unwrap_or_default();
    if rest.trim_start().starts_with('{') {
        return Err(Problem::Several);
    }
    check_rest(rest)?;
    Ok(node)
}

/// The content of a fenced block, up to the end of the text: the parser finds the end of the value.
fn unfenced(text: &str) -> &str {
    match text.strip_prefix("```") {
        Some(block) => {
            let word = block.trim_start_matches(|c: char| c.is_ascii_alphanumeric());
            // A closing fence is not part of a value whose brackets are missing.
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

fn excerpt(text: &str) -> String {
    if text.len() <= MAX_LENGTH { text.to_owned() } else { text.chars().take(4096).collect() }
}

#[cfg(test)]
#[path = "repair_tests.rs"]
mod tests;
