//! What a sandbox used, over time: samples that are taken now and then, and when a client asks.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use sandbox::{RemoteSandbox, Usage};
use serde_json::{Value, json};

use crate::{control_types::time, error::ApiError, live::Live};

/// How often samples are taken.
const INTERVAL: Duration = Duration::from_secs(10);
/// Samples that are kept: an hour's.
const KEPT: usize = 360;
/// How old a sample may be for a client that asks now.
const FRESH: Duration = Duration::from_secs(1);

/// What a sandbox used at one time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// The time of day, for clients.
    at: SystemTime,
    /// The same on the clock that is never set, for durations.
    when: Instant,
    usage: Usage,
    /// Processors at work since the sample before, on average.
    busy: f64,
}

/// The samples of one sandbox, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Samples(Mutex<VecDeque<Sample>>);

impl Samples {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Sample>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `started` is when the sandbox was.
    fn add(&self, at: SystemTime, when: Instant, usage: Usage, started: Instant) {
        let mut samples = self.lock();
        let before = samples.back().map_or((started, Duration::ZERO), |last| {
            (last.when, last.usage.cpu.unwrap_or_default())
        });
        let elapsed = when.saturating_duration_since(before.0).as_secs_f64();
        let worked = usage.cpu.unwrap_or_default().saturating_sub(before.1).as_secs_f64();
        let busy = if elapsed > 0.0 { worked / elapsed } else { 0.0 };
        if samples.len() == KEPT {
            samples.pop_front();
        }
        samples.push_back(Sample { at, when, usage, busy });
    }

    /// Whether a new one is due for a client that asks now.
    fn is_stale(&self, now: Instant) -> bool {
        let last = self.lock().back().map(|last| last.when);
        last.is_none_or(|last| now.saturating_duration_since(last) >= FRESH)
    }

    /// Those between two times in seconds, both included.
    fn between(&self, start: u64, end: u64) -> Vec<Sample> {
        let samples = self.lock();
        let fits = |sample: &&Sample| (start..=end).contains(&seconds(sample.at));
        samples.iter().filter(fits).copied().collect()
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

impl<S: RemoteSandbox> Live<S> {
    async fn sample(&self) -> Result<(), ApiError> {
        let usage = self.unless_ended(self.sandbox.usage()).await?;
        self.samples.add(SystemTime::now(), Instant::now(), usage, self.begun);
        Ok(())
    }

    async fn sample_if_stale(&self) -> Result<(), ApiError> {
        // One at a time: many clients that ask at once get the same sample.
        let _one_at_a_time = self.sampling.lock().await;
        match self.samples.is_stale(Instant::now()) {
            true => self.sample().await,
            false => Ok(()),
        }
    }

    /// Samples between two times in seconds, as the protocol describes them.
    pub(crate) async fn metrics(&self, start: u64, end: u64) -> Result<Vec<Value>, ApiError> {
        self.sample_if_stale().await?;
        let samples = self.samples.between(start, end);
        Ok(samples.iter().map(|sample| self.described(sample)).collect())
    }

    fn described(&self, sample: &Sample) -> Value {
        let Sample { at, usage, busy, .. } = sample;
        let limits = &self.spec.limits;
        let bytes = |size: Option<sandbox::ByteSize>| size.map_or(0, |size| size.bytes());
        let machine = || std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64);
        let cpus = limits.cpus.unwrap_or_else(machine);
        json!({
            "timestamp": time(*at),
            "timestampUnix": seconds(*at),
            "cpuCount": cpus.ceil() as u64,
            "cpuUsedPct": (busy / cpus * 10_000.0).round() / 100.0,
            "memUsed": bytes(usage.memory),
            "memTotal": bytes(limits.memory),
            "memCache": bytes(usage.cache),
            "diskUsed": bytes(usage.disk),
            "diskTotal": bytes(limits.disk),
        })
    }
}

/// Takes samples of a sandbox until it is gone.
pub(crate) async fn observe<S: RemoteSandbox>(live: Weak<Live<S>>) {
    loop {
        let Some(strong) = live.upgrade() else { return };
        if !strong.is_paused() && strong.sample().await.is_err() && strong.end().has_come() {
            return;
        }
        let mut end = strong.end();
        drop::<Arc<_>>(strong);
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            () = end.wait() => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_bounded_and_count_processors() {
        let samples = Samples::default();
        let start = Instant::now();
        let when = |s: u64| start + Duration::from_secs(s);
        // The time of day goes back an hour in between, and nothing depends on it.
        let day =
            |s: u64| UNIX_EPOCH + Duration::from_secs(if s < 125 { 9000 + s } else { 5400 + s });
        let add = |s: u64, cpu: u64| {
            let usage = Usage { cpu: Some(Duration::from_secs(cpu)), ..Usage::default() };
            samples.add(day(s), when(s), usage, when(100));
        };
        add(110, 5);
        add(120, 25);
        // A counter that goes back counts as none.
        add(130, 20);
        let busy: Vec<_> = samples.between(0, u64::MAX).iter().map(|sample| sample.busy).collect();
        assert_eq!(busy, [0.5, 2.0, 0.0]);
        assert_eq!(samples.between(9111, 9129).len(), 1);
        for second in 131..1000 {
            add(second, 20);
        }
        assert_eq!(samples.between(0, u64::MAX).len(), KEPT);
        assert!(samples.is_stale(when(1000)) && !samples.is_stale(when(999)));
    }
}
