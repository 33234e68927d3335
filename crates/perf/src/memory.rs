//! What a runtime's processes and the kernel take of the machine's memory.

use std::{collections::HashMap, fs, io};

use serde::Serialize;

use crate::meminfo;

/// Memory by the number of sandboxes. A part is `None` where the system does not tell it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemoryPerSandbox {
    /// By how much the machine's available memory fell. Contains both parts below, and what the rest of the machine took
    /// meanwhile.
    pub available_bytes: Option<i64>,
    /// Of this process and those below it: pages they share are counted once. `None` for a runtime whose processes are
    /// elsewhere.
    pub process_bytes: Option<i64>,
    /// Of the kernel, for the whole machine: objects, page tables, stacks and what it has per processor.
    pub kernel_bytes: Option<i64>,
}

/// Memory in use at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryUse {
    available: Option<i64>,
    processes: Option<i64>,
    kernel: Option<i64>,
}

impl MemoryUse {
    /// Measures. Takes about a tenth of a millisecond for each process below this one.
    pub(crate) fn now() -> Self {
        let kernel = ["Slab", "PageTables", "KernelStack", "Percpu"].map(meminfo);
        Self {
            available: meminfo("MemAvailable"),
            processes: own_processes(),
            kernel: kernel.into_iter().sum(),
        }
    }

    /// What was added since `before`, by the number of sandboxes.
    pub(crate) fn since(self, before: Self, count: usize) -> MemoryPerSandbox {
        let share = |more: Option<i64>, less: Option<i64>| {
            more.zip(less).map(|(more, less)| (more - less) / count.max(1) as i64)
        };
        MemoryPerSandbox {
            available_bytes: share(before.available, self.available),
            process_bytes: share(self.processes, before.processes),
            kernel_bytes: share(self.kernel, before.kernel),
        }
    }
}

/// Bytes of this process and those below it; `None` if there are none below it, or one may not be inspected.
fn own_processes() -> Option<i64> {
    let parents = parents();
    let own = std::process::id() as i32;
    let below: Vec<_> = parents.keys().filter(|pid| descends(&parents, **pid, own)).collect();
    if below.is_empty() {
        return None;
    }
    let sizes = below.into_iter().chain([&own]).map(|pid| proportional_size(*pid));
    sizes.sum::<io::Result<i64>>().ok()
}

/// The parent of every process.
fn parents() -> HashMap<i32, i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may contain anything.
        let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
        Some((pid, parent))
    })
    .collect()
}

fn descends(parents: &HashMap<i32, i32>, mut pid: i32, from: i32) -> bool {
    // Bounded: the chain may change while it is read.
    for _ in 0..parents.len() {
        match parents.get(&pid) {
            Some(parent) if *parent == from => return true,
            Some(parent) => pid = *parent,
            None => return false,
        }
    }
    false
}

/// The process's pages, each divided by the number of processes that have it. Zero for a process that has ended.
fn proportional_size(pid: i32) -> io::Result<i64> {
    let table = match fs::read_to_string(format!("/proc/{pid}/smaps_rollup")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        // No such process.
        Err(error) if error.raw_os_error() == Some(3) => return Ok(0),
        table => table?,
    };
    let line = table.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<i64>().ok());
    Ok(kib.unwrap_or(0) * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_divided_by_the_number_of_sandboxes() {
        let at = |available, processes| MemoryUse { available, processes, kernel: Some(100) };
        let per = at(Some(600), Some(50)).since(at(Some(1000), None), 4);
        let expected = MemoryPerSandbox {
            available_bytes: Some(100),
            process_bytes: None,
            kernel_bytes: Some(0),
        };
        assert_eq!(per, expected);
    }

    #[test]
    fn processes_below_this_one_are_found_at_any_depth() {
        let parents = HashMap::from([(1, 0), (5, 1), (6, 5), (7, 6), (8, 1)]);
        let below: Vec<_> = (1..9).filter(|pid| descends(&parents, *pid, 5)).collect();
        assert_eq!(below, [6, 7]);
    }
}
