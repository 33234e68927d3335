//! The settings of a run as a reader knows them: by the names of the options that set them, with units.
//!
//! `run.json` may come from anywhere: the number of settings and the length of names and values are bounded, and what
//! has no known name is shown under its path.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
};

use results::{Run, TaskInfo};
use serde_json::Value;

use crate::text::excerpt;

/// Settings read per run.
const MOST: usize = 200;
/// Characters of a name and of a value.
const NAME: usize = 60;
const VALUE: usize = 80;
/// Characters of a value in a label.
const LABEL_VALUE: usize = 32;
/// Rank of the first recorded setting, after those that `run.json` lists itself.
const FIRST_RECORDED: usize = 10;
/// Digits shown of a digest.
const DIGITS: usize = 8;

/// Paths in the recorded settings, the options that set them, and how they are shown; the most telling first.
const KNOWN: [(&str, &str, Unit); 37] = [
    ("local.adapter", "adapter", Unit::None),
    ("sampling.temperature", "temperature", Unit::None),
    ("sampling.top_p", "top-p", Unit::None),
    ("sampling.top_k", "top-k", Unit::None),
    ("sampling.min_p", "min-p", Unit::None),
    ("sampling.repetition_penalty", "repetition-penalty", Unit::None),
    ("sampling.thinking", "thinking", Unit::None),
    ("sampling.seed", "seed", Unit::None),
    ("sampling.stop", "stop", Unit::None),
    ("sampling.shape", "shape", Unit::None),
    ("sampling.tool_choice", "tool-choice", Unit::None),
    ("tool_format", "tool-format", Unit::None),
    ("forced", "force-calls", Unit::None),
    ("images", "images", Unit::None),
    ("local.context", "context-tokens", Unit::None),
    ("compact", "compact", Unit::None),
    ("caps.turns", "max-turns", Unit::None),
    ("caps.tokens", "max-tokens", Unit::None),
    ("caps.tokens_per_call", "max-tokens-per-call", Unit::None),
    ("caps.plain_tokens", "max-response-len", Unit::None),
    ("caps.time", "deadline", Unit::None),
    ("caps.cost", "max-cost", Unit::None),
    ("caps.misses", "max-misses", Unit::None),
    ("command_timeout", "command-timeout", Unit::None),
    ("sandbox.network", "network", Unit::None),
    ("sandbox.image", "image", Unit::None),
    ("sandbox.limits.memory", "memory", Unit::Bytes),
    ("sandbox.limits.cpus", "cpus", Unit::None),
    ("sandbox.limits.pids", "pids", Unit::None),
    ("sandbox.limits.disk", "disk", Unit::Bytes),
    ("sandbox.env", "env", Unit::None),
    ("sandbox.workdir", "workdir", Unit::None),
    ("runtime", "runtime", Unit::None),
    ("selection.limit", "limit", Unit::None),
    ("selection.ids", "ids", Unit::None),
    ("selection.start", "start-id", Unit::None),
    ("selection.end", "end-id", Unit::None),
];

/// How a number is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    None,
    Bytes,
}

/// A setting of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// Place in tables: lower numbers first.
    pub(crate) rank: usize,
    /// Name of the option that sets it, without hyphens before it.
    pub(crate) name: String,
    /// Value, bounded; different values have different texts.
    pub(crate) value: String,
    /// What it is for.
    pub(crate) role: Role,
}

impl Setting {
    fn new(rank: usize, name: &str, value: &str, role: Role) -> Self {
        Self { rank, name: excerpt(name, NAME), value: bounded(value), role }
    }
}

/// What a setting is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// May tell runs of the same model apart in a label.
    Label,
    /// Shown in tables.
    Table,
    /// A digest: shown only where it differs.
    Digest,
}

/// The option that sets a recorded setting, such as `max-turns` for `caps.turns`; `None` for an unknown path.
pub fn option_name(path: &str) -> Option<&'static str> {
    KNOWN.iter().find(|known| known.0 == path).map(|known| known.1)
}

/// The settings of a run that are set.
pub(crate) fn settings(run: &Run) -> Vec<Setting> {
    let modes: BTreeSet<&str> = run.modes.iter().map(|mode| mode.name()).collect();
    let without: BTreeSet<&str> = run.without.iter().map(String::as_str).collect();
    let judge = run.settings.judge.as_ref().map(|judge| judge.name.as_str());
    let url = run.settings.requested.pointer("/model/place/server/base_url");
    let named = [
        ("model", run.model.clone()),
        ("mode", join(modes)),
        ("repeat", by_task(run, |task| task.repeats.to_string())),
        ("documents", run.documents.clone()),
        ("without", join(without)),
        ("judge-model", judge.unwrap_or_default().to_owned()),
        ("base-url", url.and_then(Value::as_str).unwrap_or_default().to_owned()),
        ("program", run.program.clone()),
    ];
    let mut all: Vec<Setting> = named
        .into_iter()
        .enumerate()
        .map(|(rank, (name, value))| Setting::new(rank, name, &value, Role::Table))
        .collect();
    all.extend(recorded(&run.settings.fixed));
    for task in &run.tasks {
        let digests = [
            ("prompts", &task.prompts_sha256),
            ("grader", &task.grader_sha256),
            ("rows", &task.rows_sha256),
        ];
        all.extend(digests.map(|(what, digest)| {
            let name = format!("{what} of {}", task.name);
            let digits: String = digest.chars().take(DIGITS).collect();
            Setting::new(usize::MAX, &name, &digits, Role::Digest)
        }));
    }
    all.retain(|setting| !setting.value.is_empty());
    all.truncate(MOST);
    all
}

