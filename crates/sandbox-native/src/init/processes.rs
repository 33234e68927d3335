//! Finds the processes of the sandbox, and kills exactly those a command started.
//!
//! The processes of a command are those that did not exist before it, except descendants of earlier ones. Leaving the
//! session or being orphaned makes no difference.

use std::{
    collections::{HashMap, HashSet},
    fs,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::sleep;
use crate::sys;

/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_millis(200);

/// Where a process belongs.
#[derive(Clone, Copy)]
struct Place {
    parent: i32,
    session: i32,
}

/// The processes that exist now.
fn all() -> HashMap<i32, Place> {
    numbers().into_iter().filter_map(|pid| Some((pid, place_of(pid)?))).collect()
}

/// The ids of the processes that exist now.
pub(crate) fn numbers() -> HashSet<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The processes whose session one of these processes began, whatever became of it.
pub(crate) fn in_sessions(leaders: &[i32]) -> Vec<i32> {
    let ours = |pid: &i32| session_of(*pid).is_some_and(|leader| leaders.contains(&leader));
    numbers().into_iter().filter(ours).collect()
}

/// The sessions that have a process.
pub(crate) fn sessions() -> HashSet<i32> {
    numbers().into_iter().filter_map(session_of).collect()
}

/// The session of a process: the id of the process that began it, which is not reused before the session is over.
fn session_of(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(3)?.parse().ok()
}

/// The processes that existed at one moment, identified by id and start time because ids are reused.
pub(crate) struct Present(HashMap<i32, u64>);

impl Present {
    /// Those that exist now.
    pub(crate) fn now() -> Self {
        Self(numbers().into_iter().filter_map(|pid| Some((pid, start_of(pid)?))).collect())
    }

    /// The ids of those that still exist.
    pub(crate) fn still_there(&self) -> HashSet<i32> {
        let same = self.0.iter().filter(|(pid, start)| start_of(**pid) == Some(**start));
        same.map(|(pid, _)| *pid).collect()
    }
}

/// The start time of a process, in clock ticks since boot.
fn start_of(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()
}

/// Where a process belongs; `None` for a zombie.
fn place_of(pid: i32) -> Option<Place> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything, including parentheses.
    let rest = stat.rsplit_once(") ")?.1;
    let mut fields = rest.split(' ');
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    // After the process group.
    let session = fields.nth(1)?.parse().ok()?;
    (state != "Z" && state != "X").then_some(Place { parent, session })
}

/// What happens to descendants of the spared processes.
#[derive(Clone, Copy)]
pub(crate) enum Descendants<'a> {
    /// They are spared as well, and so are the processes of these sessions, with their descendants: a program may start a
    /// daemon meanwhile, which is orphaned at once.
    Spared(&'a [i32]),
    /// They are killed.
    Killed,
}

/// The processes that are to be killed.
fn victims(
    all: &HashMap<i32, Place>,
    spared: &HashSet<i32>,
    descendants: Descendants<'_>,
) -> Vec<i32> {
    let belongs = |mut pid: i32| {
        // Bounded: the chain may change while it is followed.
        for _ in 0..=all.len() {
            if spared.contains(&pid) {
                return false;
            }
            let (Descendants::Spared(sessions), Some(place)) = (descendants, all.get(&pid)) else {
                return true;
            };
            if sessions.contains(&place.session) {
                return false;
            }
            if place.parent <= 1 {
                return true;
            }
            pid = place.parent;
        }
        true
    };
    all.keys().copied().filter(|pid| *pid != 1 && belongs(*pid)).collect()
}

/// Kills every process except the spared ones: first SIGTERM, then, after [`GRACE`], SIGKILL.
pub(crate) fn kill_all_but(spared: &HashSet<i32>, descendants: Descendants<'_>) {
    let victims = |spared| victims(&all(), spared, descendants);
    signal(&victims(spared), Signal::TERM);
    let deadline = Instant::now() + GRACE;
    while Instant::now() < deadline {
        reap(spared);
        if victims(spared).is_empty() {
            break;
        }
        sleep(Duration::from_millis(2));
    }
    // Stopped all at once: a process that keeps forking and exiting might otherwise never be seen in time.
    sys::stop_all();
    for _ in 0..1000 {
        let left = victims(spared);
        if left.is_empty() {
            break;
        }
        signal(&left, Signal::KILL);
        sleep(Duration::from_micros(500));
        reap(spared);
    }
    let others: Vec<_> = numbers().into_iter().filter(|pid| *pid != 1).collect();
    signal(&others, Signal::CONT);
}

/// Reaps children that are not spared. The ends of spared ones are handled elsewhere.
fn reap(spared: &HashSet<i32>) {
    for pid in numbers().difference(spared) {
        if let Some(pid) = Pid::from_raw(*pid).filter(|pid| *pid != Pid::INIT) {
            let _ = waitpid(Some(pid), WaitOptions::NOHANG);
        }
    }
}

/// Sends a signal to each process.
pub(crate) fn signal(pids: &[i32], signal: Signal) {
    for pid in pids.iter().filter_map(|pid| Pid::from_raw(*pid)) {
        let _ = kill_process(pid, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_another_program_is_starting_is_spared() {
        let places = [(1, 0, 1), (10, 1, 10), (20, 1, 20), (21, 1, 20), (22, 21, 22), (30, 1, 30)];
        let place = |(pid, parent, session)| (pid, Place { parent, session });
        let all = HashMap::from(places.map(place));
        let killed = |descendants| {
            let mut killed = victims(&all, &HashSet::from([20]), descendants);
            killed.sort_unstable();
            killed
        };
        // 21 was orphaned, 22 has left its session.
        assert_eq!(killed(Descendants::Spared(&[20])), [10, 30]);
        assert_eq!(killed(Descendants::Spared(&[])), [10, 21, 22, 30]);
        assert_eq!(killed(Descendants::Killed), [10, 21, 22, 30]);
    }
}
