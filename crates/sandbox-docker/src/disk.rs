//! Enforces the disk limit where the daemon's storage has no quota: the daemon measures what was written while commands
//! run, and those that pass the limit are killed.
//!
//! The daemon adds up the sizes of the files in the container's own layer. It is not among the container's processes, which
//! can neither delay it nor lie to it. It does not see deleted files that are still open.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bollard::query_parameters::ListContainersOptions;
use sandbox::{Error, Status};
use tokio::sync::Notify;

use crate::{failure::during, sandbox_impl::Inner};

/// The shortest time between two measurements while a command runs.
const INTERVAL: Duration = Duration::from_millis(250);
/// The time between two measurements while none does: processes in the background may write.
const IDLE_INTERVAL: Duration = Duration::from_secs(5);
/// How much longer than it takes to measure is waited until the next measurement.
const COST_FACTOR: u32 = 10;
/// The longest time between two measurements while a command runs, unless a measurement takes longer than that.
const MAX_PAUSE: Duration = Duration::from_secs(2);
/// Measurements that take longer are not made at the start and the end of every command.
const EXPENSIVE: Duration = Duration::from_secs(1);
/// The exit code of a command that the kernel stopped at the limit on the size of a file, by SIGXFSZ.
const TOO_LARGE: i32 = 128 + 25;

/// The limit and what was measured.
pub(crate) struct DiskWatch {
    limit: u64,
    /// Commands that run.
    running: AtomicUsize,
    /// A command has started.
    started: Notify,
    seen: Mutex<Seen>,
}

#[derive(Clone, Copy, Default)]
struct Seen {
    used: u64,
    /// Use when the running command started: one that does not add to it is not to blame. `None` after a kill: the next
    /// measurement sets it, since what was killed may have written until the end.
    baseline: Option<u64>,
    /// How often all commands were killed.
    kills: u64,
    /// How long the last measurement took.
    cost: Duration,
}