/// Part of a label that tells a run apart by a setting.
pub(crate) fn label_part(setting: &Setting) -> String {
    let name = if setting.name == "temperature" { "t" } else { &setting.name };
    let value = match setting.name.as_str() {
        // The directory of a file says little.
        "adapter" => setting.value.rsplit('/').next().unwrap_or_default(),
        _ => &setting.value,
    };
    format!("{name}={}", excerpt(value, LABEL_VALUE))
}

/// Whether two runs have the same settings, besides which problems they selected.
pub(crate) fn same_but_selection(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let keys = one.keys().chain(other.keys()).filter(|key| *key != "selection");
            keys.into_iter().all(|key| one.get(key) == other.get(key))
        }
        _ => one == other,
    }
}

/// The recorded settings, in the order of the known ones, then the rest by path.
fn recorded(fixed: &Value) -> Vec<Setting> {
    let mut leaves = Vec::new();
    flatten(fixed, String::new(), &mut leaves);
    let setting = |(path, value): (String, &Value)| {
        let known = KNOWN.iter().position(|known| known.0 == path);
        let (rank, name, unit) = match known {
            Some(at) => (FIRST_RECORDED + at, KNOWN[at].1.to_owned(), KNOWN[at].2),
            None => (FIRST_RECORDED + KNOWN.len(), path.replace('_', "-"), Unit::None),
        };
        Some(Setting::new(rank, &name, &shown(value, unit)?, Role::Label))
    };
    let mut all: Vec<Setting> = leaves.into_iter().filter_map(setting).collect();
    all.sort_by(|a, b| (a.rank, &a.name).cmp(&(b.rank, &b.name)));
    all
}

/// Values with their paths. Known paths are not taken apart, nor are durations.
fn flatten<'a>(value: &'a Value, path: String, leaves: &mut Vec<(String, &'a Value)>) {
    if leaves.len() >= MOST {
        return;
    }
    match value {
        Value::Object(map) if option_name(&path).is_none() && seconds(value).is_none() => {
            for (key, value) in map {
                let key = excerpt(key, NAME);
                let path = if path.is_empty() { key } else { format!("{path}.{key}") };
                flatten(value, path, leaves);
            }
        }
        value => leaves.push((path, value)),
    }
}

/// A value as text; `None` where nothing is set.
fn shown(value: &Value, unit: Unit) -> Option<String> {
    if let Some(seconds) = seconds(value) {
        return Some(format!("{seconds} s"));
    }
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(match (number.as_u64(), unit) {
            (Some(bytes), Unit::Bytes) => size(bytes),
            (Some(whole), Unit::None) => whole.to_string(),
            (None, _) => number.as_f64().map_or_else(|| number.to_string(), |n| n.to_string()),
        }),
        // Variables are pairs; their values are not recorded.
        Value::Array(items) if items.iter().all(Value::is_array) => {
            let names = items.iter().filter_map(|pair| pair.get(0)?.as_str());
            Some(join(names)).filter(|text| !text.is_empty())
        }
        Value::Array(items) => {
            let items = items.iter().filter_map(|item| shown(item, unit));
            Some(join(items)).filter(|text| !text.is_empty())
        }
        Value::Object(map) => match map.iter().next() {
            None => None,
            Some((_, Value::String(text))) if map.len() == 1 => Some(text.clone()),
            Some((key, list @ Value::Array(_))) if map.len() == 1 => {
                Some(format!("{key}={}", shown(list, unit).unwrap_or_default()))
            }
            Some(_) => Some(value.to_string()),
        },
        Value::Bool(flag) => Some(flag.to_string()),
    }
}

/// The seconds of a recorded duration.
fn seconds(value: &Value) -> Option<f64> {
    let map = value.as_object().filter(|map| map.len() == 2)?;
    Some(map.get("secs")?.as_u64()? as f64 + map.get("nanos")?.as_u64()? as f64 / 1e9)
}

fn size(bytes: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let fits = units.into_iter().find(|(unit, _)| bytes > 0 && bytes.is_multiple_of(*unit));
    fits.map_or_else(|| format!("{bytes} B"), |(unit, name)| format!("{} {name}", bytes / unit))
}

/// A number of each task; one number where all agree.
fn by_task(run: &Run, value: fn(&TaskInfo) -> String) -> String {
    let values: BTreeSet<String> = run.tasks.iter().map(value).collect();
    match values.len() {
        0 | 1 => values.into_iter().next().unwrap_or_default(),
        _ => join(run.tasks.iter().map(|task| format!("{} {}", task.name, value(task)))),
    }
}

fn join<S: AsRef<str>>(texts: impl IntoIterator<Item = S>) -> String {
    let mut joined = String::new();
    for text in texts {
        joined.push_str(if joined.is_empty() { "" } else { ", " });
        joined.push_str(text.as_ref());
    }
    joined
}

/// A text cut to a bounded length. Texts that differ only behind the cut get different digests.
fn bounded(text: &str) -> String {
    let cut = excerpt(text, VALUE);
    if text.len() <= VALUE || !cut.ends_with('…') {
        return cut;
    }
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    format!("{cut} ({:08x})", hasher.finish() as u32)
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
