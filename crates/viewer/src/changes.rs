//! Which files a turn changed: as recorded, or, where nothing is recorded, as far as its tool calls say so: the editor's calls,
//! and commands that obviously write, move or remove a file.

mod diff;
mod recorded;
mod shell;

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use serde_json::Value;
use trajectory::{Arguments, Event, Line, ToolCall};

use self::diff::DiffLine;
pub(crate) use self::shell::{How, of_command};
use crate::{
    ViewError,
    events::{EventIndex, Turn},
};

/// Longer contents are not remembered, in bytes.
const LONGEST: usize = 1 << 20;
/// Texts beyond this size are not sent whole, in bytes.
const LONGEST_SHOWN: usize = 64 << 10;
/// Turns whose calls are read to know a file's content before.
const MOST_TURNS: usize = 3000;
/// Bytes of all remembered contents.
const MOST_BYTES: usize = 64 << 20;
/// Files listed.
const MOST_FILES: usize = 2000;

const NOTE: &str = "derived from the tool calls; what other commands changed is not recorded";

/// Whether an operation of the editor changes a file.
pub(crate) fn is_edit(command: &str) -> bool {
    matches!(command, "create" | "str_replace" | "insert")
}

/// The changes of a turn.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct TurnChanges {
    turn: u32,
    complete: bool,
    note: &'static str,
    pub(crate) changes: Vec<Change>,
}

/// A change of a file.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Change {
    pub(crate) path: String,
    pub(crate) how: How,
    source: &'static str,
    call: usize,
    before: Option<String>,
    after: Option<String>,
    pub(crate) diff: Vec<DiffLine>,
    cut: bool,
    /// In bytes, where it is recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
}

/// All files that were changed.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct ChangedFiles {
    note: &'static str,
    truncated: bool,
    pub(crate) files: Vec<ChangedFile>,
}

/// A file, and the turns that changed it.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct ChangedFile {
    pub(crate) path: String,
    pub(crate) turns: Vec<u32>,
    how: How,
}

/// The changes of a turn: of the one whose response is `event`, or of the last one with this number. Numbers repeat where an
/// episode was resumed.
pub(crate) fn of_turn(
    index: &EventIndex,
    turn: u32,
    event: Option<u64>,
) -> Result<TurnChanges, ViewError> {
    let turns = index.turns();
    let found = turns
        .iter()
        .rposition(|seen| seen.turn == turn && event.is_none_or(|event| event == seen.event));
    let at = found.ok_or_else(|| ViewError::not_found("turn", &turn.to_string()))?;
    let derived = derived(index, at);
    match turns[at].changed.and_then(|event| recorded::read(index, event)) {
        Some(changed) => Ok(recorded::of_turn(index, at, changed, derived)),
        None => Ok(TurnChanges { turn, complete: false, note: NOTE, changes: derived }),
    }
}

/// The changes of a turn that follow from its calls.
fn derived(index: &EventIndex, at: usize) -> Vec<Change> {
    let turns = index.turns();
    let mut known = Known::default();
    let from = turns[..at].iter().filter(|seen| seen.files > 0 && !seen.dropped);
    let from: Vec<_> = from.collect();
    for seen in &from[from.len().saturating_sub(MOST_TURNS)..] {
        for (_, _, edit) in edits(index, seen.event) {
            known.apply(&edit);
        }
    }
    let mut changes = Vec::new();
    for (call, source, edit) in edits(index, turns[at].event) {
        let before = known.contents.get(&edit.path).cloned();
        known.apply(&edit);
        let after = known.contents.get(&edit.path).cloned();
        changes.push(change(edit, (call, source), before, after));
    }
    changes
}

/// All files that turns changed, by path.
pub(crate) fn all(index: &EventIndex) -> ChangedFiles {
    let mut files: BTreeMap<String, ChangedFile> = BTreeMap::new();
    let mut truncated = false;
    let turns = index.turns().iter().filter(|turn| turn.files > 0 && !turn.dropped);
    for (read, turn) in turns.enumerate() {
        if read >= MOST_TURNS {
            truncated = true;
            break;
        }
        for (path, how) in changed_by(index, turn) {
            if files.len() >= MOST_FILES && !files.contains_key(&path) {
                truncated = true;
                continue;
            }
            let new = || ChangedFile { path: path.clone(), turns: Vec::new(), how };
            let file = files.entry(path.clone()).or_insert_with(new);
            file.how = how;
            if file.turns.last() != Some(&turn.turn) {
                file.turns.push(turn.turn);
            }
        }
    }
    ChangedFiles { note: NOTE, truncated, files: files.into_values().collect() }
}

