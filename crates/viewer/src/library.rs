//! All runs below some paths: found again when they are asked for, read once, and read again where they have changed.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use crate::{
    ViewError,
    discover::{Discovery, Found, discover},
    events::{EventIndex, EventStore},
    formats::{self, Loaded},
    locks,
    row::{RunRow, State},
    table::Attempt,
};

/// How long what was found is used without another look.
const FRESH: Duration = Duration::from_millis(1500);
/// A look that took long is repeated less often: at most this part of the time is spent on it.
const SHARE: u32 = 10;
/// Indices of events that are kept.
const MAX_INDICES: usize = 32;
/// Runs of a response where the request does not say, and at most.
const LIMIT: usize = 100;
const MOST: usize = 1000;

/// Whose episodes of a server are seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Only those of this owner; all where absent.
    pub owner: Option<String>,
}

/// Tells whether an episode of a server is being played. Its files alone do not say so while the model is thinking.
#[derive(Clone)]
pub(crate) struct IsRunning(Arc<dyn Fn(&str) -> bool + Send + Sync>);

/// What the model of a running episode has said since its last event.
#[derive(Clone)]
struct Partial(Arc<dyn Fn(&str) -> String + Send + Sync>);

impl std::fmt::Debug for Partial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Partial(..)")
    }
}

impl IsRunning {
    pub(crate) fn check(&self, id: &str) -> bool {
        (self.0)(id)
    }
}

impl std::fmt::Debug for IsRunning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("IsRunning(..)")
    }
}

/// The runs below some paths.
#[derive(Debug)]
pub struct Library {
    roots: Vec<PathBuf>,
    /// Runs that are there whether or not they hold something yet, with fixed ids.
    fixed: Vec<Found>,
    is_running: Option<IsRunning>,
    partial: Option<Partial>,
    found: Mutex<Timed<Discovery>>,
    runs: Mutex<HashMap<String, Slot<Loaded>>>,
    indices: Mutex<HashMap<String, Slot<EventIndex>>>,
}

/// A value, when it was read, and how long that took.
#[derive(Debug)]
struct Timed<T> {
    value: Option<Arc<T>>,
    at: Instant,
    took: Duration,
    used: Instant,
}

impl<T> Timed<T> {
    fn new() -> Self {
        let now = Instant::now();
        Self { value: None, at: now, took: Duration::ZERO, used: now }
    }

    /// The value, read again if it is not fresh.
    fn get(&mut self, read: impl FnOnce(Option<&Arc<T>>) -> Arc<T>) -> Arc<T> {
        let now = Instant::now();
        self.used = now;
        if let Some(value) = &self.value
            && now.duration_since(self.at) < FRESH.max(self.took * SHARE)
        {
            return Arc::clone(value);
        }
        let value = read(self.value.as_ref());
        self.took = now.elapsed();
        self.at = Instant::now();
        self.value = Some(Arc::clone(&value));
        value
    }
}

/// One reader at a time: others wait for what it reads.
type Slot<T> = Arc<Mutex<Timed<T>>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The slot of a key. Beyond `most`, the one that was not used for the longest time is dropped.
fn slot<T>(all: &Mutex<HashMap<String, Slot<T>>>, key: &str, most: usize) -> Slot<T> {
    let mut all = lock(all);
    if let Some(slot) = all.get(key) {
        return Arc::clone(slot);
    }
    if all.len() >= most {
        let idle = all.iter().filter_map(|(key, slot)| Some((slot.try_lock().ok()?.used, key)));
        if let Some(oldest) = idle.min().map(|(_, key)| key.clone()) {
            all.remove(&oldest);
        }
    }
    let slot = Arc::new(Mutex::new(Timed::new()));
    all.insert(key.to_owned(), Arc::clone(&slot));
    slot
}

impl Library {
    /// The runs at and below these paths.
    pub fn open(roots: Vec<PathBuf>) -> Self {
        Self {
            roots,
            fixed: Vec::new(),
            is_running: None,
            partial: None,
            found: Mutex::new(Timed::new()),
            runs: Mutex::default(),
            indices: Mutex::default(),
        }
    }

