//! Repeats attempts that failed through no fault of the model.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// How often an attempt is played before it counts as failed, and how long to wait in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The number of tries, at least 1.
    pub tries: u32,
    /// The wait before the second try; each later one is twice as long.
    pub first_wait: Duration,
}

/// The longest wait between two tries.
const MAX_WAIT: Duration = Duration::from_secs(60);

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { tries: 3, first_wait: Duration::from_secs(1) }
    }
}

/// The caller cancelled an attempt that needed another try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancelled;

/// A try failed and another follows.
#[derive(Clone, Copy, Debug)]
pub struct Retrying<'a> {
    /// The number of tries so far.
    pub tries: u32,
    /// The wait until the next one.
    pub wait: Duration,
    /// What failed.
    pub cause: &'a str,
}

impl RetryPolicy {
    /// Calls `play` until its result needs no other try. `retry_cause` says why a result needs one. Returns the last result
    /// and the number of tries, or [`Cancelled`] where a result needs another try and the caller cancelled it.
    pub async fn run<T, F: Future<Output = T>>(
        self,
        cancel: &CancellationToken,
        retry_cause: impl Fn(&T) -> Option<&str>,
        on_retry: impl Fn(Retrying<'_>),
        mut play: impl FnMut() -> F,
    ) -> Result<(T, u32), Cancelled> {
        let mut tries = 1;
        loop {
            let played = play().await;
            let Some(cause) = retry_cause(&played).filter(|_| tries < self.tries) else {
                return Ok((played, tries));
            };
            let wait = self.wait_after(tries);
            if !cancel.is_cancelled() {
                on_retry(Retrying { tries, wait, cause });
            }
            tokio::select! {
                biased;
                () = cancel.cancelled() => return Err(Cancelled),
                () = tokio::time::sleep(wait) => {}
            }
            tries += 1;
        }
    }

    fn wait_after(self, tries: u32) -> Duration {
        self.first_wait.saturating_mul(1 << (tries - 1).min(16)).min(MAX_WAIT)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn run(results: &[Option<&'static str>], tries: u32) -> (u32, Vec<u32>) {
        let policy = RetryPolicy { tries, first_wait: Duration::ZERO };
        let retries = RefCell::new(Vec::new());
        let mut left = results.iter().copied();
        let cancel = CancellationToken::new();
        let running = policy.run(
            &cancel,
            |played: &Option<&'static str>| *played,
            |retrying| retries.borrow_mut().push(retrying.tries),
            || std::future::ready(left.next().flatten()),
        );
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (_, tries) = runtime.block_on(running).unwrap();
        (tries, retries.into_inner())
    }

    #[test]
    fn only_failures_that_may_pass_are_tried_again() {
        assert_eq!(run(&[None], 3), (1, vec![]));
        assert_eq!(run(&[Some("down"), None], 3), (2, vec![1]));
        assert_eq!(run(&[Some("down"); 5], 3), (3, vec![1, 2]));
    }

    #[test]
    fn a_cancelled_attempt_is_not_taken_for_a_failed_one() {
        let cancel = CancellationToken::new();
        cancel.cancel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let run = |result: Option<&'static str>| {
            let play = || std::future::ready(result);
            let running = RetryPolicy::default().run(&cancel, |played| *played, |_| {}, play);
            runtime.block_on(running)
        };
        assert_eq!(run(Some("down")), Err(Cancelled));
        assert_eq!(run(None), Ok((None, 1)), "a finished attempt counts");
    }

    #[test]
    fn waits_double_up_to_a_minute() {
        let policy = RetryPolicy::default();
        let waits = [1, 2, 3, 30].map(|tries| policy.wait_after(tries).as_secs());
        assert_eq!(waits, [1, 2, 4, 60]);
    }
}
