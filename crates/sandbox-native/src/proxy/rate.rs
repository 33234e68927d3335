//! A limit on how often something happens: a bucket of tokens that refills with time.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// So many a second, and as many at once.
#[derive(Debug)]
pub(super) struct Rate {
    per_second: f64,
    /// Tokens, and when they were counted.
    state: Mutex<(f64, Instant)>,
}

impl Rate {
    pub(super) fn new(per_second: u32) -> Self {
        let per_second = f64::from(per_second);
        Self { per_second, state: Mutex::new((per_second, Instant::now())) }
    }

    /// Takes a token, if there is one; otherwise the time until the next.
    pub(super) fn take(&self) -> Result<(), Duration> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let refilled = state.0 + (now - state.1).as_secs_f64() * self.per_second;
        *state = (refilled.min(self.per_second), now);
        if state.0 < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - state.0) / self.per_second));
        }
        state.0 -= 1.0;
        Ok(())
    }

    /// Waits for a token.
    pub(super) async fn wait(&self) {
        while let Err(missing) = self.take() {
            tokio::time::sleep(missing).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn tokens_refill_with_time_and_not_beyond_the_burst() {
        let rate = Rate::new(10);
        assert_eq!((0..20).filter(|_| rate.take().is_ok()).count(), 10);
        tokio::time::advance(Duration::from_millis(310)).await;
        assert_eq!((0..20).filter(|_| rate.take().is_ok()).count(), 3);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!((0..20).filter(|_| rate.take().is_ok()).count(), 10);
        let began = Instant::now();
        rate.wait().await;
        assert!(began.elapsed() >= Duration::from_millis(90));
    }
}
