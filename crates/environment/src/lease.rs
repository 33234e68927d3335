//! The lease of a session: the time it stays without a request.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// How long a session stays without a request. A request that is being answered holds it.
#[derive(Debug)]
pub(crate) struct Lease {
    length: Duration,
    state: Mutex<LeaseState>,
}

#[derive(Debug)]
struct LeaseState {
    ends: Instant,
    /// Requests that are being answered.
    holds: usize,
}

impl Lease {
    /// A lease that starts now.
    pub(crate) fn new(length: Duration) -> Self {
        Self { length, state: Mutex::new(LeaseState { ends: ends(length), holds: 0 }) }
    }

    pub(crate) fn length(&self) -> Duration {
        self.length
    }

    /// Keeps the lease until the guard is dropped, from when it has its whole length again.
    pub(crate) fn hold(&self) -> Hold<'_> {
        self.lock().holds += 1;
        Hold { lease: self }
    }

    /// The time left.
    pub(crate) fn left(&self) -> Duration {
        let state = self.lock();
        match state.holds {
            0 => state.ends.saturating_duration_since(Instant::now()),
            _ => self.length,
        }
    }

    /// Waits until the lease has expired.
    pub(crate) async fn expired(&self) {
        loop {
            let left = self.left();
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, LeaseState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The longest lease; longer ones do not fit into every clock.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

fn ends(length: Duration) -> Instant {
    Instant::now() + length.min(LONGEST)
}

/// Keeps a lease.
pub(crate) struct Hold<'a> {
    lease: &'a Lease,
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        let mut state = self.lease.lock();
        state.holds -= 1;
        state.ends = ends(self.lease.length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_renewed_by_requests_and_held_while_they_run() {
        let lease = Lease::new(Duration::from_secs(10));
        tokio::time::advance(Duration::from_secs(9)).await;
        drop(lease.hold());
        assert_eq!(lease.left(), Duration::from_secs(10));
        let hold = lease.hold();
        tokio::time::advance(Duration::from_secs(100)).await;
        assert!(!lease.left().is_zero(), "a request is being answered");
        drop(hold);
        let begun = Instant::now();
        lease.expired().await;
        assert!(begun.elapsed() >= Duration::from_secs(10));
        assert!(begun.elapsed() < Duration::from_secs(11));
    }
}
