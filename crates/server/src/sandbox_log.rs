//! What happened to a sandbox, for its owner: its beginning, pauses, and the programs that clients ran. A bounded number of
//! entries of bounded size; the oldest are dropped.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use serde_json::{Value, json};

use crate::{control_types::time, error::ApiError};

/// Entries that are kept.
const KEPT: usize = 256;
/// Most bytes of a field's value.
const MAX_FIELD: usize = 256;
/// Most entries of one answer.
const MAX_LIMIT: usize = 1000;

/// How important an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Debug,
    Info,
    Warn,
    Error,
}

impl Level {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Debug, "debug"),
        (Self::Info, "info"),
        (Self::Warn, "warn"),
        (Self::Error, "error"),
    ];

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(level, _)| *level == self).map_or("info", |(_, name)| name)
    }
}

#[derive(Clone, Debug)]
struct Entry {
    at: SystemTime,
    level: Level,
    message: &'static str,
    fields: BTreeMap<&'static str, String>,
}

/// The entries of one sandbox, oldest first.
#[derive(Debug, Default)]
pub(crate) struct SandboxLog(Mutex<VecDeque<Entry>>);

impl SandboxLog {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an entry; long values are cut.
    pub(crate) fn add<const N: usize>(
        &self,
        level: Level,
        message: &'static str,
        fields: [(&'static str, String); N],
    ) {
        let cut = |value: String| match value.len() <= MAX_FIELD {
            true => value,
            false => format!("{}…", &value[..value.floor_char_boundary(MAX_FIELD)]),
        };
        let fields = fields.into_iter().map(|(name, value)| (name, cut(value))).collect();
        self.push(SystemTime::now(), level, message, fields);
    }

    /// `at` is the time of day. Where the clock was set back, the entry has the time of the one before: readers continue
    /// from the last time they have seen.
    fn push(
        &self,
        at: SystemTime,
        level: Level,
        message: &'static str,
        fields: BTreeMap<&'static str, String>,
    ) {
        let mut entries = self.lock();
        let at = entries.back().map_or(at, |last| at.max(last.at));
        if entries.len() == KEPT {
            entries.pop_front();
        }
        entries.push_back(Entry { at, level, message, fields });
    }

    /// The entries a client asks for.
    pub(crate) fn select(&self, query: &LogQuery) -> Vec<LogEntry> {
        let entries = self.lock();
        let fits = |entry: &&Entry| {
            entry.level >= query.level
                && query.search.as_ref().is_none_or(|text| entry.message.contains(text.as_str()))
        };
        let shown = |entry: &Entry| LogEntry(entry.clone());
        let cursor = query.cursor;
        let entries = entries.iter().filter(fits);
        match query.backward {
            false => entries
                .filter(|entry| cursor.is_none_or(|cursor| millis(entry.at) >= cursor))
                .take(query.limit)
                .map(shown)
                .collect(),
            true => entries
                .rev()
                .filter(|entry| cursor.is_none_or(|cursor| millis(entry.at) <= cursor))
                .take(query.limit)
                .map(shown)
                .collect(),
        }
    }
}

/// An entry in an answer.
#[derive(Debug)]
pub(crate) struct LogEntry(Entry);

impl LogEntry {
    /// With its fields.
    pub(crate) fn structured(&self) -> Value {
        let Entry { at, level, message, fields } = &self.0;
        json!({ "timestamp": time(*at), "level": level.name(), "message": message, "fields": fields })
    }

    /// As one line.
    pub(crate) fn line(&self) -> Value {
        let Entry { at, message, fields, .. } = &self.0;
        let mut line = json!(fields);
        line["message"] = json!(message);
        json!({ "timestamp": time(*at), "line": line.to_string() })
    }
}

fn millis(time: SystemTime) -> u128 {
    time.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis())
}

/// Which entries are wanted, in which order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LogQuery {
    cursor: Option<u128>,
    limit: usize,
    backward: bool,
    level: Level,
    search: Option<String>,
}

impl LogQuery {
    pub(crate) fn parse(query: &[(String, String)]) -> Result<Self, ApiError> {
        let mut asked = Self {
            cursor: None,
            limit: MAX_LIMIT,
            backward: false,
            level: Level::Debug,
            search: None,
        };
        for (name, value) in query {
            let bad = || ApiError::invalid(format!("bad value of `{name}`"));
            match name.as_str() {
                "cursor" | "start" => {
                    asked.cursor = Some(value.parse::<u64>().map_err(|_| bad())?.into());
                }
                "limit" => asked.limit = value.parse::<u32>().map_err(|_| bad())? as usize,
                "direction" => {
                    asked.backward = match value.as_str() {
                        "forward" => false,
                        "backward" => true,
                        _ => return Err(bad()),
                    };
                }
                "level" => {
                    let found = Level::ALL.iter().find(|(_, name)| name == value);
                    asked.level = found.ok_or_else(bad)?.0;
                }
                "search" => asked.search = Some(value.clone()),
                _ => {}
            }
        }
        asked.limit = asked.limit.min(MAX_LIMIT);
        Ok(asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(pairs: &[(&str, &str)]) -> Result<LogQuery, ApiError> {
        let pairs: Vec<_> = pairs.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect();
        LogQuery::parse(&pairs)
    }

    #[test]
    fn a_reader_misses_nothing_when_the_clock_is_set_back() {
        let log = SandboxLog::default();
        let add = |seconds, message| {
            let at = UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            log.push(at, Level::Info, message, BTreeMap::new());
        };
        add(9000, "started");
        let seen = log.select(&query(&[]).unwrap()).pop().unwrap();
        let cursor = millis(seen.0.at).to_string();
        add(5400, "paused");
        add(5401, "resumed");
        add(9001, "ended");
        let found = log.select(&query(&[("cursor", &cursor)]).unwrap());
        let messages: Vec<_> = found.iter().map(|entry| entry.0.message).collect();
        assert_eq!(messages, ["started", "paused", "resumed", "ended"]);
    }

    #[test]
    fn entries_are_bounded_and_selected() {
        let log = SandboxLog::default();
        for number in 0..KEPT + 10 {
            let level = if number % 2 == 0 { Level::Info } else { Level::Warn };
            log.add(level, "started", [("pid", number.to_string()), ("cmd", "é".repeat(1000))]);
        }
        let pids = |pairs: &[(&str, &str)]| {
            let found = log.select(&query(pairs).unwrap());
            found.iter().map(|entry| entry.0.fields["pid"].clone()).collect::<Vec<_>>()
        };
        assert_eq!(pids(&[]).len(), KEPT);
        assert_eq!(pids(&[("limit", "2"), ("level", "warn")]), ["11", "13"]);
        assert_eq!(pids(&[("limit", "1"), ("direction", "backward")]), ["265"]);
        assert_eq!(pids(&[("search", "nothing")]), [""; 0]);
        assert_eq!(pids(&[("cursor", "99999999999999")]), [""; 0]);
        let entry = &log.select(&query(&[("limit", "1")]).unwrap())[0];
        assert!(entry.structured()["fields"]["cmd"].as_str().unwrap().len() <= MAX_FIELD + 3);
        for bad in [("limit", "-1"), ("cursor", "x"), ("level", "loud"), ("direction", "up")] {
            assert!(query(&[bad]).is_err(), "{bad:?}");
        }
    }
}