impl DiskWatch {
    pub(crate) fn new(limit: u64) -> Self {
        let (running, started) = (AtomicUsize::new(0), Notify::new());
        Self { limit, running, started, seen: Mutex::default() }
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a command that is about to start, until the result is dropped.
    fn begin(self: &Arc<Self>) -> Counted {
        let mut seen = self.seen();
        if self.running.fetch_add(1, Ordering::Relaxed) == 0 && seen.baseline.is_some() {
            seen.baseline = Some(seen.used);
        }
        self.started.notify_one();
        Counted { watch: Arc::clone(self), kills: seen.kills }
    }

    fn pause(&self) -> Duration {
        let cost = self.seen().cost;
        match self.running.load(Ordering::Relaxed) {
            0 => IDLE_INTERVAL.max(cost * COST_FACTOR),
            // The daemon measures half of the time at most.
            _ => (cost * COST_FACTOR).clamp(INTERVAL, MAX_PAUSE).max(cost),
        }
    }

    /// Notes a measurement; whether the limit has been passed by what runs.
    fn note(&self, used: u64, cost: Duration) -> bool {
        let mut seen = self.seen();
        (seen.used, seen.cost) = (used, cost);
        // What a command frees first it can be blamed for later.
        seen.baseline = Some(seen.baseline.map_or(used, |baseline| baseline.min(used)));
        seen.is_past(self.limit)
    }
}

impl Seen {
    /// Whether the limit has been passed by what runs.
    fn is_past(&self, limit: u64) -> bool {
        self.used >= limit && self.baseline.is_some_and(|baseline| self.used > baseline)
    }
}

/// A command that runs.
pub(crate) struct Counted {
    watch: Arc<DiskWatch>,
    /// [`Seen::kills`] when it started.
    kills: u64,
}

impl Counted {
    /// Whether all commands were killed since this one started.
    fn was_killed(&self) -> bool {
        self.watch.seen().kills > self.kills
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.watch.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Inner {
    /// Measures; whether what runs has passed the limit.
    async fn passes_disk_limit(&self, watch: &DiskWatch) -> Result<bool, Error> {
        let start = Instant::now();
        // Not by inspecting the container, for which the daemon locks it: it could not be removed any more while commands
        // keep another one from starting.
        let options = ListContainersOptions {
            size: true,
            filters: Some(HashMap::from([("id".into(), vec![self.id.clone()])])),
            ..Default::default()
        };
        let seen = self.docker.list_containers(Some(options)).await;
        let seen = seen.map_err(during("measuring the files"))?.pop();
        let seen = seen.ok_or_else(|| Error::Gone("its container has ended".into()))?;
        let used = seen.size_rw.unwrap_or(0);
        Ok(watch.note(u64::try_from(used).unwrap_or(0), start.elapsed()))
    }

    /// Measures before a command starts, which is not to blame for what is there.
    pub(crate) async fn begin_command(&self) -> Result<Option<Counted>, Error> {
        let Some(watch) = &self.disk else { return Ok(None) };
        if watch.seen().cost <= EXPENSIVE {
            self.passes_disk_limit(watch).await?;
        }
        Ok(Some(watch.begin()))
    }

    /// Whether a command that has just ended in this way passed the limit.
    pub(crate) async fn passed_disk_limit(
        &self,
        status: Status,
        command: Option<&Counted>,
    ) -> Result<bool, Error> {
        if command.is_some_and(Counted::was_killed) {
            return Ok(true);
        }
        if self.spec.limits.disk.is_some() && status.code() == TOO_LARGE {
            return Ok(true);
        }
        let Some(watch) = &self.disk else { return Ok(false) };
        let seen = *watch.seen();
        match seen.cost <= EXPENSIVE {
            true => self.passes_disk_limit(watch).await,
            false => Ok(seen.is_past(watch.limit)),
        }
    }
}

/// Measures, and kills all commands past the limit, as long as the sandbox exists.
pub(crate) async fn watch(sandbox: Weak<Inner>, watch: Arc<DiskWatch>) {
    loop {
        let idle = watch.running.load(Ordering::Relaxed) == 0;
        tokio::select! {
            () = tokio::time::sleep(watch.pause()) => {}
            () = watch.started.notified(), if idle => continue,
        }
        let Some(inner) = sandbox.upgrade() else { return };
        match inner.passes_disk_limit(&watch).await {
            Ok(false) => {}
            Ok(true) => {
                let _unfrozen = inner.frozen.read().await;
                // First, so that commands that end by it see why.
                watch.seen().kills += 1;
                // If that fails the container is gone, or the next measurement tries again.
                if inner.keeper.lock().await.kill_all().await.is_ok() {
                    watch.seen().baseline = None;
                }
            }
            Err(Error::Gone(_)) => return,
            Err(error) => tracing::debug!(%error, "the files could not be measured"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_commands_that_add_to_the_use_pass_the_limit() {
        let watch = Arc::new(DiskWatch::new(100));
        let command = watch.begin();
        assert!(!watch.note(99, EXPENSIVE));
        assert!(watch.note(100, EXPENSIVE));
        drop(command);
        let _next = watch.begin();
        assert!(!watch.note(100, EXPENSIVE), "the one before has used it");
        assert!(watch.note(101, EXPENSIVE));
        assert!(!watch.note(20, EXPENSIVE));
        assert!(watch.note(100, EXPENSIVE), "this one has freed it and used it again");
    }

    #[test]
    fn a_second_measurement_does_not_kill_again() {
        let watch = Arc::new(DiskWatch::new(100));
        let command = watch.begin();
        assert!(!watch.note(0, EXPENSIVE) && watch.note(120, EXPENSIVE));
        watch.seen().kills += 1;
        watch.seen().baseline = None;
        // Starts while the one before has not ended yet, and is not to blame for its last bytes either.
        let next = watch.begin();
        assert!(!watch.note(130, EXPENSIVE) && !watch.note(130, EXPENSIVE));
        assert!(command.was_killed() && !next.was_killed());
        drop((command, next));
        let _later = watch.begin();
        assert!(!watch.note(130, EXPENSIVE) && watch.note(131, EXPENSIVE));
    }

    #[test]
    fn slow_measurements_are_made_rarely() {
        let watch = Arc::new(DiskWatch::new(100));
        assert_eq!(watch.pause(), IDLE_INTERVAL);
        let _command = watch.begin();
        assert_eq!(watch.pause(), INTERVAL);
        watch.note(1, Duration::from_secs(1));
        assert_eq!(watch.pause(), MAX_PAUSE);
        watch.note(1, MAX_PAUSE * 2);
        assert_eq!(watch.pause(), MAX_PAUSE * 2);
    }
}
