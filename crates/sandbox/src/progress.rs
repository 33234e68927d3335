//! The progress of a request to a sandbox: every wait for a sandbox ends, by its result, by this clock or by its caller.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, sleep};

/// How often a [`Progress`] is looked at, and how often a blocked thread looks whether it was cancelled.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// How far a request has come, shared by the thread that does its work and the task that waits for it. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<State>);

#[derive(Debug, Default)]
struct State {
    steps: AtomicU64,
    /// The caller's own side works, for example writes to a slow disk: the sandbox is not waited for.
    busy: AtomicBool,
    cancelled: AtomicBool,
}

/// The caller does not wait for the result of a request any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request was cancelled")]
pub struct Cancelled;

impl Progress {
    /// Notes that something moved: a byte, a file, a message.
    ///
    /// # Errors
    /// [`Cancelled`], if the request was cancelled.
    pub fn step(&self) -> io::Result<()> {
        self.0.steps.fetch_add(1, Ordering::Relaxed);
        match self.is_cancelled() {
            true => Err(io::Error::other(Cancelled)),
            false => Ok(()),
        }
    }

    /// Sets whether the caller's own side works. Its time does not count.
    pub fn set_busy(&self, busy: bool) {
        self.0.busy.store(busy, Ordering::Relaxed);
    }

    /// Makes the next [`Progress::step`] fail.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::Relaxed);
    }

    /// Whether the request was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Relaxed)
    }

    /// Cancels the request when the result is dropped.
    pub fn cancel_on_drop(&self) -> CancelOnDrop {
        CancelOnDrop(self.clone())
    }

    /// Completes once the sandbox has made no step for as long as `limit`.
    pub async fn stalled(&self, limit: Duration) {
        let mut seen = self.0.steps.load(Ordering::Relaxed);
        let mut waited = Duration::ZERO;
        while waited < limit {
            waited += look_later(limit).await;
            let now = self.0.steps.load(Ordering::Relaxed);
            if now != seen || self.0.busy.load(Ordering::Relaxed) {
                (seen, waited) = (now, Duration::ZERO);
            }
        }
    }
}

/// Completes after `limit`. Time in which this process was stopped, by Ctrl-Z or a batch system for example, does not
/// count: the replies of that time are still to be read.
pub async fn patience(limit: Duration) {
    let mut waited = Duration::ZERO;
    while waited < limit {
        waited += look_later(limit).await;
    }
}

/// Waits for a part of `limit`, and returns how much of it counts.
async fn look_later(limit: Duration) -> Duration {
    let part = (limit / 8).clamp(Duration::from_millis(1), 10 * LOOK_INTERVAL);
    let begun = Instant::now();
    sleep(part).await;
    begun.elapsed().min(2 * part)
}

/// Cancels a request when dropped: its thread ends soon, whatever it waits for.
#[derive(Debug)]
pub struct CancelOnDrop(Progress);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn only_a_wait_without_steps_is_a_stall() {
        let progress = Progress::default();
        let begun = Instant::now();
        progress.stalled(LIMIT).await;
        assert!((LIMIT..2 * LIMIT).contains(&begun.elapsed()));

        let working = progress.clone();
        tokio::spawn(async move {
            for _ in 0..10 {
                sleep(LIMIT / 2).await;
                working.step().unwrap();
            }
            working.set_busy(true);
            sleep(3 * LIMIT).await;
            working.set_busy(false);
        });
        let begun = Instant::now();
        progress.stalled(LIMIT).await;
        assert!(begun.elapsed() > 8 * LIMIT, "{:?}", begun.elapsed());
    }

    #[test]
    fn a_cancelled_request_takes_no_more_steps() {
        let progress = Progress::default();
        let guard = progress.cancel_on_drop();
        progress.step().unwrap();
        drop(guard);
        let error = progress.step().unwrap_err();
        assert!(error.get_ref().is_some_and(|inner| inner.is::<Cancelled>()), "{error:?}");
    }
}
