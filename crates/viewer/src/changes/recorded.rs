//! Changes that an episode recorded itself: the files that its sandbox's runtime found changed after a turn.

use std::collections::HashMap;

use trajectory::{Changed, ChangedFile, Event, FileChange, Line};

use super::{Change, How, LONGEST_SHOWN, MOST_TURNS, TurnChanges, diff};
use crate::events::EventIndex;

const NOTE: &str = "recorded by the sandbox; some changes are missing";
const OUTSIDE: &str =
    "recorded by the sandbox below its working directory; other paths follow from the tool calls";

/// The recorded changes in an event.
pub(super) fn read(index: &EventIndex, event: u64) -> Option<Changed> {
    match serde_json::from_value(index.event(event).ok()?) {
        Ok(Line { event: Event::Changed(changed), .. }) => Some(*changed),
        _ => None,
    }
}

/// Whether a path was looked at, so that no record means no change. Relative paths are those of the working directory.
fn is_recorded(changed: &Changed, path: &str) -> bool {
    let below = path.strip_prefix(changed.directory.as_str());
    !path.starts_with('/') || below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn how(file: &ChangedFile, before_is_known: bool) -> How {
    match file.change {
        FileChange::Created => How::Created,
        FileChange::Deleted => How::Deleted,
        FileChange::Modified if before_is_known => How::Edited,
        FileChange::Modified => How::Written,
    }
}

/// The files of a record, and those beyond it that follow from the calls.
pub(super) fn files(
    changed: &Changed,
    derived: impl Iterator<Item = (String, How)>,
) -> Vec<(String, How)> {
    let recorded = changed.files.iter().map(|file| (file.path.clone(), how(file, true)));
    recorded.chain(derived.filter(|(path, _)| !is_recorded(changed, path))).collect()
}

/// The changes of a turn with a record. `derived` are those that follow from its calls.
pub(super) fn of_turn(
    index: &EventIndex,
    at: usize,
    changed: Changed,
    derived: Vec<Change>,
) -> TurnChanges {
    let mut earlier = contents_before(index, at, &changed);
    let mut changes = Vec::new();
    let (called, outside): (Vec<_>, Vec<_>) =
        derived.into_iter().partition(|change| is_recorded(&changed, &change.path));
    for file in &changed.files {
        let before = file.before.clone().or_else(|| earlier.remove(&file.path));
        let call = called.iter().find(|change| change.path == file.path);
        changes.push(change(file, before, call));
    }
    let (complete, note) = match (changed.incomplete, outside.is_empty()) {
        (true, _) => (false, NOTE),
        (false, false) => (false, OUTSIDE),
        (false, true) => (true, ""),
    };
    changes.extend(outside);
    TurnChanges { turn: changed.turn, complete, note, changes }
}

/// The contents of files before a turn, from the records of earlier ones.
fn contents_before(index: &EventIndex, at: usize, changed: &Changed) -> HashMap<String, String> {
    let unknown = changed.files.iter().filter(|file| file.before.is_none());
    let mut wanted: Vec<&str> = unknown.map(|file| file.path.as_str()).collect();
    let mut found = HashMap::new();
    let turns = index.turns()[..at].iter().rev().filter(|turn| !turn.dropped);
    for event in turns.filter_map(|turn| turn.changed).take(MOST_TURNS) {
        if wanted.is_empty() {
            break;
        }
        for file in read(index, event).map_or_else(Vec::new, |changed| changed.files) {
            let Some(at) = wanted.iter().position(|path| *path == file.path) else { continue };
            wanted.swap_remove(at);
            if let Some(text) = file.text {
                found.insert(file.path, text);
            }
        }
    }
    found
}

fn change(file: &ChangedFile, before: Option<String>, call: Option<&Change>) -> Change {
    let how = how(file, before.is_some());
    let after = file.text.clone();
    let (diff, cut) = match (file.change, &before, &after, call) {
        (FileChange::Created, _, Some(after), _) => diff::lines("", after),
        (FileChange::Deleted, Some(before), _, _) => diff::lines(before, ""),
        (_, Some(before), Some(after), _) => diff::lines(before, after),
        // The call says which part it replaced, though the whole is not known.
        (_, _, _, Some(call)) => (call.diff.clone(), call.cut),
        _ => (Vec::new(), false),
    };
    let short = |text: Option<String>| text.filter(|text| text.len() <= LONGEST_SHOWN);
    Change {
        path: file.path.clone(),
        how,
        source: call.map_or("command", |call| call.source),
        call: call.map_or(0, |call| call.call),
        before: short(before),
        after: short(after),
        diff,
        cut,
        size: Some(file.size),
    }
}
