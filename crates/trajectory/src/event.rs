//! The events of an episode, one JSON line each, so that the file of a killed run stays readable.
//!
//! The events are complete: the message history and the trajectory are derived from them.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Assistant, MAX_FILE_VALUES, Message, Outcome, Spent, Stop, Usage, count_values};

/// The version of the lines this program writes. It reads all versions up to this one.
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
    /// A line of the current version.
    pub fn new(at: u64, event: Event) -> Self {
        Self { v: VERSION, at, event }
    }
}

/// An event of an episode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Event {
    /// The episode began.
    Started(Box<Started>),
    /// A call to the model failed and will be retried.
    Retried {
        /// The turn, from 1.
        turn: u32,
        /// Which attempt failed, from 1.
        attempt: u32,
        /// Milliseconds until the next attempt.
        wait_ms: u64,
        /// Why it failed.
        why: String,
    },
    /// The model responded.
    #[serde(rename = "replied")]
    Responded(Box<Responded>),
    /// A message was added for the model: a tool result, or a reminder.
    Observed(Box<Observed>),
    /// Files that a turn changed on disk, as the sandbox's runtime saw them.
    Changed(Box<Changed>),
    /// Old tool results were shortened for the model, because its context is nearly full.
    Compacted {
        /// The turn before which this happened.
        turn: u32,
        /// How many of the first messages are affected.
        messages: usize,
    },
    /// The sandbox's files after this turn were saved as an image.
    Saved {
        /// The turn, from 1.
        turn: u32,
        /// The image.
        image: String,
    },
    /// The process died, and another one resumed the episode after this turn.
    Resumed {
        /// The last turn that still counts.
        turn: u32,
    },
    /// The settings changed when the episode was resumed. They replace those of [`Started`].
    Reconfigured {
        /// The effective settings, without secrets.
        settings: Value,
    },
    /// The episode ended.
    Ended(Ended),
    /// An event of a later version of this program.
    #[serde(other)]
    Unknown,
}

/// The start of an episode.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Started {
    /// The task as the user wrote it.
    pub problem_statement: String,
    /// The initial messages.
    pub messages: Vec<Message>,
    /// The model's name.
    pub model: String,
    /// The effective settings, without secrets.
    #[serde(default)]
    pub settings: Value,
    /// The protections the sandbox enforces.
    #[serde(default)]
    pub protection: Value,
    /// The version of this program.
    #[serde(default)]
    pub program: String,
}

/// A response of the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Responded {
    /// The turn, from 1.
    pub turn: u32,
    /// Text, thinking and tool calls.
    pub message: Assistant,
    /// Why generation stopped.
    pub stop: Stop,
    /// The tokens of this call.
    pub usage: Usage,
    /// Cost in dollars, where the price is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// Duration in milliseconds, retries included.
    pub millis: u64,
    /// Whether it came from the response cache.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_cache: bool,
}

/// A message that was added for the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observed {
    /// The turn, from 1.
    pub turn: u32,
    /// The message.
    pub message: Message,
    /// The exit code of a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Duration of the tool call in milliseconds.
    pub millis: u64,
}

/// The files that a turn changed. What the calls of a turn leave running may change files later: they belong to the turn
/// in which they were found changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Changed {
    /// The turn, from 1.
    pub turn: u32,
    /// The directory of the sandbox that was looked at.
    #[serde(default)]
    pub directory: String,
    /// The files, by path.
    pub files: Vec<ChangedFile>,
    /// Whether files are missing: there were too many, or looking for them took too long.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub incomplete: bool,
}

/// A file that was changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChangedFile {
    /// Its path in the sandbox. Bytes that are not UTF-8 are replaced.
    pub path: String,
    /// What happened to it.
    pub change: FileChange,
    /// Its size in bytes; 0 if it is gone.
    #[serde(default)]
    pub size: u64,
    /// The content, of a small text file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The content before the first change that was recorded, of a small text file that was there when the episode began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
}

/// What happened to a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileChange {
    /// It is new.
    Created,
    /// Its content changed, or it may be new: the image may have had a file of that name.
    #[default]
    Modified,
    /// It is gone.
    Deleted,
}

/// The end of an episode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// How it ended.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// The resources it used.
    pub spent: Spent,
}

/// A file is not a valid events file.
#[derive(Debug)]
pub struct ReadError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong.
    pub why: String,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

impl std::error::Error for ReadError {}

/// How many lines may be gone through again because an episode was resumed: every time, those that do not count any more
/// are removed from all before. A thousand times in a record of a million lines take a second.
const MAX_REVISITED: usize = 1 << 30;

/// Parses an events file. An incomplete last line, as a killed process leaves it, is ignored. The file may be hostile: one
/// that would take very much memory or time is an error.
pub fn read(text: &str) -> Result<Vec<Line>, ReadError> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let (mut lines, mut values, mut resumed) = (Vec::new(), 0, 0_usize);
    for (at, line) in whole.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let refused = |why: String| ReadError { line: at + 1, why };
        values += count_values(line.as_bytes(), MAX_FILE_VALUES - values);
        if values > MAX_FILE_VALUES {
            return Err(refused(format!("the file has more than {MAX_FILE_VALUES} values")));
        }
        let line = read_line(line).map_err(refused)?;
        resumed += usize::from(matches!(line.event, Event::Resumed { .. }));
        lines.push(line);
        if resumed.saturating_mul(lines.len()) > MAX_REVISITED {
            return Err(refused("the episode was resumed too often".to_owned()));
        }
    }
    Ok(lines)
}

/// Checks the version first: a newer line may have an unknown structure.
fn read_line(text: &str) -> Result<Line, String> {
    let Versioned { v } = parse(text)?;
    match v {
        0 => Err("version 0 does not exist".into()),
        v if v > u64::from(VERSION) => Err(format!(
            "version {v} is newer than this program, which reads up to {VERSION}; use a newer program"
        )),
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
