//! Checkpoints: all a run needs to go on, in a directory that is there whole or not at all.
//!
//! Written beside, brought to the disk, then renamed. Knows an optimiser's memory and a few counters, not what they
//! train.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use tch::Tensor;

use crate::{adamw::Memory, run::plain_file};

/// The version of the files this program writes and reads.
const VERSION: u32 = 1;

/// The file of counters.
const STATE: &str = "state.json";

/// No file of counters is longer.
const LONGEST: u64 = 1 << 20;

/// Where a run stands besides its weights.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Position {
    /// Steps that are complete.
    pub step: u64,
    /// Rows of data that were drawn. What is drawn next follows from it and the seed, as all chance does.
    pub drawn: u64,
}

#[derive(Serialize, Deserialize)]
struct State {
    version: u32,
    position: Position,
    /// Steps of the optimiser; those skipped are none.
    optimiser_steps: u64,
}

/// A checkpoint cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// A file or directory cannot be used.
    #[error("cannot {doing} {}", path.display())]
    File {
        /// What was tried.
        doing: &'static str,
        /// With what.
        path: PathBuf,
        /// What came of it.
        #[source]
        source: io::Error,
    },
    /// The tensors cannot be written or read.
    #[error("cannot {doing} the tensors of {}", path.display())]
    Tensors {
        /// What was tried.
        doing: &'static str,
        /// With what.
        path: PathBuf,
        /// What came of it.
        #[source]
        source: tch::TchError,
    },
    /// The counters make no sense.
    #[error("{} is no state of a run; remove that checkpoint to go on from the one before", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// It is that of another step.
    #[error("{} is the state of step {found}; remove that checkpoint to go on from the one before", path.display())]
    OtherStep {
        /// The file.
        path: PathBuf,
        /// Of which step.
        found: u64,
    },
    /// Another program wrote it.
    #[error("{} has version {found}; this program reads {VERSION}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
}

impl CheckpointError {
    fn file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { doing, path, source }
    }

    fn tensors(doing: &'static str, path: &Path) -> impl FnOnce(tch::TchError) -> Self {
        let path = path.to_owned();
        move |source| Self::Tensors { doing, path, source }
    }
}

/// The checkpoints of a run.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    dir: PathBuf,
    /// How many are kept.
    keep: usize,
}

impl Checkpoints {
    /// Those in the directory of a run, of which the last `keep` are kept.
    pub fn of(run: &Path, keep: usize) -> Self {
        Self { dir: run.join("checkpoints"), keep: keep.max(1) }
    }

    /// Writes one, and removes the oldest beyond those kept.
    pub fn save(&self, position: &Position, memory: &Memory) -> Result<PathBuf, CheckpointError> {
        fs::create_dir_all(&self.dir).map_err(CheckpointError::file("make", &self.dir))?;
        let beside = self.dir.join("unfinished");
        remove(&beside)?;
        fs::create_dir(&beside).map_err(CheckpointError::file("make", &beside))?;
        for (name, tensors) in
            [("master", &memory.master), ("first", &memory.first), ("second", &memory.second)]
        {
            let path = beside.join(format!("{name}.safetensors"));
            Tensor::write_safetensors(tensors, &path)
                .map_err(CheckpointError::tensors("write", &path))?;
            sync(&path)?;
        }
        let state =
            State { version: VERSION, position: position.clone(), optimiser_steps: memory.steps };
        let path = beside.join(STATE);
        let text = serde_json::to_vec_pretty(&state)
            .map_err(|source| CheckpointError::State { path: path.clone(), source })?;
        fs::write(&path, text).map_err(CheckpointError::file("write", &path))?;
        sync(&path)?;
        sync(&beside)?;
        let path = self.path(position.step);
        remove(&path)?;
        fs::rename(&beside, &path).map_err(CheckpointError::file("rename", &beside))?;
        sync(&self.dir)?;
        self.remove_old()?;
        Ok(path)
    }

