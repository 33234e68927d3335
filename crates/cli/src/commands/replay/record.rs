//! Reads recorded episodes in all their forms: run directories, their files, attempts of benchmarks, files of the
//! reference. What is missing is an error, never an empty episode.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use report::transcript::{Notice, Picture, notices, pictures};
use results::{AttemptRecord, Judgement, ResultsDir, Run, open_below};
use serde_json::{Value, json};
use trajectory::{Line, MAX_FILE_VALUES, Mode, Outcome, Trajectory, count_values};

use super::args::SelectArgs;
use crate::{
    commands::run::{RunDir, text_of},
    console::output,
    exit::{UsageError, describe},
    outcome_text::{KnownLimits, outcome_text},
};

/// Attempts that cannot be read and are reported one by one.
const MAX_DAMAGED: usize = 5;

/// A recorded episode and what is known about it.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) trajectory: Trajectory,
    pub(crate) notices: Vec<Notice>,
    pub(crate) pictures: Vec<Picture>,
    /// Whether there are events: an attempt may have failed before its first.
    pub(crate) has_events: bool,
    pub(crate) attempt: Option<AttemptRecord>,
    pub(crate) judgement: Option<Judgement>,
    /// The file with the complete record.
    pub(crate) source: PathBuf,
    /// The directory of a run with the files the model left.
    pub(crate) run: Option<RunDir>,
}

/// Where a record is.
#[derive(Debug)]
pub(crate) enum Location {
    /// One episode.
    Episode(Box<Recorded>),
    /// The attempts of a benchmark run.
    Results(ResultsDir),
}

impl Recorded {
    fn new(lines: &[Line], source: PathBuf) -> Self {
        Self {
            trajectory: Trajectory::from_events(lines),
            notices: notices(lines),
            pictures: pictures(lines),
            has_events: true,
            attempt: None,
            judgement: None,
            source,
            run: None,
        }
    }

    /// An attempt, as it counts now, with its events, and why they cannot be read. Without events it is an episode without
    /// steps.
    pub(crate) fn of_attempt(
        results: &ResultsDir,
        attempt: AttemptRecord,
    ) -> (Self, Option<String>) {
        let source = results.trajectory_path(&attempt.key);
        let (lines, problem) = match results.events(&attempt.key) {
            Ok(lines) => (Some(lines), None),
            Err(error) if source.symlink_metadata().is_ok() => {
                (None, Some(describe(&error.into())))
            }
            Err(_) => (None, None),
        };
        let judgement = results.judgement(&attempt.key);
        let mut recorded = Self::new(lines.as_deref().unwrap_or_default(), source);
        recorded.notices.extend(problem.iter().map(|why| Notice { turn: 0, text: why.clone() }));
        let has_events = lines.is_some();
        (Self { has_events, attempt: Some(attempt), judgement, ..recorded }, problem)
    }

    /// How the episode ended, in words; none where it has not ended.
    pub(crate) fn outcome(&self) -> Option<String> {
        let metadata = &self.trajectory.metadata;
        let limits = metadata.get("settings").map(KnownLimits::recorded).unwrap_or_default();
        if let Some(attempt) = &self.attempt {
            return Some(outcome_text(&attempt.outcome, &limits, attempt.key.mode));
        }
        let name = metadata.get("outcome")?.as_str()?;
        let cause = metadata.get("cause").and_then(Value::as_str).unwrap_or_default();
        let outcome = serde_json::from_value::<Outcome>(json!({"outcome": name, "cause": cause}));
        Some(match outcome {
            Ok(outcome) => outcome_text(&outcome, &limits, Mode::Sandbox),
            // A later version may know more.
            Err(_) => name.to_owned(),
        })
    }
}

/// An attempt as it counts now in its run, as reports show it: an outdated grade is none. Unchanged where the run is not
/// known.
pub(crate) fn current(run: Option<&Run>, attempt: AttemptRecord) -> AttemptRecord {
    match run {
        Some(run) => run.current(attempt),
        None => attempt,
    }
}

/// Finds out what a path is, and reads it if it is one episode.
pub(super) fn read(path: &Path) -> anyhow::Result<Location> {
    if path.is_dir() {
        let events = path.join("events.jsonl");
        if !events.is_file() && is_results(path) {
            return Ok(Location::Results(ResultsDir::new(path)));
        }
        let run = RunDir::open(path)?;
        let recorded = Recorded::new(&run.read_events()?, events);
        return Ok(episode(Recorded { run: Some(run), ..recorded }));
    }
    let invalid = |why: String| UsageError(format!("cannot read {}: {why}", path.display()));
    let text = open(path).and_then(text_of).map_err(|error| invalid(error.to_string()))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name.ends_with(".jsonl") || name.ends_with(".jsonl.partial") {
        let lines = trajectory::read(&text).map_err(|error| invalid(error.to_string()))?;
        let mut recorded = Recorded::new(&lines, path.to_owned());
        if let Some((results, attempt)) = attempt_beside(path) {
            recorded.judgement = results.judgement(&attempt.key);
            recorded.attempt = Some(attempt);
        }
        return Ok(episode(recorded));
    }
    let not_a_trajectory = |why: &dyn std::fmt::Display| {
        invalid(format!(
            "it is not a trajectory ({why}); give a run directory, its trajectory.json or its events.jsonl, or the \
             results directory of a benchmark"
        ))
    };
    if count_values(text.as_bytes(), MAX_FILE_VALUES) > MAX_FILE_VALUES {
        return Err(invalid(format!("it has more than {MAX_FILE_VALUES} values")).into());
    }
    let value: Value = serde_json::from_str(&text).map_err(|error| not_a_trajectory(&error))?;
    if let Ok(attempt) = serde_json::from_value::<AttemptRecord>(value.clone()) {
        return of_attempt_file(path, attempt).map(episode);
    }
    if value.get("steps").is_none() {
        return Err(not_a_trajectory(&"it has no steps").into());
    }
    let trajectory = serde_json::from_value(value).map_err(|error| not_a_trajectory(&error))?;
    Ok(episode(Recorded { trajectory, ..Recorded::new(&[], path.to_owned()) }))
}

