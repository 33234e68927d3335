//! The results directory of a benchmark.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, HashMap, HashSet},
    fs,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering as Atomic},
    },
    thread,
};

use report::stats::clustered;
use results::{AttemptRecord, ResultsDir, Run};
use trajectory::{Outcome, Validity};

use super::{Loaded, Stamp, about, changed_ms};
use crate::{
    discover::Found,
    events::EventStore,
    locks,
    row::{AttemptResult, AttemptRow, EXCERPT, RunRow, State, TokenCount},
    table::{Attempt, Table},
    text::one_line,
};

/// Attempts that are read.
const MAX_ATTEMPTS: usize = 1_000_000;
/// Problems with files that are listed.
const MAX_PROBLEMS: usize = 20;

pub(super) fn load(found: &Found, before: Option<&Loaded>) -> Loaded {
    let results = ResultsDir::new(&found.path);
    let mut problems = Vec::new();
    let run = results.run().unwrap_or_else(|error| {
        problems.push(error.to_string());
        None
    });
    let listing = Listing::of(&found.path);
    let read = read(&results, run.as_ref(), &listing, before);
    let mut files = HashMap::with_capacity(read.len());
    let mut attempts = Vec::with_capacity(read.len());
    for (path, stamp, attempt) in read {
        match attempt {
            Ok(attempt) => {
                attempts.push((Some((path, stamp)), attempt));
            }
            Err(why) if problems.len() < MAX_PROBLEMS => problems.push(why),
            Err(_) => {}
        }
    }
    let is_locked = about(&found.path.join("lock")).is_some_and(|lock| locks::is_locked(&lock));
    let known: HashSet<String> = attempts.iter().map(|(_, it)| it.row.id.clone()).collect();
    let unfinished = listing.partial.iter().map(|path| partial(&found.path, path, is_locked));
    attempts
        .extend(unfinished.flatten().filter(|it| !known.contains(&it.row.id)).map(|it| (None, it)));
    attempts.sort_by(|(_, a), (_, b)| order(&a.row, &b.row));
    let attempts = attempts.into_iter().enumerate().map(|(at, (file, attempt))| {
        if let Some((path, stamp)) = file {
            files.insert(path, (stamp, at));
        }
        attempt
    });
    let mut table = Table::new(attempts.collect(), problems);
    table.planned = run.as_ref().map(planned);
    let row = row(found, run.as_ref(), &table, is_locked);
    Loaded { row, table, files }
}

fn planned(run: &Run) -> usize {
    let each = run.tasks.iter().map(results::TaskInfo::planned).fold(0, usize::saturating_add);
    each.saturating_mul(run.modes.len().max(1))
}

/// The files of a run.
struct Listing {
    attempts: Vec<PathBuf>,
    /// Trajectories, as `TASK/MODE/NAME` without their extension.
    events: HashSet<PathBuf>,
    partial: Vec<PathBuf>,
}

impl Listing {
    fn of(run: &Path) -> Self {
        let mut listing =
            Self { attempts: Vec::new(), events: HashSet::new(), partial: Vec::new() };
        for path in below(run, "attempts") {
            if path.extension().is_some_and(|extension| extension == "json") {
                listing.attempts.push(path);
            }
        }
        for path in below(run, "trajectories") {
            let Ok(path) = path.strip_prefix("trajectories") else { continue };
            let name = path.to_string_lossy();
            if let Some(stem) = name.strip_suffix(".jsonl") {
                listing.events.insert(stem.into());
            } else if name.ends_with(".jsonl.partial") {
                listing.partial.push(path.to_owned());
            }
        }
        listing.attempts.truncate(MAX_ATTEMPTS);
        listing
    }
}

/// The regular files `KIND/TASK/MODE/NAME` of a run, relative to it. Links are left out.
fn below(run: &Path, kind: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let root = PathBuf::from(kind);
    if about(&run.join(&root)).is_none_or(|about| !about.is_dir()) {
        return found;
    }
    for task in entries(run, &root, fs::FileType::is_dir) {
        for mode in entries(run, &task, fs::FileType::is_dir) {
            found.extend(entries(run, &mode, fs::FileType::is_file));
        }
    }
    found
}

fn entries(run: &Path, path: &Path, wanted: fn(&fs::FileType) -> bool) -> Vec<PathBuf> {
    let Ok(read) = fs::read_dir(run.join(path)) else { return Vec::new() };
    let entries = read.flatten().filter(|it| it.file_type().is_ok_and(|kind| wanted(&kind)));
    entries.map(|entry| path.join(entry.file_name())).collect()
}

type ReadAttempt = (PathBuf, Stamp, Result<Attempt, String>);

