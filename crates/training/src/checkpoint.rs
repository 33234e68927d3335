//! Checkpoints: everything a run needs to resume, in a directory that appears complete or not at all.
//!
//! Written to a temporary directory, synced, then renamed. [`Progress`] decides when a run saves one.
//!
//! Layout: `checkpoints/step-NNNNNN/{master,first,second}.safetensors` and `state.json`.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use sandbox::Runtime;
use serde::{Deserialize, Serialize};
use tch::Tensor;

use crate::{
    adamw::OptimizerState,
    draw::Bucket,
    events::RunEvent,
    file_error::FileError,
    run::check_regular_file,
    services::{Services, TrainError},
    trainer::Trainer,
};

/// The format version this program writes and reads.
const VERSION: u32 = 1;

/// The file of counters.
const STATE: &str = "state.json";

/// The maximum size of the file of counters, in bytes.
const MAX_STATE_BYTES: u64 = 1 << 20;

/// The progress of a run, besides its weights.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Position {
    /// Completed steps.
    pub step: u64,
    /// Rows of data drawn so far. What is drawn next follows from this and the seed.
    pub drawn: u64,
    /// What is known of each bucket of problems, where problems are drawn by pass rate.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub buckets: BTreeMap<String, Bucket>,
    /// The problems whose groups were still being played, by their index in the data. A resumed run plays them again in
    /// its next step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub carried: Vec<usize>,
}

#[derive(Serialize, Deserialize)]
struct State {
    version: u32,
    position: Position,
    /// Optimizer steps, without skipped ones.
    #[serde(rename = "optimiser_steps")]
    optimizer_steps: u64,
}

/// A checkpoint cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// A file or directory cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// The tensors cannot be written or read.
    #[error("cannot {action} the tensors of {}", path.display())]
    Tensors {
        /// What was attempted, as a verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of libtorch.
        #[source]
        source: tch::TchError,
    },
    /// The counters cannot be parsed.
    #[error(
        "{} is not the state of a run; remove that checkpoint to resume from the previous one",
        path.display()
    )]
    State {
        /// The file.
        path: PathBuf,
        /// The parse error.
        #[source]
        source: serde_json::Error,
    },
    /// The counters belong to another step.
    #[error(
        "{} is the state of step {found}; remove that checkpoint to resume from the previous one",
        path.display()
    )]
    OtherStep {
        /// The file.
        path: PathBuf,
        /// Its step.
        found: u64,
    },
    /// The format version is not supported.
    #[error("{} has version {found}; this program reads version {VERSION}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
}

impl CheckpointError {
    fn tensors(action: &'static str, path: &Path) -> impl FnOnce(tch::TchError) -> Self {
        let path = path.to_owned();
        move |source| Self::Tensors { action, path, source }
    }
}

/// The checkpoints of a run.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    dir: PathBuf,
    keep: usize,
}

impl Checkpoints {
    /// The checkpoints in a run directory. Saving removes all but the last `keep`, at least 1.
    pub fn new(run: &Path, keep: usize) -> Self {
        Self { dir: run.join("checkpoints"), keep: keep.max(1) }
    }

    /// Those of a run that is only read.
    pub(crate) fn read_only(run: &Path) -> Self {
        Self::new(run, usize::MAX)
    }

    /// Writes a checkpoint, then removes the oldest ones beyond `keep`.
    pub fn save(
        &self,
        position: &Position,
        optimizer: &OptimizerState,
    ) -> Result<PathBuf, CheckpointError> {
        fs::create_dir_all(&self.dir).map_err(FileError::new("create", &self.dir))?;
        let partial = self.dir.join("unfinished");
        remove_dir(&partial)?;
        fs::create_dir(&partial).map_err(FileError::new("create", &partial))?;
        let OptimizerState { master, first, second, steps } = optimizer;
        for (name, tensors) in [("master", master), ("first", first), ("second", second)] {
            let path = partial.join(format!("{name}.safetensors"));
            Tensor::write_safetensors(tensors, &path)
                .map_err(CheckpointError::tensors("write", &path))?;
            sync(&path)?;
        }
        let state = State { version: VERSION, position: position.clone(), optimizer_steps: *steps };
        let path = partial.join(STATE);
        let text = serde_json::to_vec_pretty(&state)
            .map_err(|source| CheckpointError::State { path: path.clone(), source })?;
        fs::write(&path, text).map_err(FileError::new("write", &path))?;
        sync(&path)?;
        sync(&partial)?;
        let path = self.path(position.step);
        remove_dir(&path)?;
        fs::rename(&partial, &path).map_err(FileError::new("rename", &partial))?;
        sync(&self.dir)?;
        self.remove_old()?;
        Ok(path)
    }

