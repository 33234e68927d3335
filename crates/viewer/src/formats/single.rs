//! One episode: a run directory, a file of events, or a trajectory of another program.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use trajectory::{Ended, Event, Line, Spent};

use super::{Loaded, about, changed_ms, read_json};
use crate::{
    discover::Found,
    events::EventStore,
    import, locks,
    row::{AttemptResult, AttemptRow, EXCERPT, Format, RunRow, State, TokenCount},
    table::{Attempt, Table},
    text::one_line,
};

/// Bytes of the first line that are read.
const LONGEST_FIRST: u64 = 16 << 20;
/// Bytes of the end that are read for the last line.
const TAIL: u64 = 64 << 10;
/// Foreign files up to this size are read for their row, in bytes.
const MAX_LISTED: u64 = 16 << 20;

/// The summary of a run, as far as it is shown.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Summary {
    outcome: Option<String>,
    cause: Option<String>,
    answer: Option<String>,
    task: Option<String>,
    model: Option<String>,
    spent: Option<Spent>,
}

/// The first event, as far as rows show it.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct First {
    pub(super) at: u64,
    pub(super) problem_statement: String,
    pub(super) model: String,
}

pub(super) fn load(found: &Found) -> Loaded {
    let mut row = RunRow::new(&found.id, found.format, &found.name, &found.shown);
    let attempt = match found.format {
        Format::Run => recorded(&found.path, Path::new("events.jsonl"), &mut row),
        Format::Events => {
            let (dir, file) = split(&found.path);
            recorded(&dir, &file, &mut row)
        }
        _ => foreign(found, &mut row),
    };
    let problems = row.problem.iter().cloned().collect();
    let table = Table::new(vec![attempt], problems);
    row.attempts = table.count(&crate::Scope::default());
    Loaded::new(row, table)
}

/// The directory and the name of a file.
pub(crate) fn split(path: &Path) -> (PathBuf, PathBuf) {
    let dir = path.parent().unwrap_or(Path::new("/")).to_owned();
    (dir, PathBuf::from(path.file_name().unwrap_or_default()))
}

/// An episode that this program recorded.
fn recorded(dir: &Path, file: &Path, row: &mut RunRow) -> Attempt {
    let is_run = row.format == Format::Run;
    let summary: Summary = is_run.then(|| read_json(dir, "run.json")).flatten().unwrap_or_default();
    let about = about(&dir.join(file));
    let (first, last) = match results::open_below(dir, file) {
        Ok(opened) => (first_event(&opened), last_event(&opened)),
        Err(error) => {
            row.problem = Some(format!("the events cannot be read: {error}"));
            (None, None)
        }
    };
    let first = first.unwrap_or_default();
    let ended = last.as_ref().map(|(_, ended)| ended);
    let in_use = about.as_ref().is_some_and(locks::is_in_use);
    row.state = match ended {
        Some(_) => State::Ended,
        None if in_use => State::Running,
        None => State::Interrupted,
    };
    let spent = ended.map(|ended| ended.spent).or(summary.spent);
    let outcome = ended.map(|ended| ended.outcome.name().to_owned()).or(summary.outcome);
    row.model = summary.model.or(Some(first.model)).filter(|model| !model.is_empty());
    let task = summary.task.unwrap_or(first.problem_statement);
    row.task = Some(one_line(&task, EXCERPT));
    row.outcome = outcome;
    row.started = Some(first.at).filter(|at| *at > 0);
    row.updated = about.as_ref().and_then(changed_ms);
    row.turns = spent.map(|spent| u64::from(spent.turns));
    row.tokens =
        spent.map(|spent| TokenCount { input: spent.usage.input, output: spent.usage.output });
    row.cost = spent.and_then(|spent| spent.cost);
    let mut attempt = single_row(row);
    attempt.answer = summary.answer.map(|answer| one_line(&answer, EXCERPT));
    attempt.cause = summary.cause.or_else(|| match ended.map(|ended| &ended.outcome) {
        Some(trajectory::Outcome::Infrastructure { cause, .. }) => Some(cause.clone()),
        _ => None,
    });
    if let Some(spent) = spent {
        attempt.spend(&spent);
    }
    let end = last.as_ref().map(|(at, _)| *at);
    attempt.wall_ms = end.and_then(|end| end.checked_sub(row.started?));
    attempt.result = match row.state {
        State::Running => AttemptResult::Running,
        _ if attempt.cause.is_some() => AttemptResult::Invalid,
        _ => AttemptResult::Ungraded,
    };
    Attempt::new(attempt, Some(EventStore::file(dir, file)))
}

/// A trajectory of another program.
fn foreign(found: &Found, row: &mut RunRow) -> Attempt {
    let (dir, file) = split(&found.path);
    let about = about(&found.path);
    row.updated = about.as_ref().and_then(changed_ms);
    let small = about.is_some_and(|about| about.len() <= MAX_LISTED);
    match small.then(|| import::facts(&dir, &file, found.format)) {
        Some(Ok(facts)) => {
            row.model = facts.model;
            row.task = Some(one_line(&facts.task, EXCERPT));
            row.turns = facts.turns;
            row.tokens = facts.tokens;
            row.started = facts.started;
            row.outcome = facts.outcome;
        }
        Some(Err(error)) => row.problem = Some(error),
        None => {}
    }
    let mut attempt = single_row(row);
    attempt.turns = row.turns.and_then(|turns| u32::try_from(turns).ok());
    attempt.tokens = row.tokens;
    let store = EventStore::Converted { dir, file, format: found.format, member: None };
    Attempt::new(attempt, Some(store))
}

fn single_row(row: &RunRow) -> AttemptRow {
    AttemptRow {
        id: "0".to_owned(),
        title: row.task.clone().unwrap_or_default(),
        model: row.model.clone(),
        state: row.state,
        outcome: row.outcome.clone(),
        started: row.started,
        has_events: true,
        ..AttemptRow::default()
    }
}

/// The first event of a file.
pub(super) fn first_event(file: &File) -> Option<First> {
    let mut line = Vec::new();
    let start = BufReader::new(At { file, at: 0 }).take(LONGEST_FIRST).read_until(b'\n', &mut line);
    start.ok()?;
    serde_json::from_slice(&line).ok()
}

/// The last event of a file, if it is an end.
pub(super) fn last_event(file: &File) -> Option<(u64, Ended)> {
    let size = file.metadata().ok()?.len();
    let from = size.saturating_sub(TAIL);
    let mut bytes = vec![0; (size - from) as usize];
    file.read_exact_at(&mut bytes, from).ok()?;
    // A part of a line, as a killed process leaves it, is no event.
    let whole = bytes.iter().rposition(|byte| *byte == b'\n')?;
    let start = bytes[..whole].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    match serde_json::from_slice(&bytes[start..whole]).ok()? {
        Line { at, event: Event::Ended(ended), .. } => Some((at, ended)),
        _ => None,
    }
}

/// Reads a file without moving its position.
struct At<'a> {
    file: &'a File,
    at: u64,
}

impl Read for At<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