/// The selected attempts of a run, in the order of their names.
pub(super) fn select(
    results: &ResultsDir,
    select: &SelectArgs,
) -> anyhow::Result<Vec<AttemptRecord>> {
    let mut selected = Vec::new();
    let mut known = Vec::new();
    let mut damaged = 0;
    let run = results.run().ok().flatten();
    for attempt in results.attempts()? {
        let attempt = match attempt {
            Ok(attempt) => attempt,
            Err(error) => {
                damaged += 1;
                if damaged <= MAX_DAMAGED {
                    output::note(&describe(&error.into()));
                }
                continue;
            }
        };
        let key = &attempt.key;
        if known.len() < 3 && !known.contains(&key.id) {
            known.push(key.id.clone());
        }
        let wanted = select.id.as_ref().is_none_or(|id| *id == key.id)
            && select.attempt.is_none_or(|number| number == key.repeat)
            && select.mode.is_none_or(|modes| modes.all().contains(&key.mode));
        if wanted {
            selected.push(current(run.as_ref(), attempt));
        }
    }
    match (selected.is_empty(), known.is_empty()) {
        (false, _) => Ok(selected),
        (true, true) => Err(UsageError(format!(
            "{} has no attempts yet; resume the benchmark, or wait for its first attempt",
            results.path().display()
        ))
        .into()),
        (true, false) => Err(UsageError(format!(
            "no attempt in {} matches --id, --attempt and --mode; problems are {}, …",
            results.path().display(),
            known.join(", ")
        ))
        .into()),
    }
}

fn episode(recorded: Recorded) -> Location {
    Location::Episode(Box::new(recorded))
}

fn is_results(path: &Path) -> bool {
    path.join("attempts").is_dir() || path.join("trajectories").is_dir()
}

/// An attempt from its own file, which has no steps: they are in the file of its events.
fn of_attempt_file(path: &Path, attempt: AttemptRecord) -> anyhow::Result<Recorded> {
    if attempt.v > results::VERSION {
        let (name, v) = (path.display(), attempt.v);
        return Err(UsageError(format!("{name} has version {v}; use a newer program")).into());
    }
    let results = results_of(path);
    let events = results.as_ref().map(|results| results.trajectory_path(&attempt.key));
    let missing = |place: String| {
        UsageError(format!(
            "{} is an attempt of a benchmark and holds its result only; its events are missing{place}",
            path.display()
        ))
    };
    match (results, events) {
        (Some(results), Some(events)) if events.is_file() => {
            let attempt = current(results.run().ok().flatten().as_ref(), attempt);
            match Recorded::of_attempt(&results, attempt) {
                (recorded, None) => Ok(recorded),
                (_, Some(why)) => Err(UsageError(why).into()),
            }
        }
        (Some(_), Some(events)) => {
            Err(missing(format!(": there is no {}", events.display())).into())
        }
        _ => Err(missing("; give the file inside its results directory".to_owned()).into()),
    }
}

/// Names of the records in a run directory.
const RECORDS: [&str; 2] = ["events.jsonl", "trajectory.json"];

/// Opens a file that the user named. Where it belongs to a results or run directory, no link inside that directory is
/// followed, as it may come from a stranger; elsewhere the file may be a link.
fn open(path: &Path) -> io::Result<File> {
    if let Some(results) = results_of(path) {
        let path = std::path::absolute(path)?;
        return open_below(results.path(), path.strip_prefix(results.path()).unwrap_or(&path));
    }
    let directory = path.parent().unwrap_or(Path::new(""));
    match path.file_name() {
        Some(name) if RECORDS.iter().any(|record| name == *record) => {
            open_below(directory, Path::new(name))
        }
        // Reading from a pipe would block.
        _ if !fs::metadata(path)?.is_file() => Err(io::Error::other("it is not a file")),
        _ => File::open(path),
    }
}

/// The results directory that a file `KIND/TASK/MODE/FILE` is in.
fn results_of(path: &Path) -> Option<ResultsDir> {
    let path = std::path::absolute(path).ok()?;
    let kind = path.ancestors().nth(3)?;
    let known = ["attempts", "trajectories"].iter().any(|name| kind.ends_with(name));
    known.then(|| kind.parent().map(ResultsDir::new)).flatten()
}

/// The attempt that a file of events belongs to.
fn attempt_beside(events: &Path) -> Option<(ResultsDir, AttemptRecord)> {
    let events = std::path::absolute(events).ok()?;
    let results = results_of(&events)?;
    let below = events.strip_prefix(results.path().join("trajectories")).ok()?;
    let file = results.path().join("attempts").join(below).with_extension("json");
    let attempt = results.read_attempt(&file).ok()?;
    if results.trajectory_path(&attempt.key) != events {
        return None;
    }
    let attempt = current(results.run().ok().flatten().as_ref(), attempt);
    Some((results, attempt))
}