    /// The steps with a checkpoint, ascending.
    pub fn steps(&self) -> Result<Vec<u64>, CheckpointError> {
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(FileError::new("read", &self.dir))?,
        };
        let names = entries.flatten().map(|entry| entry.file_name());
        let number = |name: std::ffi::OsString| name.to_str()?.strip_prefix("step-")?.parse().ok();
        let mut steps: Vec<u64> = names.filter_map(number).collect();
        steps.sort_unstable();
        Ok(steps)
    }

    /// The last checkpoint, if there is one.
    pub fn last(&self) -> Result<Option<(Position, OptimizerState)>, CheckpointError> {
        self.steps()?.last().map(|step| self.load(*step)).transpose()
    }

    /// The checkpoint of a step.
    pub fn load(&self, step: u64) -> Result<(Position, OptimizerState), CheckpointError> {
        let dir = self.path(step);
        let path = dir.join(STATE);
        check_regular_file(&path).map_err(FileError::new("read", &path))?;
        let file = File::open(&path).map_err(FileError::new("open", &path))?;
        let state: State = serde_json::from_reader(io::Read::take(file, MAX_STATE_BYTES))
            .map_err(|source| CheckpointError::State { path: path.clone(), source })?;
        if state.version != VERSION {
            return Err(CheckpointError::Version { path, found: state.version });
        }
        if state.position.step != step {
            return Err(CheckpointError::OtherStep { path, found: state.position.step });
        }
        let optimizer = OptimizerState {
            master: read_tensors(&dir, "master")?,
            first: read_tensors(&dir, "first")?,
            second: read_tensors(&dir, "second")?,
            steps: state.optimizer_steps,
        };
        Ok((state.position, optimizer))
    }

    /// The master weights of a step's checkpoint, by parameter name.
    pub fn weights(&self, step: u64) -> Result<Vec<(String, Tensor)>, CheckpointError> {
        read_tensors(&self.path(step), "master")
    }

    fn path(&self, step: u64) -> PathBuf {
        self.dir.join(format!("step-{step:06}"))
    }

    fn remove_old(&self) -> Result<(), CheckpointError> {
        let steps = self.steps()?;
        let old = steps.len().saturating_sub(self.keep);
        steps.iter().take(old).try_for_each(|step| {
            // Renamed first: what a killed process leaves of it must not look like a checkpoint.
            let (path, partial) = (self.path(*step), self.dir.join("unfinished"));
            remove_dir(&partial)?;
            fs::rename(&path, &partial).map_err(FileError::new("rename", &path))?;
            remove_dir(&partial)
        })
    }
}

fn read_tensors(dir: &Path, name: &str) -> Result<Vec<(String, Tensor)>, CheckpointError> {
    let path = dir.join(format!("{name}.safetensors"));
    check_regular_file(&path).map_err(FileError::new("read", &path))?;
    Tensor::read_safetensors(&path).map_err(CheckpointError::tensors("read", &path))
}

fn remove_dir(dir: &Path) -> Result<(), CheckpointError> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => Ok(removed.map_err(FileError::new("remove", dir))?),
    }
}

/// Flushes a file or directory to disk.
fn sync(path: &Path) -> Result<(), CheckpointError> {
    let synced = File::open(path).and_then(|file| file.sync_all());
    Ok(synced.map_err(FileError::new("sync", path))?)
}

/// The position of a run, and the step it was last saved at.
pub(crate) struct Progress {
    pub(crate) position: Position,
    checkpoints: Checkpoints,
    saved: Option<u64>,
}

impl Progress {
    /// Loads the last checkpoint of a run into the trainer, or starts at step 0.
    pub(crate) fn resume(
        run: &Path,
        keep: usize,
        trainer: &mut Trainer,
    ) -> Result<Self, TrainError> {
        let checkpoints = Checkpoints::new(run, keep);
        let Some((position, state)) = checkpoints.last()? else {
            return Ok(Self { position: Position::default(), checkpoints, saved: None });
        };
        trainer.load_state(&state)?;
        let saved = Some(position.step);
        Ok(Self { position, checkpoints, saved })
    }

