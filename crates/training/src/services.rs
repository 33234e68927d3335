//! What a run gets from its caller (sandboxes, threads, an observer, cancellation), and how it may end.

use std::{path::PathBuf, sync::Arc, time::Instant};

use rollout::{CodecError, RolloutError};
use sandbox::Runtime;
use tokio_util::sync::CancellationToken;

use crate::{
    adamw::OptimizerStateError,
    checkpoint::CheckpointError,
    data::DataError,
    events::{Observer, RunEvent},
    file_error::FileError,
    run::RunError,
    setup::SetupError,
    trainer::StepError,
};

/// What a run gets from its caller.
pub struct Services<'a, R: Runtime> {
    /// Creates sandboxes; `None` where no task of the run needs any.
    pub runtime: Option<Arc<R>>,
    /// Executes episodes. The run itself must not be on one of its threads.
    pub tokio: &'a tokio::runtime::Handle,
    /// Receives the events of the run.
    pub observer: &'a dyn Observer,
    /// Stops the run; it can be resumed.
    pub cancel: CancellationToken,
}

impl<R: Runtime> Services<'_, R> {
    pub(crate) fn note(&self, text: &str) {
        tracing::warn!("{text}");
        self.observer.on_event(RunEvent::Note(text));
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunOutcome {
    /// All steps are complete.
    Complete,
    /// It was cancelled after this step, and can be resumed.
    Stopped(u64),
}

/// A run cannot start or continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// Its directory cannot be used.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Its data cannot be used.
    #[error(transparent)]
    Data(#[from] DataError),
    /// Its recorded episodes cannot be read.
    #[error(transparent)]
    Recordings(FileError),
    /// Its model cannot be used.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The chat template or vocabulary of the model cannot be used.
    #[error("the model's chat format cannot be used")]
    Codec(#[from] CodecError),
    /// Its checkpoints cannot be used.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The run to start from trained something else.
    #[error(
        "`from`: `{key}` of the run in {} is {its}, that of this run is {ours}; they have to be the same",
        run.display()
    )]
    IncompatibleRun {
        /// The other run.
        run: PathBuf,
        /// The key that differs.
        key: &'static str,
        /// Its value in the other run.
        its: String,
        /// Its value in this run.
        ours: String,
    },
    /// A checkpoint does not fit the model.
    #[error("a checkpoint does not fit the model")]
    OptimizerState(#[from] OptimizerStateError),
    /// The sampler cannot start or continue.
    #[error("the sampler failed")]
    Engine(#[from] policy::EngineError),
    /// The inference server cannot be used as the sampler.
    #[error(transparent)]
    Server(#[from] sampling_http::ConnectError),
    /// The inference server is gone.
    #[error("the sampler's server is gone: {0}; start the run again to resume once it is back")]
    SamplerGone(String),
    /// Episodes cannot be played.
    #[error("episodes cannot be played")]
    Play(#[source] RolloutError),
    /// A step cannot be taken.
    #[error(transparent)]
    Step(#[from] StepError),
    /// A file of the run cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// There is nothing to train on, or to start from.
    #[error("{0}")]
    NoData(String),
}

/// Measures how long things take.
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Seconds since the last call, or the start.
    pub(crate) fn lap(&mut self) -> f64 {
        let before = std::mem::replace(&mut self.0, Instant::now());
        before.elapsed().as_secs_f64()
    }
}
