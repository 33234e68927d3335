//! Decode steps recorded as CUDA graphs: one graph per size of a step, recorded after a first eager step. Where recording
//! fails, steps of that size stay eager until the weights change, and the reason is stored.

use std::collections::{HashMap, HashSet};

use crate::{
    error::TchResult,
    graph::{Cuda, CudaError, Graph},
};

use super::CudaGraphs;

/// The recorded graphs, or why there are none.
pub(super) struct GraphCache {
    cuda: Option<Cuda>,
    enabled: bool,
    /// Whether nothing is recorded for now.
    paused: bool,
    graphs: HashMap<usize, Graph>,
    /// Sizes that could not be recorded, possibly for lack of memory.
    failed: HashSet<usize>,
    /// Why nothing, or not everything, is recorded.
    reason: Option<String>,
}

/// How a step was computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepKind {
    /// By replaying a graph.
    Replayed,
    /// By launching its kernels.
    Eager,
}

impl GraphCache {
    /// With the library of graphs, or why it is not available.
    pub(super) fn new(cuda: Result<Cuda, CudaError>, setting: CudaGraphs) -> Self {
        let reason = match (&cuda, setting) {
            (_, CudaGraphs::Off) => Some("turned off".to_owned()),
            (Err(error), _) => Some(error.to_string()),
            (Ok(_), CudaGraphs::Auto) => None,
        };
        let enabled = reason.is_none();
        let (graphs, failed) = (HashMap::new(), HashSet::new());
        Self { cuda: cuda.ok(), enabled, paused: false, graphs, failed, reason }
    }

    /// Why graphs are not used; `None` where they are.
    pub(super) fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Computes a decode step, with its graph where there is one. Steps of the same `size` launch the same kernels on
    /// the same memory.
    pub(super) fn step(
        &mut self,
        size: usize,
        mut launch: impl FnMut() -> TchResult<()>,
    ) -> TchResult<StepKind> {
        if let Some(graph) = self.graphs.get(&size) {
            match graph.replay() {
                Ok(()) => return Ok(StepKind::Replayed),
                Err(error) => self.disable(size, &error.to_string()),
            }
        }
        launch()?;
        let records = self.enabled && !self.paused && !self.failed.contains(&size);
        if let Some(cuda) = self.cuda.filter(|_| records) {
            self.record(cuda, size, launch);
        }
        Ok(StepKind::Eager)
    }

    /// Drops all graphs: their tensors are no longer used.
    pub(super) fn clear(&mut self) {
        self.graphs.clear();
    }

    /// Waits for this thread's own CUDA stream, if there is one.
    pub(super) fn wait(&self) -> TchResult<()> {
        match self.cuda {
            Some(cuda) => cuda.wait().map_err(|error| tch::TchError::Torch(error.to_string())),
            None => Ok(()),
        }
    }

    fn record(&mut self, cuda: Cuda, size: usize, launch: impl FnMut() -> TchResult<()>) {
        // The output of the eager step must be complete before it is read, and recording does not wait.
        let recorded = cuda.wait().and_then(|()| cuda.record(launch));
        match recorded {
            Ok(Ok(graph)) => drop(self.graphs.insert(size, graph)),
            Ok(Err(error)) => self.disable(size, &error.to_string()),
            Err(error) => self.disable(size, &error.to_string()),
        }
    }

    /// Records nothing more, while libtorch may have to free memory in another thread: it cannot during a recording.
    pub(super) fn pause_recording(&mut self) {
        self.paused = true;
    }

    /// Records again, also sizes that failed before.
    pub(super) fn resume_recording(&mut self) {
        self.paused = false;
        self.failed.clear();
    }

    fn disable(&mut self, size: usize, reason: &str) {
        self.graphs.remove(&size);
        self.failed.insert(size);
        self.reason = Some(reason.lines().next().unwrap_or("no reason given").to_owned());
    }
}