    /// The episodes of a server in this directory, as the run `episodes`. `is_running` tells whether the one of an id is being played.
    pub fn of_server(
        episodes: PathBuf,
        is_running: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Self {
        let found = Found {
            id: "episodes".to_owned(),
            format: crate::row::Format::Episodes,
            shown: "episodes".to_owned(),
            name: "Episodes".to_owned(),
            path: episodes,
        };
        let is_running = Some(IsRunning(Arc::new(is_running)));
        Self { fixed: vec![found], is_running, ..Self::open(Vec::new()) }
    }

    /// With what the model of an episode, by its id, has said since the last event.
    #[must_use]
    pub fn with_partial(self, partial: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        Self { partial: Some(Partial(Arc::new(partial))), ..self }
    }

    /// What the model of an episode has said since its last event. Only of a server's episodes.
    pub(crate) fn partial(&self, id: &str) -> String {
        self.partial.as_ref().map(|partial| (partial.0)(id)).unwrap_or_default()
    }

    /// The paths.
    pub fn roots(&self) -> &[PathBuf] {
        &self.roots
    }

    fn discovery(&self) -> Arc<Discovery> {
        lock(&self.found).get(|_| {
            let mut found = discover(&self.roots);
            found.runs.extend(self.fixed.iter().cloned());
            Arc::new(found)
        })
    }

    pub(crate) fn found(&self, id: &str) -> Result<Found, ViewError> {
        let all = self.discovery();
        let found = all.runs.iter().find(|run| run.id == id).cloned();
        found.ok_or_else(|| ViewError::not_found("run", id))
    }

    /// Reads a run, or what has changed.
    pub(crate) fn load(&self, found: &Found) -> Arc<Loaded> {
        let slot = slot(&self.runs, &found.id, crate::discover::MAX_RUNS);
        let mut slot = lock(&slot);
        slot.get(|before| {
            let before = before.map(AsRef::as_ref);
            Arc::new(formats::load(found, before, self.is_running.as_ref()))
        })
    }

    pub(crate) fn run(&self, id: &str) -> Result<(Found, Arc<Loaded>), ViewError> {
        let found = self.found(id)?;
        let loaded = self.load(&found);
        Ok((found, loaded))
    }

    /// The run of an attempt. A server knows at once which episodes there are and which are being played, so its run is read
    /// again where the last look differs.
    pub(crate) fn run_of(
        &self,
        run: &str,
        attempt: &str,
    ) -> Result<(Found, Arc<Loaded>), ViewError> {
        let (found, loaded) = self.run(run)?;
        let Some(is_running) = &self.is_running else { return Ok((found, loaded)) };
        let seen = loaded.table.find(attempt, &Scope::default());
        let seen = seen.ok().map(|(_, attempt)| attempt.row.state == State::Running);
        let is_there = || {
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
            attempt.chars().all(plain) && found.path.join(attempt).join("episode.json").is_file()
        };
        if seen == Some(is_running.check(attempt)) || (seen.is_none() && !is_there()) {
            return Ok((found, loaded));
        }
        let slot = slot(&self.runs, &found.id, crate::discover::MAX_RUNS);
        lock(&slot).at = Instant::now().checked_sub(FRESH * 1000).unwrap_or_else(Instant::now);
        let loaded = self.load(&found);
        Ok((found, loaded))
    }

    /// The table of runs.
    pub fn runs(&self, query: &RunQuery, scope: &Scope) -> RunsPage {
        let found = self.discovery();
        let mut all: Vec<RunRow> =
            found.runs.iter().map(|run| self.load(run).row_for(scope)).collect();
        let total = all.len();
        let mut kinds = std::collections::BTreeMap::new();
        for row in &all {
            *kinds.entry(row.kind.name()).or_insert(0) += 1;
        }
        all.retain(|row| query.selects(row));
        query.sort(&mut all);
        let matched = all.len();
        let offset = query.offset.unwrap_or(0).min(matched);
        let limit = query.limit.unwrap_or(LIMIT).clamp(1, MOST);
        let runs = all.into_iter().skip(offset).take(limit).collect();
        RunsPage { total, matched, offset, truncated: found.truncated, kinds, runs }
    }

    /// The events of an attempt.
    pub(crate) fn events(
        &self,
        run: &str,
        attempt: &Attempt,
    ) -> Result<Arc<EventIndex>, ViewError> {
        let store = attempt.events.as_ref();
        let id = &attempt.row.id;
        let store = store.ok_or_else(|| ViewError::not_found("record of the attempt", id))?;
        let slot = slot(&self.indices, &format!("{run}/{id}"), MAX_INDICES);
        let mut slot = lock(&slot);
        let before = slot.value.take();
        slot.used = Instant::now();
        let mut index = match before {
            Some(before) if !has_changed(store, &before) => before,
            before => Arc::new(EventIndex::read(store, before.as_deref())?),
        };
        let state = match &self.is_running {
            Some(is_running) if is_running.check(id) => State::Running,
            // A server knows: a file that was written a moment ago may be that of a server that crashed.
            Some(_) if index.ended.is_none() => State::Interrupted,
            _ => state(store, &index, attempt),
        };
        if index.state != state {
            Arc::make_mut(&mut index).state = state;
        }
        slot.value = Some(Arc::clone(&index));
        Ok(index)
    }
}

/// Whether a file of events may have more than its index.
fn has_changed(store: &EventStore, index: &EventIndex) -> bool {
    let EventStore::File { dir, file } = store else { return true };
    let about = dir.join(file).symlink_metadata();
    about.map_or(true, |about| !index.is_current(&about))
}

/// Where an episode stands, by its file.
fn state(store: &EventStore, index: &EventIndex, attempt: &Attempt) -> State {
    if index.ended.is_some() {
        return State::Ended;
    }
    match store {
        EventStore::Converted { .. } => State::Ended,
        EventStore::File { dir, file } => {
            let about = dir.join(file).symlink_metadata();
            let in_use = about.as_ref().is_ok_and(locks::is_in_use);
            match in_use || attempt.row.state == State::Running {
                true => State::Running,
                false => State::Interrupted,
            }
        }
    }
}

/// Which runs are wanted.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct RunQuery {
    /// Words that must all occur.
    pub q: Option<String>,
    /// The kind.
    pub kind: Option<String>,
    /// The column to sort by.
    pub sort: Option<String>,
    /// `asc` or `desc`.
    pub order: Option<String>,
    /// The first one.
    pub offset: Option<usize>,
    /// How many.
    pub limit: Option<usize>,
}

