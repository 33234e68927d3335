//! Memory for what clients make the server hold, such as the bodies of all requests together.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bounds the memory of bodies that are received or processed, or of other things that are held for clients. Copies share
/// the same memory.
#[derive(Clone, Debug)]
pub struct MemoryBudget {
    /// In KiB.
    free: Arc<Semaphore>,
    /// What one of several users has taken, in KiB. `None`: there is one user.
    taken: Option<Arc<AtomicUsize>>,
}

/// Granularity in bytes: a body may arrive byte by byte.
const STEP: usize = 4 << 10;

impl MemoryBudget {
    /// This many bytes, at least 1 KiB.
    pub fn new(bytes: usize) -> Self {
        let most = kibibytes(bytes).clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
        Self { free: Arc::new(Semaphore::new(most)), taken: None }
    }

    /// The same memory for one of several users, who may take as much of it as is left then: half of it alone, less beside
    /// others, so that there is always some for a further one. Copies are the same user.
    #[must_use]
    pub fn part(&self) -> Self {
        Self { free: self.free.clone(), taken: Some(Arc::default()) }
    }

    /// A permit for no memory yet, for a request of which nothing was received.
    pub fn permit(&self) -> MemoryPermit {
        MemoryPermit { budget: self.clone(), bytes: 0, taken: None }
    }
}

/// Permission to hold a request in memory, released on drop.
#[derive(Debug)]
pub struct MemoryPermit {
    budget: MemoryBudget,
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
        let added = self.budget.take(kibibytes(more))?;
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
        self.budget.count_returned(spare);
        drop(taken.split(spare));
        self.bytes = self.bytes.min(needed * 1024);
    }
}

impl Drop for MemoryPermit {
    fn drop(&mut self) {
        self.budget
            .count_returned(self.taken.as_ref().map_or(0, OwnedSemaphorePermit::num_permits));
    }
}

impl MemoryBudget {
    /// Takes some KiB, if they are there and within the part of this user.
    fn take(&self, amount: usize) -> Option<OwnedSemaphorePermit> {
        if let Some(taken) = &self.taken {
            let after = taken.fetch_add(amount, Ordering::Relaxed).saturating_add(amount);
            if after > self.free.available_permits().saturating_sub(amount) {
                taken.fetch_sub(amount, Ordering::Relaxed);
                return None;
            }
        }
        let number = u32::try_from(amount).unwrap_or(u32::MAX);
        let permit = self.free.clone().try_acquire_many_owned(number).ok();
        if permit.is_none() {
            self.count_returned(amount);
        }
        permit
    }

    fn count_returned(&self, amount: usize) {
        if let Some(taken) = &self.taken {
            taken.fetch_sub(amount, Ordering::Relaxed);
        }
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
    fn one_of_several_users_leaves_memory_for_others() {
        let budget = MemoryBudget::new(16 << 20);
        let fill = |user: &MemoryBudget| {
            let permits = std::iter::from_fn(|| {
                let mut permit = user.permit();
                permit.grow(1 << 20).map(|()| permit)
            });
            permits.collect::<Vec<_>>()
        };
        let (alice, bob, carol) = (budget.part(), budget.part(), budget.part());
        let alices = fill(&alice);
        assert_eq!(alices.len(), 8);
        let (bobs, carols) = (fill(&bob), fill(&carol));
        assert_eq!((bobs.len(), carols.len()), (4, 2));
        // A copy is the same user, and what is given back can be taken by others.
        assert!(fill(&alice.clone()).is_empty());
        drop(alices);
        let mut bobs_more = fill(&bob);
        assert_eq!(bobs_more.len(), 3);
        bobs_more.iter_mut().for_each(|permit| permit.shrink(0));
        assert_eq!(fill(&bob).len(), 3);
        drop((bobs, bobs_more, carols));
        assert_eq!(fill(&alice).len(), 8, "everything was given back");
        assert_eq!(fill(&budget).len(), 16, "who is alone may take all");
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
