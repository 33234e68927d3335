//! Which processes run in the sandbox, and killing exactly those a command started.
//!
//! A command's processes are those that were not there before it, except what processes from before it
//! have started since. Leaving the session or being orphaned changes nothing about that.

use std::{
    collections::{HashMap, HashSet},
    fs,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::nap;

/// How long processes get between being asked and being forced to end.
const GRACE: Duration = Duration::from_millis(200);

/// The processes that exist now, by number, each with its parent.
pub(crate) fn all() -> HashMap<i32, i32> {
    let mut found = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        if let Some(parent) = parent_of(pid) {
            found.insert(pid, parent);
        }
    }
    found
}

/// The numbers of the processes that exist now.
pub(crate) fn numbers() -> HashSet<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The parent of a process that is not already dead.
fn parent_of(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, parentheses included.
    let rest = stat.rsplit_once(") ")?.1;
    let mut fields = rest.split(' ');
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    (state != "Z" && state != "X").then_some(parent)
}

/// Who lives on besides the spared processes themselves.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    /// What they started.
    Too,
    /// Nobody.
    Not,
}

/// The processes that neither are spared nor, where their families are too, descend from one that is.
fn victims(spared: &HashSet<i32>, family: Family) -> Vec<i32> {
    let all = all();
    let belongs = |mut pid: i32| {
        // As deep as there are processes; a chain that changes under us still ends.
        for _ in 0..=all.len() {
            if spared.contains(&pid) {
                return false;
            }
            match all.get(&pid) {
                Some(&parent) if parent > 1 && family == Family::Too => pid = parent,
                _ => return true,
            }
        }
        true
    };
    all.keys().copied().filter(|pid| *pid != 1 && belongs(*pid)).collect()
}

/// Kills every process but the spared ones, and perhaps their descendants; first gently.
pub(crate) fn kill_all_but(spared: &HashSet<i32>, family: Family) {
    let victims = |spared| victims(spared, family);
    signal(&victims(spared), Signal::TERM);
    let deadline = Instant::now() + GRACE;
    while Instant::now() < deadline {
        reap(spared);
        if victims(spared).is_empty() {
            return;
        }
        nap(Duration::from_millis(2));
    }
    // Stopped processes fork no more: once a look finds nobody new, all can be killed for good.
    let mut stopped = HashSet::new();
    for _ in 0..1000 {
        let fresh: Vec<_> =
            victims(spared).into_iter().filter(|pid| stopped.insert(*pid)).collect();
        if fresh.is_empty() {
            break;
        }
        signal(&fresh, Signal::STOP);
    }
    for _ in 0..1000 {
        let left = victims(spared);
        if left.is_empty() {
            return;
        }
        signal(&left, Signal::KILL);
        nap(Duration::from_micros(500));
        reap(spared);
    }
}

/// Buries orphans. The spared ones' ends matter to somebody else.
fn reap(spared: &HashSet<i32>) {
    for pid in numbers().difference(spared) {
        if let Some(pid) = Pid::from_raw(*pid).filter(|pid| *pid != Pid::INIT) {
            let _ = waitpid(Some(pid), WaitOptions::NOHANG);
        }
    }
}

/// Sends a signal to each.
pub(crate) fn signal(pids: &[i32], signal: Signal) {
    for pid in pids.iter().filter_map(|pid| Pid::from_raw(*pid)) {
        let _ = kill_process(pid, signal);
    }
}
