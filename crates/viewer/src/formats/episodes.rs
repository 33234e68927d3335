//! A server's directory of episodes. Everybody sees their own.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use trajectory::{Outcome, Spent};

use super::{Loaded, Stamp, about, changed_ms, read_json};
use crate::{
    discover::Found,
    events::EventStore,
    library::IsRunning,
    locks,
    row::{AttemptResult, AttemptRow, EXCERPT, RunRow, State},
    table::{Attempt, Table},
    text::one_line,
};

/// Episodes that are read, the newest ones.
const MAX_EPISODES: usize = 100_000;

/// Episodes that keep the files of each turn.
const EVERY_TURN: &str = "every_turn";

/// What was requested.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Record {
    owner: String,
    created: u64,
    model: String,
    task: Value,
    keep: Option<String>,
    parent: Option<Parent>,
    metadata: Value,
    limits: Value,
}

/// Where a fork comes from.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Parent {
    id: String,
    turn: u32,
}

/// How it ended.
#[derive(Clone, Debug, Deserialize)]
struct Ended {
    #[serde(flatten)]
    outcome: Outcome,
    spent: Spent,
    #[serde(default)]
    ended: u64,
    #[serde(default)]
    answer: Option<String>,
}

/// What the page shows of a server's episode besides its events.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Episode {
    id: String,
    state: &'static str,
    keep: Option<String>,
    parent: Option<Parent>,
    owner: String,
    metadata: Value,
    limits: Value,
    pub(crate) answer: Option<String>,
    /// Turns that can be forked.
    pub(crate) forkable: Vec<u32>,
}

pub(super) fn load(
    found: &Found,
    before: Option<&Loaded>,
    is_running: Option<&IsRunning>,
) -> Loaded {
    let mut row = RunRow::new(&found.id, found.format, &found.name, &found.shown);
    let served = about(&found.path.join("lock")).is_some_and(|lock| locks::is_locked(&lock));
    let mut names = Vec::new();
    for entry in fs::read_dir(&found.path).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("ep_") && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            names.push(name);
        }
    }
    // Ids sort by time.
    names.sort_unstable_by(|a, b| b.cmp(a));
    names.truncate(MAX_EPISODES);
    let mut files = HashMap::new();
    let mut attempts = Vec::new();
    for name in names {
        let path = found.path.join(&name);
        let Some(about) = about(&path) else { continue };
        let stamp = Stamp::from(&about);
        let known = before.and_then(|before| {
            let (seen, at) = before.files.get(Path::new(&name))?;
            let known = before.table.attempts.get(*at)?;
            let settled = known.row.state == State::Ended
                && is_running.is_none_or(|running| !running.check(&name));
            (*seen == stamp && settled).then(|| known.clone())
        });
        let Some(attempt) = known.or_else(|| {
            let in_use = || match is_running {
                Some(running) => running.check(&name),
                None => served && in_use(&path),
            };
            attempt(&path, &name, in_use)
        }) else {
            continue;
        };
        files.insert(PathBuf::from(name), (stamp, attempts.len()));
        row.updated = row.updated.max(changed_ms(&about));
        attempts.push(attempt);
    }
    let table = Table::new(attempts, Vec::new());
    row.name = "Episodes".to_owned();
    row.attempts = table.count(&crate::Scope::default());
    row.started = table.attempts.last().and_then(|attempt| attempt.row.started);
    row.state = match (row.attempts.running > 0, served) {
        (true, _) | (false, true) => State::Running,
        _ => State::Ended,
    };
    Loaded { row, table, files }
}

fn attempt(path: &Path, name: &str, in_use: impl Fn() -> bool) -> Option<Attempt> {
    let record: Record = read_json(path, "episode.json")?;
    // Before the result: one that ends in between has the result of an earlier end no longer.
    let is_running = in_use();
    let ended: Option<Ended> = read_json(path, "result.json");
    let title = one_line(&task_text(&record.task), EXCERPT);
    let state = match &ended {
        // One that is resumed has the result of its first end until it ends again.
        _ if is_running => State::Running,
        Some(_) => State::Ended,
        None => State::Interrupted,
    };
    let mut row = AttemptRow {
        id: name.to_owned(),
        title,
        model: Some(one_line(&record.model, EXCERPT)),
        state,
        started: Some(record.created),
        has_events: true,
        result: match (&ended, state) {
            (_, State::Running) => AttemptResult::Running,
            (Some(Ended { outcome, .. }), _) if !outcome.is_answered() => AttemptResult::Invalid,
            (None, _) => AttemptResult::Invalid,
            _ => AttemptResult::Ungraded,
        },
        ..AttemptRow::default()
    };
    if let Some(ended) = &ended {
        row.spend(&ended.spent);
        row.outcome = Some(ended.outcome.name().to_owned());
        row.wall_ms = ended.ended.checked_sub(record.created);
        row.answer = ended.answer.as_deref().map(|answer| one_line(answer, EXCERPT));
        if let Outcome::Infrastructure { cause, .. } = &ended.outcome {
            row.cause = Some(one_line(cause, EXCERPT));
        }
    }
    let mut attempt = Attempt::new(row, Some(EventStore::file(path, "events.jsonl")));
    attempt.owner = Some(record.owner);
    attempt.source = path.to_owned();
    Some(attempt)
}

/// Whether a server works on an episode, as far as its files say so: its events were written a moment ago.
fn in_use(path: &Path) -> bool {
    about(&path.join("events.jsonl")).as_ref().is_some_and(locks::is_in_use)
}

/// The task of an episode in words.
fn task_text(task: &Value) -> String {
    match task {
        Value::String(text) => text.clone(),
        Value::Object(fields) => {
            let inner = ["text", "messages"].into_iter().find_map(|name| fields.get(name));
            inner.map(task_text).unwrap_or_default()
        }
        Value::Array(messages) => {
            let last = messages.last();
            let content = last.and_then(|last| last.get("content").or(last.get("text")));
            match content {
                Some(Value::Array(parts)) => parts
                    .iter()
                    .filter_map(|part| part.get("text").and_then(Value::as_str))
                    .collect::<Vec<_>>()
                    .join("\n"),
                Some(other) => task_text(other),
                None => String::new(),
            }
        }
        _ => String::new(),
    }
}

/// What is known of a server's episode besides its events.
pub(crate) fn episode(attempt: &Attempt, saved: &[u32]) -> Option<Episode> {
    let record: Record = read_json(&attempt.source, "episode.json")?;
    let ended: Option<Ended> = read_json(&attempt.source, "result.json");
    let state = match (attempt.row.state, ended.as_ref().map(|ended| &ended.outcome)) {
        (State::Running, _) => "running",
        (_, Some(Outcome::Cancelled)) => "cancelled",
        (_, Some(Outcome::Infrastructure { .. })) => "failed",
        (_, Some(_)) => "finished",
        (_, None) => "interrupted",
    };
    Some(Episode {
        id: attempt.row.id.clone(),
        state,
        keep: record.keep.clone(),
        parent: record.parent,
        owner: record.owner,
        metadata: record.metadata,
        limits: record.limits,
        answer: ended.and_then(|ended| ended.answer),
        forkable: match record.keep.as_deref() {
            // Others keep files only as long as resuming needs them.
            Some(EVERY_TURN) => std::iter::once(0).chain(saved.iter().copied()).collect(),
            _ => vec![0],
        },
    })
}
