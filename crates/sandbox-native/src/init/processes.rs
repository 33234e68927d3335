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
use crate::sys;

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

/// The processes there were at some moment. Numbers are given again; a start time tells who is who.
pub(crate) struct Present(HashMap<i32, u64>);

impl Present {
    /// The processes there are now.
    pub(crate) fn now() -> Self {
        Self(numbers().into_iter().filter_map(|pid| Some((pid, start_of(pid)?))).collect())
    }

    /// The numbers of those that are still there.
    pub(crate) fn still_there(&self) -> HashSet<i32> {
        let same = self.0.iter().filter(|(pid, start)| start_of(**pid) == Some(**start));
        same.map(|(pid, _)| *pid).collect()
    }
}

/// When a process started, in ticks of the kernel's clock.
fn start_of(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()
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
            break;
        }
        nap(Duration::from_millis(2));
    }
    // All at once, or a process that keeps forking and exiting would never be caught: it may not even have
    // been seen, for each look at it can come too late.
    sys::stop_all();
    for _ in 0..1000 {
        let left = victims(spared);
        if left.is_empty() {
            break;
        }
        signal(&left, Signal::KILL);
        nap(Duration::from_micros(500));
        reap(spared);
    }
    let others: Vec<_> = numbers().into_iter().filter(|pid| *pid != 1).collect();
    signal(&others, Signal::CONT);
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
