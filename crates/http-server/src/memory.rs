//! Memory for what clients make the server hold, such as the bodies of all requests together.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bounds the memory of bodies that are received or processed, or of other things that are held for clients. Copies share
/// the same memory.
#[derive(Clone, Debug)]
pub struct MemoryBudget {
    /// In KiB.
    free: Arc<Semaphore>,
}

/// Granularity in bytes: a body may arrive byte by byte.
const STEP: usize = 64 << 10;

impl MemoryBudget {
    /// This many bytes, at least 1 KiB.
    pub fn new(bytes: usize) -> Self {
        let most = kibibytes(bytes).clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
        Self { free: Arc::new(Semaphore::new(most)) }
    }

    /// A permit for no memory yet, for a request of which nothing was received.
    pub fn permit(&self) -> MemoryPermit {
        MemoryPermit { free: self.free.clone(), bytes: 0, taken: None }
    }
}

/// Permission to hold a request in memory, released on drop.
#[derive(Debug)]
pub struct MemoryPermit {
    free: Arc<Semaphore>,
    bytes: usize,
    taken: Option<OwnedSemaphorePermit>,
}

impl MemoryPermit {
    /// Extends the permit to this many bytes in total; `None` if they are not available.
    #[must_use = "without the memory the request has to be refused"]
    pub fn grow(&mut self, bytes: usize) -> Option<()> {
        if bytes <= self.bytes {
            return Some(());
        }
        let more = (bytes - self.bytes).max(STEP);
        let amount = u32::try_from(kibibytes(more)).unwrap_or(u32::MAX);
        let added = self.free.clone().try_acquire_many_owned(amount).ok()?;
        match &mut self.taken {
            Some(taken) => taken.merge(added),
            none => *none = Some(added),
        }
        self.bytes += more;
        Some(())
    }

    /// Gives back what is beyond this many bytes in total.
    pub fn shrink(&mut self, bytes: usize) {
        let Some(taken) = &mut self.taken else { return };
        let needed = kibibytes(bytes);
        let spare = taken.num_permits().saturating_sub(needed);
        drop(taken.split(spare));
        self.bytes = self.bytes.min(needed * 1024);
    }
}

fn kibibytes(bytes: usize) -> usize {
    bytes.div_ceil(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_and_released() {
        let budget = MemoryBudget::new(16 << 20);
        let fill = || {
            let mut permit = budget.permit();
            (1..=64).try_for_each(|step| permit.grow(step << 14)).map(|()| permit)
        };
        let permits: Vec<_> = (0..16).map(|_| fill()).collect();
        assert!(permits.iter().all(Option::is_some));
        assert!(fill().is_none());
        drop(permits);
        assert!(fill().is_some());
    }

    #[test]
    fn memory_that_is_given_back_can_be_taken() {
        let budget = MemoryBudget::new(1 << 20);
        let (mut one, mut other) = (budget.permit(), budget.permit());
        one.grow(1 << 20).unwrap();
        assert!(other.grow(1).is_none());
        one.shrink(900 << 10);
        assert!(other.grow(1).is_some());
        one.shrink(0);
        drop(other);
        one.grow(1 << 20).unwrap();
    }
}
