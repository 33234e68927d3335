//! Who may go on: so many replies at once, so many requests waiting, so much memory for bodies.
//!
//! Counts. What is done meanwhile is others' business.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{ServeOptions, failure::Failure};

/// The counters.
#[derive(Debug)]
pub(crate) struct Admission {
    /// Requests whose reply is being written or waited for.
    places: Arc<Semaphore>,
    running: Arc<Semaphore>,
    /// Kibibytes of bodies that are being received.
    memory: Arc<Semaphore>,
}

/// How many bodies of the greatest length may be received at once.
const GREAT_BODIES: usize = 16;

impl Admission {
    pub(crate) fn new(options: &ServeOptions) -> Self {
        let counter = |most: usize| Arc::new(Semaphore::new(most.clamp(1, u32::MAX as usize)));
        let running = options.max_running.max(1);
        Self {
            places: counter(running.saturating_add(options.max_waiting)),
            running: counter(running),
            memory: counter(kibibytes(options.max_body).saturating_mul(GREAT_BODIES)),
        }
    }

    /// A place in the queue, if one is left.
    pub(crate) fn place(&self) -> Result<Place, Failure> {
        let place = self.places.clone().try_acquire_owned();
        let place = place.map_err(|_| Failure::busy("too many requests are waiting"))?;
        Ok(Place { place, running: self.running.clone() })
    }

    /// Room for so many bytes more, until it is dropped.
    pub(crate) fn room(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Failure> {
        let amount = u32::try_from(kibibytes(bytes)).unwrap_or(u32::MAX);
        let room = self.memory.clone().try_acquire_many_owned(amount);
        room.map_err(|_| Failure::busy("too much is being received"))
    }
}

/// A place in the queue.
#[derive(Debug)]
pub(crate) struct Place {
    place: OwnedSemaphorePermit,
    running: Arc<Semaphore>,
}

/// The right to have a reply written.
#[derive(Debug)]
pub(crate) struct Turn {
    _place: OwnedSemaphorePermit,
    /// None only if nobody counts any more.
    _running: Option<OwnedSemaphorePermit>,
}

impl Place {
    /// Waits for its turn, first come, first served.
    pub(crate) async fn turn(self) -> Turn {
        Turn { _place: self.place, _running: self.running.acquire_owned().await.ok() }
    }
}

fn kibibytes(bytes: usize) -> usize {
    bytes.div_ceil(1024)
}
