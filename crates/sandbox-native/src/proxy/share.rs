//! Permits that all sandboxes share, each taking no more than its part of those that are free.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The part of the free permits that one sandbox may have: the fewer are left, the fewer it gets. Otherwise a few dozen
/// sandboxes that keep theirs would leave none to the others.
const PART_OF_FREE: usize = 8;
/// How often to look for a free permit.
const CHECK: Duration = Duration::from_millis(20);

/// The permits of all sandboxes.
pub(super) struct Pool {
    /// Of all permits, whether or not they are taken.
    pub(super) number: usize,
    free: Arc<Semaphore>,
}

impl Pool {
    pub(super) fn new(number: usize) -> Self {
        Self { number, free: Arc::new(Semaphore::new(number)) }
    }

    /// What one sandbox takes of them: nothing yet.
    pub(super) fn share(&self) -> Share {
        Share { free: Arc::clone(&self.free), held: Arc::default() }
    }
}

/// What one sandbox takes of a [`Pool`].
pub(super) struct Share {
    free: Arc<Semaphore>,
    held: Arc<AtomicUsize>,
}

impl Share {
    /// Waits for a permit. The first one of a sandbox only has to be free.
    pub(super) async fn permit(&self) -> Permit {
        loop {
            let most = (self.free.available_permits() / PART_OF_FREE).max(1);
            // The order of several of one sandbox that look at once does not matter.
            if self.held.load(Ordering::Relaxed) < most
                && let Ok(permit) = Arc::clone(&self.free).try_acquire_owned()
            {
                self.held.fetch_add(1, Ordering::Relaxed);
                return Permit { _permit: permit, held: Arc::clone(&self.held) };
            }
            tokio::time::sleep(CHECK).await;
        }
    }
}

/// A permit, given back when dropped.
pub(super) struct Permit {
    _permit: OwnedSemaphorePermit,
    held: Arc<AtomicUsize>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.held.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    /// Sandboxes that take all they get, and keep it, leave something to those that come later.
    #[tokio::test(start_paused = true)]
    async fn greedy_sandboxes_leave_permits_to_others() {
        // Connections, and lookups.
        for (number, wanted) in [(1024, 256), (256, 8)] {
            let pool = Pool::new(number);
            let mut kept = Vec::new();
            for _ in 0..32 {
                let share = pool.share();
                for _ in 0..wanted {
                    match timeout(CHECK / 2, share.permit()).await {
                        Ok(permit) => kept.push(permit),
                        Err(_) => break,
                    }
                }
            }
            assert!(kept.len() > number / 2, "{} of {number}", kept.len());
            let late = pool.share();
            let two =
                timeout(CHECK / 2, async { (late.permit().await, late.permit().await) }).await;
            assert!(two.is_ok(), "{} of {number} are kept", kept.len());
            // What ends is free again, for its own sandbox as well.
            drop(two);
            kept.clear();
            let mut again = Vec::new();
            for _ in 0..number / 16 {
                again.push(timeout(CHECK / 2, late.permit()).await.unwrap());
            }
        }
    }
}