/// Reads the attempts that are new or have changed, on all processors.
fn read(
    results: &ResultsDir,
    run: Option<&Run>,
    listing: &Listing,
    before: Option<&Loaded>,
) -> Vec<ReadAttempt> {
    let next = AtomicUsize::new(0);
    let all = Mutex::new(Vec::with_capacity(listing.attempts.len()));
    let work = || {
        let mut mine: Vec<ReadAttempt> = Vec::new();
        while let Some(path) = listing.attempts.get(next.fetch_add(1, Atomic::Relaxed)) {
            let Some(about) = about(&results.path().join(path)) else { continue };
            let stamp = Stamp::from(&about);
            let known = before.and_then(|before| {
                let (seen, at) = before.files.get(path)?;
                (*seen == stamp).then(|| before.table.attempts.get(*at)).flatten()
            });
            let attempt = match known {
                Some(known) => Ok(known.clone()),
                None => attempt(results, run, listing, path),
            };
            mine.push((path.clone(), stamp, attempt));
        }
        all.lock().unwrap_or_else(PoisonError::into_inner).append(&mut mine);
    };
    let workers = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let workers = workers.min(listing.attempts.len() / 64 + 1);
    thread::scope(|scope| {
        (1..workers).for_each(|_| drop(scope.spawn(work)));
        work();
    });
    all.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn attempt(
    results: &ResultsDir,
    run: Option<&Run>,
    listing: &Listing,
    path: &Path,
) -> Result<Attempt, String> {
    let whole = results.path().join(path);
    let record = results.read_attempt(&whole).map_err(|error| error.to_string())?;
    if results.attempt_path(&record.key) != whole {
        return Err(format!("{}: it is a copy of another attempt, or renamed", path.display()));
    }
    let record = match run {
        Some(run) => run.current(record),
        None => record,
    };
    let stem = path.strip_prefix("attempts").unwrap_or(path).with_extension("");
    let has_events = listing.events.contains(&stem);
    let mut events = PathBuf::from("trajectories").join(&stem).into_os_string();
    events.push(".jsonl");
    let store = has_events.then(|| EventStore::file(results.path(), events));
    let mut attempt = Attempt::new(attempt_row(&record, has_events), store);
    attempt.source = path.to_owned();
    Ok(attempt)
}

/// A stored attempt as a row.
pub(crate) fn attempt_row(record: &AttemptRecord, has_events: bool) -> AttemptRow {
    let key = &record.key;
    let validity = record.validity();
    let cause = match (&validity, &record.outcome) {
        (Validity::Invalid { cause, .. }, _) => Some(one_line(cause, EXCERPT)),
        (_, Outcome::Infrastructure { cause, .. }) => Some(one_line(cause, EXCERPT)),
        _ => None,
    };
    let score = record.score.filter(|_| validity.is_valid());
    let mut row = AttemptRow {
        id: key.file_stem(),
        task: Some(one_line(&key.task, EXCERPT)),
        mode: Some(key.mode.name().to_owned()),
        problem: Some(one_line(&key.id, EXCERPT)),
        repeat: Some(key.repeat),
        title: one_line(&record.problem_statement, EXCERPT),
        state: State::Ended,
        result: score.map_or(AttemptResult::Invalid, AttemptResult::of_score),
        score,
        outcome: Some(record.outcome.name().to_owned()),
        cause,
        answer: Some(one_line(&record.answer, EXCERPT)),
        expected: Some(one_line(&record.ground_truth, EXCERPT)),
        wall_ms: Some(record.wall_ms),
        started: Some(record.started).filter(|at| *at > 0),
        has_events,
        ..AttemptRow::default()
    };
    row.spend(&record.spent);
    row
}

/// An attempt that has no result yet: its events are being written, or were when the process died.
fn partial(run: &Path, path: &Path, is_locked: bool) -> Option<Attempt> {
    let mut parts = path.iter().map(|part| part.to_string_lossy());
    let (task, mode, name) = (parts.next()?, parts.next()?, parts.next()?);
    let stem = name.strip_suffix(".jsonl.partial")?;
    let (problem, repeat) = stem.rsplit_once('.')?;
    let about = about(&run.join("trajectories").join(path))?;
    let row = AttemptRow {
        id: format!("{task},{mode},{problem},{repeat}"),
        task: Some(decoded(&task)),
        mode: Some(mode.clone().into_owned()),
        problem: Some(decoded(problem)),
        repeat: repeat.parse().ok(),
        title: decoded(problem),
        state: if is_locked { State::Running } else { State::Interrupted },
        result: if is_locked { AttemptResult::Running } else { AttemptResult::Invalid },
        cause: (!is_locked).then(|| "the process ended before the attempt did".to_owned()),
        started: changed_ms(&about),
        has_events: true,
        ..AttemptRow::default()
    };
    Some(Attempt::new(row, Some(EventStore::file(run, Path::new("trajectories").join(path)))))
}

/// A name without the escapes of file names.
fn decoded(name: &str) -> String {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped = after.get(..2).filter(|_| *first == b'%');
        let value = escaped.and_then(|digits| std::str::from_utf8(digits).ok());
        match value.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(value) => {
                bytes.push(value);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    one_line(&String::from_utf8_lossy(&bytes), EXCERPT)
}

fn row(found: &Found, run: Option<&Run>, table: &Table, is_locked: bool) -> RunRow {
    let mut row = RunRow::new(&found.id, found.format, &found.name, &found.shown);
    row.attempts = table.count(&crate::Scope::default());
    if let Some(run) = run {
        row.model = Some(one_line(&run.model, EXCERPT));
        row.tasks = run.tasks.iter().map(|task| one_line(&task.name, EXCERPT)).collect();
        row.modes = run.modes.iter().map(|mode| mode.name().to_owned()).collect();
        row.started = Some(run.started);
    }
    if row.tasks.is_empty() {
        let tasks: HashSet<_> =
            table.attempts.iter().filter_map(|it| it.row.task.clone()).collect();
        row.tasks = tasks.into_iter().collect();
        row.tasks.sort();
    }
    row.task = Some(row.tasks.join(", "));
    row.score = score(table);
    let missing = table.planned.is_some_and(|planned| row.attempts.done < planned);
    row.state = match (is_locked, missing) {
        (true, _) => State::Running,
        (false, true) => State::Interrupted,
        (false, false) => State::Ended,
    };
    let rows = || table.attempts.iter().map(|attempt| &attempt.row);
    row.turns = Some(rows().filter_map(|row| row.turns).map(u64::from).sum());
    let tokens = rows().filter_map(|row| row.tokens);
    row.tokens = Some(tokens.fold(TokenCount::default(), |all, more| TokenCount {
        input: all.input.saturating_add(more.input),
        output: all.output.saturating_add(more.output),
    }));
    let costs: Vec<f64> = rows().filter_map(|row| row.cost).collect();
    row.cost = (!costs.is_empty()).then(|| costs.iter().sum());
    let ends = rows().filter_map(|row| Some(row.started? + row.wall_ms.unwrap_or(0)));
    row.updated = ends.max().or_else(|| about(&found.path).as_ref().and_then(changed_ms));
    row.problem = table.problems.first().cloned();
    row
}

/// The mean over tasks, with a sandbox where there are such attempts.
fn score(table: &Table) -> Option<f64> {
    let scores = scores(table);
    for mode in ["sandbox", "llm"] {
        let of_mode = scores.iter().filter(|((_, other), _)| other == mode);
        let tasks = of_mode.filter_map(|(_, problems)| Some(clustered(problems)?.mean));
        if let Some(score) = report::stats::mean(tasks.collect::<Vec<f64>>()) {
            return Some(score);
        }
    }
    None
}

/// The scores of the valid attempts of each problem, by task and mode.
pub(crate) fn scores(table: &Table) -> BTreeMap<(String, String), Vec<Vec<f64>>> {
    let mut scores: BTreeMap<(&str, &str, &str), Vec<f64>> = BTreeMap::new();
    for Attempt { row, .. } in &table.attempts {
        if let (Some(task), Some(mode), Some(problem), Some(score)) =
            (row.task.as_deref(), row.mode.as_deref(), row.problem.as_deref(), row.score)
        {
            scores.entry((task, mode, problem)).or_default().push(score);
        }
    }
    let mut by_task: BTreeMap<(String, String), Vec<Vec<f64>>> = BTreeMap::new();
    for ((task, mode, _), scores) in scores {
        by_task.entry((task.to_owned(), mode.to_owned())).or_default().push(scores);
    }
    by_task
}

fn order(a: &AttemptRow, b: &AttemptRow) -> Ordering {
    let task = a.task.cmp(&b.task).then_with(|| a.mode.cmp(&b.mode));
    let problem = || {
        let [a, b] = [a, b].map(|row| NaturalKey::of(row.problem.as_deref().unwrap_or_default()));
        a.cmp(&b)
    };
    task.then_with(problem).then_with(|| a.repeat.cmp(&b.repeat)).then_with(|| a.id.cmp(&b.id))
}

/// Sorts names with numbers by these: `p2` before `p10`.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NaturalKey<'a>(Vec<(&'a str, u64)>);

impl<'a> NaturalKey<'a> {
    pub(crate) fn of(text: &'a str) -> Self {
        let mut parts = Vec::new();
        let mut rest = text;
        while !rest.is_empty() && parts.len() < 16 {
            let words = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
            let (word, after) = rest.split_at(words);
            let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
            let (number, after) = after.split_at(digits);
            parts.push((word, number.parse().unwrap_or(u64::MAX)));
            rest = after;
        }
        Self(parts)
    }
}
