//! What a run is given from outside: sandboxes, threads, somebody who watches and may stop it.

use std::{path::PathBuf, sync::Arc, time::Instant};

use agent::Watch;
use rollout::{PlayError, SpeechError};
use sandbox::Runtime;

use crate::{
    adamw::MemoryError,
    checkpoint::CheckpointError,
    data::DataError,
    learner::LearnError,
    news::{News, Watcher},
    recorded::RecordedError,
    run::RunError,
    setup::SetupError,
};

/// What a run is given.
pub struct Outside<'a, R: Runtime> {
    /// What makes sandboxes.
    pub runtime: Option<Arc<R>>,
    /// Where episodes are played. The run itself must not be on one of these threads.
    pub tokio: &'a tokio::runtime::Handle,
    /// Who hears what happens.
    pub watcher: &'a dyn Watcher,
    /// Says when it is time to stop.
    pub watch: Watch,
}

impl<R: Runtime> Outside<'_, R> {
    pub(crate) fn note(&self, text: &str) {
        self.watcher.hear(News::Note(text));
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All steps are taken.
    Complete,
    /// Somebody stopped it after this step; it can go on.
    Stopped(u64),
}

/// A run cannot begin or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// Its directory cannot be used.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Its data cannot be used.
    #[error(transparent)]
    Data(#[from] DataError),
    /// Its records cannot be used.
    #[error(transparent)]
    Recorded(#[from] RecordedError),
    /// Its model cannot be used.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The model cannot be spoken to.
    #[error("the model cannot be spoken to")]
    Speech(#[from] SpeechError),
    /// Its checkpoints cannot be used.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The run it is to begin with trained something else.
    #[error(
        "`from`: `{key}` of the run in {} is {its}, that of this one {ours}; it has to be the same",
        run.display()
    )]
    Foreign {
        /// The other run.
        run: PathBuf,
        /// What differs.
        key: &'static str,
        /// Its value.
        its: String,
        /// The value of this run.
        ours: String,
    },
    /// A checkpoint is of another model.
    #[error("a checkpoint does not fit the model")]
    Memory(#[from] MemoryError),
    /// The sampler cannot start or go on.
    #[error("the sampler failed")]
    Engine(#[from] policy::EngineError),
    /// Episodes cannot be played.
    #[error("episodes cannot be played")]
    Play(#[source] PlayError),
    /// A step cannot be taken.
    #[error(transparent)]
    Learn(#[from] LearnError),
    /// Figures cannot be written.
    #[error("cannot write {}", path.display())]
    Figures {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// There is nothing to learn from.
    #[error("{0}")]
    Nothing(String),
}

/// Measures how long things take.
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Seconds since the last call.
    pub(crate) fn lap(&mut self) -> f64 {
        let before = std::mem::replace(&mut self.0, Instant::now());
        before.elapsed().as_secs_f64()
    }
}

/// What went wrong and all its causes, on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut words = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(error) = cause {
        words.push(error.to_string());
        cause = error.source();
    }
    words.join(": ")
}
