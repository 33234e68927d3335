//! The machine a measurement was made on.

use serde::Serialize;

use crate::round;

/// The machine a measurement was made on.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// CPUs available to this process.
    pub cores: usize,
    /// Memory in GiB.
    pub memory_gib: f64,
    /// Operating system and kernel release.
    pub system: String,
}

impl Machine {
    /// Describes the current machine.
    pub fn current() -> Self {
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let memory_gib =
            meminfo("MemTotal").map_or(0.0, |bytes| round(bytes as f64 / (1u64 << 30) as f64));
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self { cores, memory_gib, system: format!("{} {}", std::env::consts::OS, release.trim()) }
    }
}

/// Returns a field of `/proc/meminfo` in bytes, or `None` where the system has no such file or field.
pub fn meminfo(field: &str) -> Option<i64> {
    let table = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = table.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse::<i64>().ok().map(|kib| kib * 1024)
}
