//! The events of an episode, one JSON line each, so that a run that was killed stays readable.
//!
//! The lines hold everything: the history of messages and the record of steps follow from them.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Assistant, Message, Outcome, Spent, Stop, Usage};

/// The version of the lines this program writes. It reads all up to this one.
pub const VERSION: u32 = 1;

/// The `kind` of the last line of an episode that ended.
pub const ENDED: &str = "ended";

/// One line of an events file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// The version of the format.
    pub v: u32,
    /// Milliseconds since 1970.
    pub at: u64,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

impl Line {
    /// A line of today's version.
    pub fn new(at: u64, event: Event) -> Self {
        Self { v: VERSION, at, event }
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Event {
    /// The episode began.
    Started(Box<Started>),
    /// A call to the model failed and will be made again.
    Retried {
        /// The turn it belongs to, from 1.
        turn: u32,
        /// Which attempt failed, from 1.
        attempt: u32,
        /// Milliseconds until the next.
        wait_ms: u64,
        /// What went wrong.
        why: String,
    },
    /// The model replied.
    Replied(Box<Replied>),
    /// The model got to see something: the result of a call, or a reminder.
    Observed(Box<Observed>),
    /// What the model gets to see of old results was shortened, because its context nears its end.
    Compacted {
        /// The turn before which it happened.
        turn: u32,
        /// How many of the first messages are affected.
        messages: usize,
    },
    /// The files of the sandbox, as they are after this turn, are kept under this name.
    Saved {
        /// The turn, from 1.
        turn: u32,
        /// The image that holds them.
        image: String,
    },
    /// A process died; another one goes on after this turn.
    Resumed {
        /// The last turn that is kept.
        turn: u32,
    },
    /// The episode ended.
    Ended(Ended),
    /// Something a later version of this program wrote.
    #[serde(other)]
    Unknown,
}

/// How an episode began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Started {
    /// What the user asked for, in their own words.
    pub problem_statement: String,
    /// The first messages.
    pub messages: Vec<Message>,
    /// The model's name.
    pub model: String,
    /// The settings in force, without secrets.
    #[serde(default)]
    pub settings: Value,
    /// What the sandbox enforces.
    #[serde(default)]
    pub protection: Value,
    /// The version of this program.
    #[serde(default)]
    pub program: String,
}

/// A reply of the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Replied {
    /// The turn, from 1.
    pub turn: u32,
    /// What it said.
    pub message: Assistant,
    /// Why it stopped.
    pub stop: Stop,
    /// The tokens of this call.
    pub usage: Usage,
    /// Dollars, where the price is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// How long it took, retries included.
    pub millis: u64,
    /// It came from the cache of replies.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_cache: bool,
}

/// What the model got to see.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observed {
    /// The turn, from 1.
    pub turn: u32,
    /// The message added to the history.
    pub message: Message,
    /// The exit code of a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// How long the tool took.
    pub millis: u64,
}

/// How an episode ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// How.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// What it used up.
    pub spent: Spent,
}

/// A file that is no record of an episode.
#[derive(Debug)]
pub struct ReadError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub why: String,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

impl std::error::Error for ReadError {}

/// Reads the lines of an events file. A last line without its end is what a killed process leaves: it is
/// left out.
pub fn read(text: &str) -> Result<Vec<Line>, ReadError> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let lines = whole.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines.map(|(at, line)| read_line(line).map_err(|why| ReadError { line: at + 1, why })).collect()
}

/// The version comes first: what else a newer line holds may look like nothing this program knows.
fn read_line(text: &str) -> Result<Line, String> {
    let Versioned { v } = parse(text)?;
    match v {
        0 => Err("there is no version 0".into()),
        v if v > u64::from(VERSION) => {
            Err(format!("it has version {v}; this program reads up to {VERSION}: use a newer one"))
        }
        _ => parse(text),
    }
}

#[derive(Deserialize)]
struct Versioned {
    v: u64,
}

fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}