impl RunQuery {
    fn selects(&self, row: &RunRow) -> bool {
        let kind = self.kind.as_deref().filter(|kind| !kind.is_empty());
        if kind.is_some_and(|kind| kind != row.kind.name()) {
            return false;
        }
        let words = self.q.as_deref().unwrap_or_default().to_lowercase();
        let parts = [Some(&row.name), Some(&row.path), row.model.as_ref(), row.task.as_ref()];
        let searched = parts.into_iter().flatten().map(|part| part.to_lowercase());
        let searched = searched.collect::<Vec<_>>().join("\n");
        words.split_whitespace().all(|word| searched.contains(word))
    }

    fn sort(&self, rows: &mut [RunRow]) {
        let by = self.sort.as_deref().unwrap_or("started");
        let text = |row: &RunRow| match by {
            "model" => row.model.clone().unwrap_or_default().to_lowercase(),
            "task" => row.task.clone().unwrap_or_default().to_lowercase(),
            _ => row.path.to_lowercase(),
        };
        let number = |row: &RunRow| match by {
            "score" => row.score,
            "started" => row.started.or(row.updated).map(|at| at as f64),
            _ => None,
        };
        match by {
            "score" | "started" => rows.sort_by(|a, b| {
                let (a, b) = (number(a), number(b));
                a.unwrap_or(f64::NEG_INFINITY).total_cmp(&b.unwrap_or(f64::NEG_INFINITY))
            }),
            _ => rows.sort_by_cached_key(text),
        }
        let newest_first = matches!(by, "score" | "started");
        let descending = match self.order.as_deref() {
            Some("asc") => false,
            Some("desc") => true,
            _ => newest_first,
        };
        if descending {
            rows.reverse();
        }
    }
}

/// Some runs.
#[derive(Clone, Debug, Serialize)]
pub struct RunsPage {
    /// Number of all runs.
    pub total: usize,
    /// Number of those that the query selects.
    pub matched: usize,
    /// The first one shown.
    pub offset: usize,
    /// Whether there are more than are looked for.
    pub truncated: bool,
    /// Runs by kind.
    pub kinds: std::collections::BTreeMap<&'static str, usize>,
    /// The runs.
    pub runs: Vec<RunRow>,
}
