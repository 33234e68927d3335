//! Steps that are recorded as CUDA graphs: each rounded length once, after it was made the ordinary way. Where that
//! fails, steps of that length are made the ordinary way until the weights change, and the reason is kept. Refuses to
//! know what a step does.

use std::collections::{HashMap, HashSet};

use crate::{
    error::Fallible,
    graph::{Cuda, CudaError, Graph},
};

use super::{Recording, steps::Steps};

/// The recordings, or why there are none.
pub(super) struct Recorded {
    cuda: Option<Cuda>,
    wanted: bool,
    graphs: HashMap<usize, Graph>,
    /// Lengths that could not be recorded, for lack of memory perhaps.
    failed: HashSet<usize>,
    /// Why nothing is recorded, or not everything.
    reason: Option<String>,
}

/// Whether a step was replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replay {
    /// It was.
    Yes,
    /// It was made the ordinary way.
    No,
}

impl Recorded {
    /// With the library of graphs, or the reason why it is not there.
    pub(super) fn new(cuda: Result<Cuda, CudaError>, recording: Recording) -> Self {
        let reason = match (&cuda, recording) {
            (_, Recording::Never) => Some("it was not wanted".to_owned()),
            (Err(error), _) => Some(error.to_string()),
            (Ok(_), Recording::WherePossible) => None,
        };
        let wanted = reason.is_none();
        let (graphs, failed) = (HashMap::new(), HashSet::new());
        Self { cuda: cuda.ok(), wanted, graphs, failed, reason }
    }

    /// Why steps are not recorded, if they are not.
    pub(super) fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Makes a step, by its recording where there is one.
    pub(super) fn step(&mut self, steps: &mut Steps, looked: usize) -> Fallible<Replay> {
        if let Some(graph) = self.graphs.get(&looked) {
            match graph.replay() {
                Ok(()) => return Ok(Replay::Yes),
                Err(error) => self.give_up(looked, &error.to_string()),
            }
        }
        steps.write(looked)?;
        if let Some(cuda) = self.cuda.filter(|_| self.wanted && !self.failed.contains(&looked)) {
            self.record(cuda, steps, looked);
        }
        Ok(Replay::No)
    }

    /// The recordings are over tensors that are no longer used.
    pub(super) fn forget(&mut self) {
        self.graphs.clear();
    }

    /// Waits for the device, where it has a stream of this thread's own.
    pub(super) fn wait(&self) -> Fallible<()> {
        match self.cuda {
            Some(cuda) => cuda.wait().map_err(|error| tch::TchError::Torch(error.to_string())),
            None => Ok(()),
        }
    }

    fn record(&mut self, cuda: Cuda, steps: &mut Steps, looked: usize) {
        // The outcome of the step that was just made must be there before it is read, and recording does not wait.
        let recorded = cuda.wait().and_then(|()| cuda.record(|| steps.write(looked)));
        match recorded {
            Ok(Ok(graph)) => drop(self.graphs.insert(looked, graph)),
            Ok(Err(error)) => self.give_up(looked, &error.to_string()),
            Err(error) => self.give_up(looked, &error.to_string()),
        }
    }

    /// What could not be recorded may be tried once more.
    pub(super) fn hope(&mut self) {
        self.failed.clear();
    }

    fn give_up(&mut self, looked: usize, reason: &str) {
        self.graphs.remove(&looked);
        self.failed.insert(looked);
        self.reason = Some(reason.lines().next().unwrap_or("no reason given").to_owned());
    }
}
