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
    /// Kibibytes of requests that are being received or answered.
    memory: Arc<Semaphore>,
}

/// How many requests of the greatest length may be there at once.
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

    /// A place in the queue, if one is left, for a request that takes this room.
    pub(crate) fn place(&self, room: Room) -> Result<Place, Failure> {
        let place = self.places.clone().try_acquire_owned();
        let place = place.map_err(|_| Failure::busy("too many requests are waiting"))?;
        Ok(Place { _room: room, _place: place, running: self.running.clone() })
    }

    /// No room yet, for a request of which nothing has come.
    pub(crate) fn room(&self) -> Room {
        Room { memory: self.memory.clone(), bytes: 0, taken: None }
    }
}

/// The memory a request takes. It is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Room {
    memory: Arc<Semaphore>,
    bytes: usize,
    taken: Option<OwnedSemaphorePermit>,
}

/// Room is asked for in steps: a body may come byte by byte.
const STEP: usize = 64 << 10;

impl Room {
    /// Makes room for so many bytes in all, if there is any.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), Failure> {
        if bytes <= self.bytes {
            return Ok(());
        }
        let more = (bytes - self.bytes).max(STEP);
        let amount = u32::try_from(kibibytes(more)).unwrap_or(u32::MAX);
        let more_room = self.memory.clone().try_acquire_many_owned(amount);
        let more_room = more_room.map_err(|_| Failure::busy("too much is being asked at once"))?;
        match &mut self.taken {
            Some(taken) => taken.merge(more_room),
            none => *none = Some(more_room),
        }
        self.bytes += more;
        Ok(())
    }
}

/// A place in the queue.
#[derive(Debug)]
pub(crate) struct Place {
    _room: Room,
    _place: OwnedSemaphorePermit,
    running: Arc<Semaphore>,
}

impl Place {
    /// Waits for its turn, first come, first served. The place is kept meanwhile, and after.
    pub(crate) async fn turn(&self) -> Turn {
        Turn { _running: self.running.clone().acquire_owned().await.ok() }
    }
}

/// The right to have a reply written.
#[derive(Debug)]
pub(crate) struct Turn {
    /// None only if nobody counts any more.
    _running: Option<OwnedSemaphorePermit>,
}

fn kibibytes(bytes: usize) -> usize {
    bytes.div_ceil(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_bounded_and_given_back() {
        let options = ServeOptions { max_body: 1 << 20, ..ServeOptions::default() };
        let admission = Admission::new(&options);
        let fill = || {
            let mut room = admission.room();
            (1..=64).try_for_each(|step| room.grow(step << 14)).map(|()| room)
        };
        let rooms: Vec<_> = (0..GREAT_BODIES).map(|_| fill()).collect();
        assert!(rooms.iter().all(Result::is_ok));
        assert!(fill().is_err());
        drop(rooms);
        assert!(fill().is_ok());
    }

    #[test]
    fn places_are_counted() {
        let options = ServeOptions { max_running: 1, max_waiting: 1, ..ServeOptions::default() };
        let admission = Admission::new(&options);
        let place = || admission.place(admission.room());
        let (first, second) = (place(), place());
        assert!(first.is_ok() && second.is_ok() && place().is_err());
        drop(first);
        assert!(place().is_ok());
    }
}
