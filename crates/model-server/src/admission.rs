//! Admission control: bounds concurrent responses, waiting requests and the memory of bodies.

use std::sync::Arc;

use http_server::{MemoryBudget, MemoryPermit};
use openai_wire::ApiError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::ServeOptions;

/// The counters.
#[derive(Debug)]
pub(crate) struct Admission {
    /// Running and waiting requests.
    queue: Arc<Semaphore>,
    running: Arc<Semaphore>,
    /// For requests that are received or processed.
    pub(crate) memory: MemoryBudget,
}

/// Total memory for bodies, in bodies of the maximum length.
const MAX_LARGE_BODIES: usize = 16;

impl Admission {
    pub(crate) fn new(options: &ServeOptions) -> Self {
        let counter = |most: usize| Arc::new(Semaphore::new(most.clamp(1, u32::MAX as usize)));
        let running = options.max_running.max(1);
        Self {
            queue: counter(running.saturating_add(options.max_waiting)),
            running: counter(running),
            memory: MemoryBudget::new(options.max_body.saturating_mul(MAX_LARGE_BODIES)),
        }
    }

    /// Takes a slot in the queue, if one is free, for a request that holds this memory.
    pub(crate) fn enqueue(&self, memory: MemoryPermit) -> Result<QueueSlot, ApiError> {
        let queued = self.queue.clone().try_acquire_owned();
        let queued = queued.map_err(|_| ApiError::busy("too many requests are waiting"))?;
        Ok(QueueSlot { _memory: memory, _queued: queued, running: self.running.clone() })
    }
}

/// A slot in the queue, released on drop.
#[derive(Debug)]
pub(crate) struct QueueSlot {
    _memory: MemoryPermit,
    _queued: OwnedSemaphorePermit,
    running: Arc<Semaphore>,
}

impl QueueSlot {
    /// Waits until a response may be generated, in order of arrival. The slot stays taken.
    pub(crate) async fn run(&self) -> RunPermit {
        RunPermit { _running: self.running.clone().acquire_owned().await.ok() }
    }
}

/// Permission to generate a response, released on drop.
#[derive(Debug)]
pub(crate) struct RunPermit {
    /// `None` only if the semaphore was closed.
    _running: Option<OwnedSemaphorePermit>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_is_bounded() {
        let options = ServeOptions { max_running: 1, max_waiting: 1, ..ServeOptions::default() };
        let admission = Admission::new(&options);
        let place = || admission.enqueue(admission.memory.permit());
        let (first, second) = (place(), place());
        assert!(first.is_ok() && second.is_ok() && place().is_err());
        drop(first);
        assert!(place().is_ok());
    }
}