    /// The steps there are checkpoints of, in order.
    pub fn steps(&self) -> Result<Vec<u64>, CheckpointError> {
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(CheckpointError::file("read", &self.dir))?,
        };
        let names = entries.flatten().map(|entry| entry.file_name());
        let number = |name: std::ffi::OsString| name.to_str()?.strip_prefix("step-")?.parse().ok();
        let mut steps: Vec<u64> = names.filter_map(number).collect();
        steps.sort_unstable();
        Ok(steps)
    }

    /// The last one, if there is any.
    pub fn last(&self) -> Result<Option<(Position, Memory)>, CheckpointError> {
        self.steps()?.last().map(|step| self.load(*step)).transpose()
    }

    /// That of a step.
    pub fn load(&self, step: u64) -> Result<(Position, Memory), CheckpointError> {
        let dir = self.path(step);
        let path = dir.join(STATE);
        plain_file(&path).map_err(CheckpointError::file("read", &path))?;
        let file = File::open(&path).map_err(CheckpointError::file("open", &path))?;
        let state: State = serde_json::from_reader(io::Read::take(file, LONGEST))
            .map_err(|source| CheckpointError::State { path: path.clone(), source })?;
        if state.version != VERSION {
            return Err(CheckpointError::Version { path, found: state.version });
        }
        if state.position.step != step {
            return Err(CheckpointError::OtherStep { path, found: state.position.step });
        }
        let memory = Memory {
            master: tensors(&dir, "master")?,
            first: tensors(&dir, "first")?,
            second: tensors(&dir, "second")?,
            steps: state.optimiser_steps,
        };
        Ok((state.position, memory))
    }

    /// The weights alone of that of a step, by the names of parameters.
    pub fn weights(&self, step: u64) -> Result<Vec<(String, Tensor)>, CheckpointError> {
        tensors(&self.path(step), "master")
    }

    fn path(&self, step: u64) -> PathBuf {
        self.dir.join(format!("step-{step:06}"))
    }

    fn remove_old(&self) -> Result<(), CheckpointError> {
        let steps = self.steps()?;
        let old = steps.len().saturating_sub(self.keep);
        steps.iter().take(old).try_for_each(|step| {
            // Renamed first: what a killed process leaves of it is no checkpoint.
            let (path, gone) = (self.path(*step), self.dir.join("unfinished"));
            remove(&gone)?;
            fs::rename(&path, &gone).map_err(CheckpointError::file("rename", &path))?;
            remove(&gone)
        })
    }
}

fn tensors(dir: &Path, name: &str) -> Result<Vec<(String, Tensor)>, CheckpointError> {
    let path = dir.join(format!("{name}.safetensors"));
    plain_file(&path).map_err(CheckpointError::file("read", &path))?;
    Tensor::read_safetensors(&path).map_err(CheckpointError::tensors("read", &path))
}

fn remove(dir: &Path) -> Result<(), CheckpointError> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(CheckpointError::file("remove", dir)),
    }
}

/// Brings a file or directory to the disk.
fn sync(path: &Path) -> Result<(), CheckpointError> {
    let synced = File::open(path).and_then(|file| file.sync_all());
    synced.map_err(CheckpointError::file("bring to the disk", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(value: f32) -> Memory {
        let named = |value: f32| vec![("a.b".to_owned(), Tensor::from_slice(&[value, -value]))];
        Memory { master: named(value), first: named(value + 1.0), second: named(0.1), steps: 3 }
    }

    fn numbers(tensors: &[(String, Tensor)]) -> Vec<f32> {
        Vec::try_from(&tensors[0].1).unwrap()
    }

    #[test]
    fn what_was_saved_comes_back_to_the_bit() {
        let run = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::of(run.path(), 2);
        assert!(checkpoints.last().unwrap().is_none());
        let position = Position { step: 4, drawn: 99 };
        checkpoints.save(&position, &memory(0.3)).unwrap();
        let (found, kept) = checkpoints.last().unwrap().unwrap();
        assert_eq!((found, kept.steps), (position, 3));
        assert_eq!(numbers(&kept.master), [0.3, -0.3]);
        assert_eq!(numbers(&kept.first), [1.3, -1.3]);
    }

    #[test]
    fn the_last_few_are_kept_and_half_ones_are_none() {
        let run = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::of(run.path(), 2);
        for step in [8, 9, 10, 11] {
            checkpoints.save(&Position { step, drawn: 0 }, &memory(step as f32)).unwrap();
        }
        assert_eq!(checkpoints.steps().unwrap(), [10, 11]);
        fs::create_dir(run.path().join("checkpoints/unfinished")).unwrap();
        fs::write(run.path().join("checkpoints/unfinished/state.json"), "{").unwrap();
        assert_eq!(checkpoints.last().unwrap().unwrap().0.step, 11);
        checkpoints.save(&Position { step: 11, drawn: 1 }, &memory(5.0)).unwrap();
        assert_eq!(
            checkpoints.last().unwrap().unwrap().0.drawn,
            1,
            "the same step again replaces it"
        );
    }

    #[test]
    fn files_of_somebody_else_are_refused_by_name() {
        let run = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::of(run.path(), 2);
        let path = checkpoints.save(&Position { step: 1, drawn: 0 }, &memory(0.0)).unwrap();
        fs::write(path.join("first.safetensors"), b"\xff\xff\xff\xff\xff\xff\xff\xff").unwrap();
        let error = checkpoints.last().unwrap_err();
        assert!(error.to_string().contains("first.safetensors"), "{error}");
        fs::write(path.join("state.json"), "{\"version\": 9}").unwrap();
        assert!(checkpoints.last().is_err());
    }
}
