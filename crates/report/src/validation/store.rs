//! Finds and reads the measured sets of a run. Files may come from elsewhere: sizes are bounded, only regular files are
//! opened, and no link below the run is followed.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use results::open_below;
use serde::Deserialize;
use trajectory::{Line, Mode};

use super::{EpisodeRecord, SetInfo, UNNAMED, VERSION};

/// The directory in a run.
const DIRECTORY: &str = "validation";

/// The largest file of a set, in bytes.
const MAX_BYTES: u64 = 1 << 30;

/// The largest file of events, in bytes.
const MAX_EVENT_BYTES: u64 = 64 << 20;

/// Results cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A file or directory cannot be read.
    #[error("cannot read {}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// A file cannot be parsed.
    #[error("{} is damaged", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The parse error.
        #[source]
        source: serde_json::Error,
    },
    /// A file of a later version.
    #[error("{} has version {found}; this program reads version {VERSION}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// There are no results.
    #[error(
        "{} has no validation results: it is not a run of `train rl` with validation, or no validation is complete",
        path.display()
    )]
    None {
        /// The run directory.
        path: PathBuf,
    },
}

/// The directory of the results of a step.
pub fn step_directory(run: &Path, step: u64) -> PathBuf {
    run.join(DIRECTORY).join(step_name(step))
}

fn step_name(step: u64) -> String {
    format!("step-{step:06}")
}

/// The measured sets of a run: by name, the steps at which each was measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validations {
    run: PathBuf,
    sets: BTreeMap<String, Vec<u64>>,
}

/// A set at a step, with all its episodes.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredSet {
    /// Its settings and metrics.
    pub info: SetInfo,
    /// Its episodes, in the order of its problems.
    pub records: Vec<EpisodeRecord>,
}

impl Validations {
    /// Finds the complete sets of a run.
    pub fn find(run: &Path) -> Result<Self, StoreError> {
        let failed = |source| StoreError::Io { path: run.to_owned(), source };
        let mut sets: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        fs::metadata(run).map_err(failed)?;
        for (step, dir) in steps(run).map_err(failed)? {
            for entry in fs::read_dir(&dir).map_err(failed)?.flatten() {
                let path = entry.path();
                let is_info = path.extension().is_some_and(|extension| extension == "json");
                if let Some(name) = path.file_stem().and_then(|name| name.to_str())
                    && is_info
                    && !name.starts_with('.')
                {
                    sets.entry(name.to_owned()).or_default().push(step);
                }
            }
        }
        sets.values_mut().for_each(|steps| steps.sort_unstable());
        match sets.is_empty() {
            true => Err(StoreError::None { path: run.to_owned() }),
            false => Ok(Self { run: run.to_owned(), sets }),
        }
    }

    /// The sets and the steps at which they were measured, ascending.
    pub fn sets(&self) -> &BTreeMap<String, Vec<u64>> {
        &self.sets
    }

    /// Reads a set at a step.
    pub fn read(&self, name: &str, step: u64) -> Result<MeasuredSet, StoreError> {
        read(&self.run, &Path::new(DIRECTORY).join(step_name(step)), name)
    }

    /// Whether the events of an episode exist.
    pub(super) fn has_events(&self, episode: &EpisodeRecord) -> bool {
        let path = episode.events.as_deref();
        path.is_some_and(|path| open_below(&self.run, Path::new(path)).is_ok())
    }

    /// Reads the events of an episode.
    pub fn events(&self, episode: &EpisodeRecord) -> io::Result<Vec<Line>> {
        let path = episode.events.as_deref().ok_or(io::ErrorKind::NotFound)?;
        let text = bounded_text(&self.run, Path::new(path), MAX_EVENT_BYTES)?;
        trajectory::read(&text).map_err(io::Error::other)
    }
}

impl MeasuredSet {
    /// The name of the files of a set.
    pub fn file_name(name: Option<&str>) -> &str {
        name.unwrap_or(UNNAMED)
    }

    /// Whether its episodes have a sandbox, where its settings say so.
    pub fn mode(&self) -> Option<Mode> {
        Mode::deserialize(self.info.settings.get("mode")?).ok()
    }
}

/// The steps of a run that have results, with their directories.
fn steps(run: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let all = run.join(DIRECTORY);
    if all.is_symlink() {
        return Err(io::Error::other("its results are behind a link, and links are not followed"));
    }
    let entries = match fs::read_dir(all) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut steps = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let step = name.to_str().and_then(|name| name.strip_prefix("step-")?.parse().ok());
        // Another spelling of a number would count a step twice.
        let is_step = |step: &u64| {
            name == *step_name(*step) && entry.file_type().is_ok_and(|kind| kind.is_dir())
        };
        if let Some(step) = step.filter(is_step) {
            steps.push((step, entry.path()));
        }
    }
    Ok(steps)
}

fn read(run: &Path, below: &Path, name: &str) -> Result<MeasuredSet, StoreError> {
    let path = below.join(format!("{name}.json"));
    let damaged = |path: &Path, source| StoreError::Damaged { path: run.join(path), source };
    let info: SetInfo =
        serde_json::from_str(&text(run, &path)?).map_err(|source| damaged(&path, source))?;
    if info.version > VERSION {
        return Err(StoreError::Version { path: run.join(path), found: info.version });
    }
    let path = below.join(format!("{name}.jsonl"));
    let records = text(run, &path)?
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()
        .map_err(|source| damaged(&path, source))?;
    Ok(MeasuredSet { info, records })
}

/// The text of a file below a run.
fn text(run: &Path, path: &Path) -> Result<String, StoreError> {
    bounded_text(run, path, MAX_BYTES)
        .map_err(|source| StoreError::Io { path: run.join(path), source })
}

fn bounded_text(run: &Path, path: &Path, most: u64) -> io::Result<String> {
    let file = open_below(run, path)?;
    if file.metadata()?.len() > most {
        return Err(io::Error::other(format!("it is longer than {} MiB", most >> 20)));
    }
    let mut text = String::new();
    file.take(most).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_steps_as_they_are_written_are_found() {
        let run = tempfile::tempdir().unwrap();
        for name in ["step-000001", "step-1", "step-+00001", "step-1000000"] {
            let dir = run.path().join(DIRECTORY).join(name);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("set.json"), "{}").unwrap();
        }
        let found = Validations::find(run.path()).unwrap();
        assert_eq!(found.sets()["set"], [1, 1_000_000]);
    }

    #[test]
    fn links_are_not_followed() {
        let (run, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(other.path().join("set.json"), "secret").unwrap();
        let step = step_directory(run.path(), 1);
        fs::create_dir_all(&step).unwrap();
        symlink(other.path().join("set.json"), step.join("set.json")).unwrap();
        let found = Validations::find(run.path()).unwrap();
        let Err(StoreError::Io { source, .. }) = found.read("set", 1) else { panic!() };
        assert!(source.to_string().contains("a link"), "{source}");
        // Nor is a directory that is one.
        let linked = tempfile::tempdir().unwrap();
        symlink(run.path().join(DIRECTORY), linked.path().join(DIRECTORY)).unwrap();
        assert!(matches!(Validations::find(linked.path()), Err(StoreError::Io { .. })));
    }
}