/// The files that a turn changed.
fn changed_by(index: &EventIndex, turn: &Turn) -> Vec<(String, How)> {
    let derived = edits(index, turn.event).into_iter();
    let derived = derived.map(|(_, _, edit)| (edit.path.clone(), edit.how()));
    match turn.changed.and_then(|event| recorded::read(index, event)) {
        Some(changed) => recorded::files(&changed, derived),
        None => derived.collect(),
    }
}

/// A change that a call asks for.
#[derive(Debug)]
struct Edit {
    path: String,
    what: What,
}

#[derive(Debug)]
enum What {
    Create(String),
    Replace { old: String, new: String },
    Insert { line: usize, text: String },
    Command(How, Option<String>),
}

impl Edit {
    fn how(&self) -> How {
        match &self.what {
            What::Create(_) => How::Created,
            What::Replace { .. } | What::Insert { .. } => How::Edited,
            What::Command(how, _) => *how,
        }
    }
}

/// The edits of a response, with the number of the call.
fn edits(index: &EventIndex, event: u64) -> Vec<(usize, &'static str, Edit)> {
    let Ok(value) = index.event(event) else { return Vec::new() };
    let Ok(Line { event: Event::Responded(responded), .. }) = serde_json::from_value(value) else {
        return Vec::new();
    };
    let calls = responded.message.calls.iter().enumerate();
    calls.flat_map(|(at, call)| edits_of(call).into_iter().map(move |(s, e)| (at, s, e))).collect()
}

fn edits_of(call: &ToolCall) -> Vec<(&'static str, Edit)> {
    let Arguments::Object(arguments) = &call.arguments else { return Vec::new() };
    let text = |name: &str| arguments.get(name).and_then(Value::as_str).map(str::to_owned);
    let Some(command) = text("command") else { return Vec::new() };
    let Some(path) = text("path") else {
        let found = of_command(&command).into_iter();
        let edit = |change: shell::CommandChange| {
            let what = What::Command(change.how, change.content);
            ("command", Edit { path: change.path, what })
        };
        return found.map(edit).collect();
    };
    let what = match command.as_str() {
        "create" => What::Create(text("file_text").unwrap_or_default()),
        "str_replace" => What::Replace {
            old: text("old_str").unwrap_or_default(),
            new: text("new_str").unwrap_or_default(),
        },
        "insert" => What::Insert {
            line: arguments.get("insert_line").and_then(Value::as_u64).unwrap_or(0) as usize,
            text: text("new_str").unwrap_or_default(),
        },
        _ => return Vec::new(),
    };
    vec![("tool_call", Edit { path, what })]
}

/// The contents of files, as far as they follow from the calls.
#[derive(Debug, Default)]
struct Known {
    contents: HashMap<String, String>,
    bytes: usize,
}

impl Known {
    fn apply(&mut self, edit: &Edit) {
        let before = self.contents.remove(&edit.path);
        self.bytes -= before.as_ref().map_or(0, String::len);
        let after = match &edit.what {
            What::Create(text) | What::Command(How::Created | How::Written, Some(text)) => {
                Some(text.clone())
            }
            What::Replace { old, new } => before
                .filter(|text| !old.is_empty() && text.matches(old.as_str()).count() == 1)
                .map(|text| text.replacen(old, new, 1)),
            What::Insert { line, text } => before.and_then(|before| insert(&before, *line, text)),
            What::Command(How::Appended, Some(text)) => before.map(|before| before + text),
            What::Command(..) => None,
        };
        if let Some(after) = after
            && after.len() <= LONGEST
            && self.bytes + after.len() <= MOST_BYTES
        {
            self.bytes += after.len();
            self.contents.insert(edit.path.clone(), after);
        }
    }
}

fn insert(before: &str, line: usize, text: &str) -> Option<String> {
    let mut lines: Vec<&str> = before.split_inclusive('\n').collect();
    if line > lines.len() {
        return None;
    }
    let text = if text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") };
    lines.insert(line, &text);
    Some(lines.concat())
}

fn change(
    edit: Edit,
    (call, source): (usize, &'static str),
    before: Option<String>,
    after: Option<String>,
) -> Change {
    let how = match (edit.how(), &before) {
        (How::Created | How::Written, Some(_)) => How::Edited,
        (how, _) => how,
    };
    let (diff, cut) = match (&edit.what, &before, &after) {
        (What::Command(How::Deleted, _), Some(before), _) => diff::lines(before, ""),
        (_, Some(before), Some(after)) => diff::lines(before, after),
        (What::Replace { old, new }, _, _) => diff::lines(old, new),
        (What::Insert { text, .. }, _, _) => diff::lines("", text),
        (What::Create(text) | What::Command(_, Some(text)), _, _) => diff::lines("", text),
        _ => (Vec::new(), false),
    };
    let short = |text: Option<String>| text.filter(|text| text.len() <= LONGEST_SHOWN);
    let (before, after) = (short(before), short(after));
    Change { path: edit.path, how, source, call, before, after, diff, cut, size: None }
}