    /// The step of the last checkpoint.
    pub(crate) fn saved(&self) -> Option<u64> {
        self.saved
    }

    /// Saves a checkpoint, unless the current step is saved already.
    pub(crate) fn save<R: Runtime>(
        &mut self,
        trainer: &Trainer,
        services: &Services<'_, R>,
    ) -> Result<(), TrainError> {
        let step = self.position.step;
        if self.saved == Some(step) || step == 0 {
            return Ok(());
        }
        self.checkpoints.save(&self.position, &trainer.state()?)?;
        self.saved = Some(step);
        services.observer.on_event(RunEvent::Saved { step });
        Ok(())
    }

    /// Saves after an error that left the weights intact. A failure to save is only noted, so as not to hide the error.
    pub(crate) fn save_after_error<R: Runtime>(
        &mut self,
        trainer: &Trainer,
        services: &Services<'_, R>,
    ) {
        if let Err(unsaved) = self.save(trainer, services) {
            services.note(&format!(
                "the last steps cannot be saved: {}",
                error_text::one_line(&unsaved)
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(value: f32) -> OptimizerState {
        let named = |value: f32| vec![("a.b".to_owned(), Tensor::from_slice(&[value, -value]))];
        let (master, first, second) = (named(value), named(value + 1.0), named(0.1));
        OptimizerState { master, first, second, steps: 3 }
    }

    fn numbers(tensors: &[(String, Tensor)]) -> Vec<f32> {
        Vec::try_from(&tensors[0].1).unwrap()
    }

    #[test]
    fn what_was_saved_is_loaded_to_the_bit() {
        let run = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::new(run.path(), 2);
        assert!(checkpoints.last().unwrap().is_none());
        let bucket = Bucket { rate: 0.1 + 0.2, groups: 3, drawn: 7 };
        let buckets = BTreeMap::from([("count/3".to_owned(), bucket)]);
        let position = Position { step: 4, drawn: 99, buckets, carried: vec![3, 8] };
        checkpoints.save(&position, &state(0.3)).unwrap();
        let (found, loaded) = checkpoints.last().unwrap().unwrap();
        assert_eq!((found, loaded.steps), (position, 3));
        assert_eq!(numbers(&loaded.master), [0.3, -0.3]);
        assert_eq!(numbers(&loaded.first), [1.3, -1.3]);
    }

    #[test]
    fn the_format_of_the_counters_is_fixed() {
        let run = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::new(run.path(), 2);
        let path = checkpoints
            .save(&Position { step: 4, drawn: 99, ..Position::default() }, &state(0.3))
            .unwrap();
        let text = fs::read_to_string(path.join(STATE)).unwrap();
        let found: serde_json::Value = serde_json::from_str(&text).unwrap();
        let expected = serde_json::json!({
            "version": 1, "position": {"step": 4, "drawn": 99}, "optimiser_steps": 3,
        });
        assert_eq!(found, expected);
    }

    #[test]
    fn the_last_few_are_kept_and_partial_ones_are_ignored() {
        let run = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::new(run.path(), 2);
        for step in [8, 9, 10, 11] {
            checkpoints
                .save(&Position { step, ..Position::default() }, &state(step as f32))
                .unwrap();
        }
        assert_eq!(checkpoints.steps().unwrap(), [10, 11]);
        fs::create_dir(run.path().join("checkpoints/unfinished")).unwrap();
        fs::write(run.path().join("checkpoints/unfinished/state.json"), "{").unwrap();
        assert_eq!(checkpoints.last().unwrap().unwrap().0.step, 11);
        checkpoints
            .save(&Position { step: 11, drawn: 1, ..Position::default() }, &state(5.0))
            .unwrap();
        let replaced = checkpoints.last().unwrap().unwrap().0;
        assert_eq!(replaced.drawn, 1, "the same step again replaces it");
    }

    #[test]
    fn damaged_files_are_rejected_by_name() {
        let run = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::new(run.path(), 2);
        let path =
            checkpoints.save(&Position { step: 1, ..Position::default() }, &state(0.0)).unwrap();
        fs::write(path.join("first.safetensors"), b"\xff\xff\xff\xff\xff\xff\xff\xff").unwrap();
        let error = checkpoints.last().unwrap_err();
        assert!(error.to_string().contains("first.safetensors"), "{error}");
        fs::write(path.join("state.json"), "{\"version\": 9}").unwrap();
        assert!(checkpoints.last().is_err());
    }
}
