//! Measured numbers, and what they mean together. Knows nothing of how they were obtained.

use std::time::Duration;

use serde::Serialize;

/// The middle and the bad end of many measurements, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    /// Half were quicker.
    pub(crate) p50: f64,
    /// Ninety-nine of a hundred were quicker.
    pub(crate) p99: f64,
}

impl Spread {
    /// Of at least one measurement; of none, zeroes.
    pub(crate) fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let at = |share: f64| {
            let index = ((times.len() as f64 * share).ceil() as usize).saturating_sub(1);
            times.get(index).map_or(0.0, |time| round(time.as_secs_f64() * 1000.0))
        };
        Self { p50: at(0.5), p99: at(0.99) }
    }
}

/// Five digits after the point: a pooled sandbox takes microseconds.
pub(crate) fn round(value: f64) -> f64 {
    (value * 100_000.0).round() / 100_000.0
}

/// Everything measured of one runtime.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figures {
    pub(crate) create_ms: Spread,
    pub(crate) exec_ms: Spread,
    pub(crate) copy_in_ms: Spread,
    pub(crate) fork_ms: Spread,
    pub(crate) destroy_ms: Spread,
    pub(crate) pooled_create_ms: Spread,
    pub(crate) concurrent: Concurrent,
}

/// Many sandboxes alive at once.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Concurrent {
    pub(crate) count: usize,
    pub(crate) create_s: f64,
    pub(crate) exec_s: f64,
    pub(crate) destroy_s: f64,
    pub(crate) errors: usize,
    /// By how much the machine's available memory fell, for each. Nothing where the system does not tell.
    pub(crate) memory_per_sandbox_bytes: Option<i64>,
}

/// One run of the benchmark.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Comparison {
    pub(crate) machine: Machine,
    pub(crate) images: Images,
    /// A bare `bash -c 'echo hi'` on this machine, for scale.
    pub(crate) bash_ms: Spread,
    pub(crate) native: Option<Figures>,
    pub(crate) docker: Option<Figures>,
}

/// What the sandboxes started from.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Images {
    pub(crate) native: Option<String>,
    pub(crate) docker: Option<String>,
}

/// Where it was measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    pub(crate) memory_gib: f64,
    pub(crate) system: String,
}

impl Machine {
    /// This machine.
    pub(crate) fn here() -> Self {
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let memory_gib =
            memory_line("MemTotal").map_or(0.0, |bytes| round(bytes as f64 / (1u64 << 30) as f64));
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self { cores, memory_gib, system: format!("{} {}", std::env::consts::OS, release.trim()) }
    }
}

/// A line of the kernel's memory table, in bytes.
pub(crate) fn memory_line(name: &str) -> Option<i64> {
    let table = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = table.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse::<i64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_sorted_times() {
        let times = (1..=100).rev().map(Duration::from_millis).collect();
        assert_eq!(Spread::of(times), Spread { p50: 50.0, p99: 99.0 });
        assert_eq!(Spread::of(vec![Duration::from_millis(3)]), Spread { p50: 3.0, p99: 3.0 });
        assert_eq!(Spread::of(vec![]), Spread { p50: 0.0, p99: 0.0 });
    }
}
