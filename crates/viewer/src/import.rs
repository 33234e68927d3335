//! Trajectories of other programs as events of ours, so that one page shows them all.

mod atif;
mod inspect;
mod reference;

use std::{io::Read, path::Path};

use serde::de::DeserializeOwned;
use serde_json::Value;
use trajectory::{
    Assistant, Content, Event, Line, MAX_FILE_VALUES, Message, Observed, Responded, Stop, Usage,
    count_values,
};

use crate::row::{Format, TokenCount};

pub(crate) use self::inspect::{Log, SampleSummary};

/// Largest file that is read, in bytes.
const MAX_SIZE: u64 = 256 << 20;

/// What rows show of a foreign trajectory.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Facts {
    pub(crate) model: Option<String>,
    pub(crate) task: String,
    pub(crate) turns: Option<u64>,
    pub(crate) tokens: Option<TokenCount>,
    pub(crate) started: Option<u64>,
    pub(crate) outcome: Option<String>,
}

/// Reads what rows show.
pub(crate) fn facts(dir: &Path, file: &Path, format: Format) -> Result<Facts, String> {
    let value = read(dir, file)?;
    match format {
        Format::Atif => atif::facts(&value),
        _ => Ok(reference::facts(&value)),
    }
}

/// Reads a trajectory as events, one JSON object each.
pub(crate) fn convert(
    dir: &Path,
    file: &Path,
    format: Format,
    member: Option<&str>,
) -> Result<Vec<String>, String> {
    let lines = match (format, member) {
        (Format::Inspect, Some(member)) => Log::open(dir, file)?.events(member)?,
        (Format::Atif, _) => atif::events(&read(dir, file)?)?,
        _ => reference::events(&read(dir, file)?)?,
    };
    lines
        .iter()
        .map(|line| serde_json::to_string(line).map_err(|error| error.to_string()))
        .collect()
}

fn read(dir: &Path, file: &Path) -> Result<Value, String> {
    let opened = results::open_below(dir, file).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    let read = opened.take(MAX_SIZE + 1).read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    if bytes.len() as u64 > MAX_SIZE {
        return Err(format!("it has more than {MAX_SIZE} bytes"));
    }
    parse(&bytes)
}

/// Parses JSON, unless it unfolds to so many values that they fill the memory.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    if count_values(bytes, MAX_FILE_VALUES) > MAX_FILE_VALUES {
        return Err(format!("it has more than {MAX_FILE_VALUES} values"));
    }
    serde_json::from_slice(bytes).map_err(|error| format!("it is not JSON: {error}"))
}

/// Collects events with their turns.
#[derive(Default)]
struct Lines {
    lines: Vec<Line>,
    turn: u32,
}

impl Lines {
    fn push(&mut self, at: u64, event: Event) {
        self.lines.push(Line::new(at, event));
    }

    fn respond(&mut self, at: u64, message: Assistant, usage: Usage, millis: u64) {
        self.turn += 1;
        let stop = if message.calls.is_empty() { Stop::End } else { Stop::ToolCalls };
        let turn = self.turn;
        self.push(
            at,
            Event::Responded(Box::new(Responded {
                turn,
                message,
                stop,
                usage,
                cost: None,
                millis,
                from_cache: false,
            })),
        );
    }

    fn observe(&mut self, at: u64, message: Message, exit_code: Option<i32>, millis: u64) {
        let turn = self.turn;
        self.push(at, Event::Observed(Box::new(Observed { turn, message, exit_code, millis })));
    }
}

/// A text of a value: itself, or the texts of its parts.
fn text_of(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            let texts = parts.iter().filter_map(|part| match part {
                Value::String(text) => Some(text.as_str()),
                part => part.get("text").and_then(Value::as_str),
            });
            texts.collect::<Vec<_>>().join("\n")
        }
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    }
}

fn texts(value: Option<&Value>) -> Vec<Content> {
    vec![Content::text(text_of(value))]
}

/// Milliseconds since 1970 of a time such as `2025-10-16T14:30:00Z`; 0 where there is none.
fn millis_of(value: Option<&Value>) -> u64 {
    let Some(text) = value.and_then(Value::as_str) else { return 0 };
    let with_zone: Option<jiff::Timestamp> = text.parse().ok();
    let time = with_zone.or_else(|| format!("{text}Z").parse().ok());
    time.and_then(|time| u64::try_from(time.as_millisecond()).ok()).unwrap_or(0)
}

fn seconds(value: Option<&Value>) -> u64 {
    let seconds = value.and_then(Value::as_f64).filter(|seconds| seconds.is_finite());
    (seconds.unwrap_or(0.0).max(0.0) * 1000.0) as u64
}

fn number(value: Option<&Value>) -> u64 {
    value.and_then(Value::as_u64).unwrap_or(0)
}
