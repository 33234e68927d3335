//! Admission control: bounds concurrent responses, waiting requests and the memory of bodies.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{ServeOptions, api_error::ApiError};

/// The counters.
#[derive(Debug)]
pub(crate) struct Admission {
    /// Running and waiting requests.
    queue: Arc<Semaphore>,
    running: Arc<Semaphore>,
    /// KiB of requests that are received or processed.
    memory: Arc<Semaphore>,
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
            memory: counter(kibibytes(options.max_body).saturating_mul(MAX_LARGE_BODIES)),
        }
    }

    /// Takes a slot in the queue, if one is free, for a request that holds this memory.
    pub(crate) fn enqueue(&self, memory: MemoryPermit) -> Result<QueueSlot, ApiError> {
        let queued = self.queue.clone().try_acquire_owned();
        let queued = queued.map_err(|_| ApiError::busy("too many requests are waiting"))?;
        Ok(QueueSlot { _memory: memory, _queued: queued, running: self.running.clone() })
    }

    /// A permit for no memory yet, for a request of which nothing was received.
    pub(crate) fn memory(&self) -> MemoryPermit {
        MemoryPermit { memory: self.memory.clone(), bytes: 0, taken: None }
    }
}

/// Permission to hold a request in memory, released on drop.
#[derive(Debug)]
pub(crate) struct MemoryPermit {
    memory: Arc<Semaphore>,
    bytes: usize,
    taken: Option<OwnedSemaphorePermit>,
}

/// Granularity in bytes: a body may arrive byte by byte.
const STEP: usize = 64 << 10;

impl MemoryPermit {
    /// Extends the permit to this many bytes in total, if available.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), ApiError> {
        if bytes <= self.bytes {
            return Ok(());
        }
        let more = (bytes - self.bytes).max(STEP);
        let amount = u32::try_from(kibibytes(more)).unwrap_or(u32::MAX);
        let added = self.memory.clone().try_acquire_many_owned(amount);
        let added = added.map_err(|_| ApiError::busy("too many large requests at once"))?;
        match &mut self.taken {
            Some(taken) => taken.merge(added),
            none => *none = Some(added),
        }
        self.bytes += more;
        Ok(())
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

fn kibibytes(bytes: usize) -> usize {
    bytes.div_ceil(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_and_released() {
        let options = ServeOptions { max_body: 1 << 20, ..ServeOptions::default() };
        let admission = Admission::new(&options);
        let fill = || {
            let mut permit = admission.memory();
            (1..=64).try_for_each(|step| permit.grow(step << 14)).map(|()| permit)
        };
        let permits: Vec<_> = (0..MAX_LARGE_BODIES).map(|_| fill()).collect();
        assert!(permits.iter().all(Result::is_ok));
        assert!(fill().is_err());
        drop(permits);
        assert!(fill().is_ok());
    }

    #[test]
    fn the_queue_is_bounded() {
        let options = ServeOptions { max_running: 1, max_waiting: 1, ..ServeOptions::default() };
        let admission = Admission::new(&options);
        let place = || admission.enqueue(admission.memory());
        let (first, second) = (place(), place());
        assert!(first.is_ok() && second.is_ok() && place().is_err());
        drop(first);
        assert!(place().is_ok());
    }
}
