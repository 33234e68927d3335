//! Finds the processes of the sandbox, and kills exactly those a command started.
//!
//! Every program has a UTS namespace of its own. Its processes inherit it and have no means to leave it: the system call
//! filter refuses new namespaces, and nothing inside may enter another. So the namespace says which program started a
//! process, whatever sessions it began and however it was orphaned.
//!
//! The shell and its commands share the namespace of PID 1. The processes of a shell command are those of that namespace
//! that did not exist before it, except descendants of earlier ones. Leaving the session or being orphaned makes no
//! difference, save that an orphan of an earlier process cannot be told from one of the command.

use std::{
    collections::{HashMap, HashSet},
    fs,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::{sleep, stop::Stopper};
use crate::sys;

/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_millis(200);
/// The same for more than this many processes, of which few would get a processor in that time.
const SHORT_GRACE: Duration = Duration::from_millis(50);
const MANY: usize = 128;
/// Processes that those which got SIGTERM may start to clean up. More are a fork bomb, which is not waited for.
const MAX_NEW: usize = 32;
/// How long processes that are about to be killed may take to stop.
const SHORT_STOP: Duration = Duration::from_millis(20);

/// A UTS namespace, identified by its inode, which is not reused while the namespace exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Namespace(u64);

impl Namespace {
    /// The namespace behind an open file of `/proc/PID/ns`, or one of its paths.
    pub(crate) fn of(about: &fs::Metadata) -> Self {
        Self(about.ino())
    }
}

/// Where a process belongs.
#[derive(Clone, Copy)]
struct Place {
    parent: i32,
    session: i32,
    /// Unknown for a process that PID 1 may not inspect, such as one whose program cannot be read.
    namespace: Option<Namespace>,
}

/// A text of `/proc` about a process; `None` once it is gone. It contains the process's name, which may be any bytes.
fn about(pid: i32, file: &str) -> Option<String> {
    let bytes = fs::read(format!("/proc/{pid}/{file}")).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
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

/// Whether a process has ended or been killed, though it may not be reaped yet.
pub(crate) fn is_dying(pid: i32) -> bool {
    about(pid, "status").is_none_or(|status| is_dead_in(&status))
}

/// The same, by the content of `/proc/PID/status`.
fn is_dead_in(status: &str) -> bool {
    field(status, "State").starts_with(['Z', 'X']) || is_pending(status, libc::SIGKILL)
}

/// Whether a process has a signal that it has not handled yet, by the content of `/proc/PID/status`.
fn is_pending(status: &str, signal: i32) -> bool {
    let has = |name| {
        u64::from_str_radix(field(status, name), 16).is_ok_and(|set| set & (1 << (signal - 1)) != 0)
    };
    has("SigPnd") || has("ShdPnd")
}

/// A field of `/proc/PID/status`.
fn field<'a>(status: &'a str, name: &str) -> &'a str {
    let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.unwrap_or_default().trim()
}

/// Whether a process executes no instructions of its own until it gets `SIGCONT`: it is stopped, has ended, or will stop when
/// the system call ends that it waits in. It may still be exiting otherwise.
pub(crate) fn is_stopped(pid: i32) -> bool {
    let Some(stat) = about(pid, "stat") else { return true };
    let Some(Stat { state, flags, threads, .. }) = Stat::parse(&stat) else { return false };
    let has_stop = || about(pid, "status").is_none_or(|status| is_pending(&status, libc::SIGSTOP));
    match state {
        "T" | "t" | "X" => true,
        "Z" => {
            threads < 2
                || threads_of(pid).all(|thread| thread == pid || thread_is_stopped(pid, thread))
        }
        "D" => flags & EXITING == 0 && has_stop(),
        _ => false,
    }
}

fn thread_is_stopped(pid: i32, thread: i32) -> bool {
    let stat = about(pid, &format!("task/{thread}/stat"));
    stat.is_none_or(|stat| {
        Stat::parse(&stat).is_some_and(|stat| matches!(stat.state, "T" | "t" | "X" | "Z"))
    })
}

/// Whether a process has begun to exit and is not done.
pub(crate) fn is_exiting(pid: i32) -> bool {
    let exits = |file: &str| {
        let stat = about(pid, file).unwrap_or_default();
        let stat = Stat::parse(&stat);
        stat.map(|stat| {
            (stat.flags & EXITING != 0 && !matches!(stat.state, "Z" | "X"), stat.threads)
        })
    };
    match exits("stat") {
        // With its main thread gone, the last of the others ends the process.
        Some((false, 2..)) => threads_of(pid)
            .any(|id| exits(&format!("task/{id}/stat")).is_some_and(|(exits, _)| exits)),
        found => found.is_some_and(|(exits, _)| exits),
    }
}

/// The kernel's flag of a thread that exits, in `/proc/PID/stat`.
const EXITING: u32 = 4;

/// The start time of a process, in clock ticks since boot.
fn start_of(pid: i32) -> Option<u64> {
    let stat = about(pid, "stat")?;
    stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()
}

/// The time that processors have worked for the sandbox, in microseconds: for the processes that exist, and for those that
/// ended, which their parents and in the end PID 1 have counted.
pub(crate) fn cpu_time_us() -> u64 {
    let stats = numbers().into_iter().filter_map(|pid| cpu_ticks_in(&about(pid, "stat")?));
    stats.sum::<u64>() * (1_000_000 / TICKS_PER_SECOND)
}

/// Units of times in `/proc`, the same on every machine.
const TICKS_PER_SECOND: u64 = 100;

/// The times of a process and of its children that were waited for, by the content of `/proc/PID/stat`.
fn cpu_ticks_in(stat: &str) -> Option<u64> {
    let fields = stat.rsplit_once(") ")?.1.split(' ');
    let times = fields.skip(11).take(4).map(|time| time.parse::<u64>().unwrap_or(0));
    Some(times.sum())
}

/// Where a process belongs; `None` for one that has ended.
///
/// A process whose main thread has ended looks like a zombie while its other threads go on. Its namespace and its open
/// files are then found with them.
fn place_of(pid: i32) -> Option<Place> {
    let stat = about(pid, "stat")?;
    let Stat { state, parent, session, threads, .. } = Stat::parse(&stat)?;
    let has_main = !matches!(state, "Z" | "X");
    if !has_main && threads < 2 {
        return None;
    }
    let namespace =
        |dir: String| fs::metadata(dir + "/ns/uts").ok().map(|about| Namespace::of(&about));
    let namespace = match has_main {
        true => namespace(format!("/proc/{pid}")),
        false => threads_of(pid).find_map(|thread| namespace(format!("/proc/{pid}/task/{thread}"))),
    };
    Some(Place { parent, session, namespace })
}

/// What `/proc/PID/stat` tells about a process.
#[derive(Debug, PartialEq, Eq)]
struct Stat<'a> {
    /// That of the main thread.
    state: &'a str,
    parent: i32,
    session: i32,
    /// The kernel's, of the main thread.
    flags: u32,
    /// Those that exist, the main thread included until the process is reaped.
    threads: u32,
}

impl<'a> Stat<'a> {
    fn parse(stat: &'a str) -> Option<Self> {
        // The name in parentheses may contain anything, including parentheses.
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        // After the process group.
        let session = fields.nth(1)?.parse().ok()?;
        // After the terminal and its process group.
        let flags = fields.nth(2)?.parse().ok()?;
        let threads = fields.nth(10)?.parse().ok()?;
        Some(Self { state, parent, session, flags, threads })
    }
}

/// The ids of the threads of a process.
fn threads_of(pid: i32) -> impl Iterator<Item = i32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The open files of a process, as links in `/proc`: those of every thread, each of which may have its own.
pub(crate) fn open_files(pid: i32) -> impl Iterator<Item = PathBuf> {
    // A directory has two links besides those of the directories in it.
    let threads = fs::metadata(format!("/proc/{pid}/task")).map_or(1, |meta| meta.nlink() - 2);
    let others = (threads > 1).then(|| threads_of(pid)).into_iter().flatten();
    // Threads usually share their descriptors. Where all have their own, some are listed twice.
    let mut last = pid;
    let others = others.filter(move |thread| {
        let known = sys::share_descriptors(*thread, pid) || sys::share_descriptors(*thread, last);
        if !known {
            last = *thread;
        }
        !known
    });
    // The main thread has none once it has ended.
    [pid].into_iter().chain(others).flat_map(move |thread| {
        let entries = fs::read_dir(format!("/proc/{pid}/task/{thread}/fd"));
        entries.into_iter().flatten().flatten().map(|entry| entry.path())
    })
}

/// Which processes are killed.
#[derive(Clone, Copy)]
pub(crate) enum Scope<'a> {
    /// Every process but these.
    AllBut(&'a HashSet<i32>),
    /// Those of a shell command: in the shell's namespace, but for these and their descendants.
    Command { spared: &'a HashSet<i32>, namespace: Namespace },
    /// Those of a program: its first process, and all in its namespace.
    Program { root: i32, namespace: Namespace },
}

impl Scope<'_> {
    fn has(self, all: &HashMap<i32, Place>, pid: i32) -> bool {
        let Some(place) = all.get(&pid) else { return false };
        match self {
            Self::AllBut(spared) => !spared.contains(&pid),
            Self::Command { spared, namespace } => {
                place.namespace.is_none_or(|found| found == namespace)
                    && !descends(all, pid, spared)
            }
            Self::Program { root, namespace } => match place.namespace {
                Some(found) => found == namespace,
                None => pid == root || place.session == root,
            },
        }
    }
}

/// Whether a process, or one that it descends from, is among these.
fn descends(all: &HashMap<i32, Place>, mut pid: i32, from: &HashSet<i32>) -> bool {
    // Bounded: the chain may change while it is followed.
    for _ in 0..=all.len() {
        if from.contains(&pid) {
            return true;
        }
        match all.get(&pid) {
            Some(place) if place.parent > 1 => pid = place.parent,
            _ => return false,
        }
    }
    false
}

/// The processes that are to be killed.
fn victims(all: &HashMap<i32, Place>, scope: Scope<'_>) -> Vec<i32> {
    all.keys().copied().filter(|pid| *pid != 1 && scope.has(all, *pid)).collect()
}

/// How processes are stopped while others are killed.
pub(crate) struct Stopping<'a> {
    pub(crate) stopper: &'a Stopper,
    /// Those that are not stopped.
    pub(crate) workers: Vec<i32>,
    pub(crate) afterwards: Afterwards,
}

/// What processes do that were not killed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Afterwards {
    Continue,
    /// They were stopped before, and stay so.
    StayStopped,
}

/// Time between SIGTERM and SIGKILL for so many processes.
fn grace(processes: usize) -> Duration {
    if processes > MANY { SHORT_GRACE } else { GRACE }
}

/// Kills these processes: first SIGTERM, then SIGKILL, after [`grace`], or once more than [`MAX_NEW`] have appeared. Frozen ones
/// get SIGKILL alone: they cannot handle anything, and some end only once they are thawed, before they execute anything.
pub(crate) fn kill(scope: Scope<'_>, stopping: Stopping<'_>) {
    if stopping.stopper.is_holding() {
        let mut left = victims(&all(), scope);
        left.retain(|pid| !is_dying(*pid));
        return signal(&left, Signal::KILL);
    }
    // Those that have ended are reaped here, because their ends mean nothing any more. The ends of others are handled
    // elsewhere.
    let mut killed = HashSet::new();
    let mut find = || {
        let found = victims(&all(), scope);
        killed.extend(found.iter().copied());
        reap(&killed);
        found
    };
    let asked = find();
    signal(&asked, Signal::TERM);
    let deadline = Instant::now() + grace(asked.len());
    let mut seen: HashSet<i32> = asked.iter().copied().collect();
    while Instant::now() < deadline && seen.len() <= asked.len() + MAX_NEW {
        let found = find();
        if found.is_empty() {
            break;
        }
        seen.extend(found);
        sleep(Duration::from_millis(2));
    }
    // Stopped all at once: a process that keeps forking and exiting might otherwise never be seen in time.
    let stop = || stopping.stopper.stop_all(&stopping.workers, SHORT_STOP);
    let _ = stop();
    for round in 1..=1000 {
        let left = find();
        if left.is_empty() {
            break;
        }
        signal(&left, Signal::KILL);
        sleep(Duration::from_micros(500));
        if round % 50 == 0 {
            // One may have escaped.
            let _ = stop();
        }
    }
    if stopping.afterwards == Afterwards::Continue {
        let others: Vec<_> = numbers().into_iter().filter(|pid| *pid != 1).collect();
        signal(&others, Signal::CONT);
    }
}

/// Reaps children among these that have ended.
fn reap(pids: &HashSet<i32>) {
    for pid in pids.iter().filter_map(|pid| Pid::from_raw(*pid)) {
        let _ = waitpid(Some(pid), WaitOptions::NOHANG);
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
    fn times_are_found_behind_any_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 100 20 3 4 20 0 1 0 5 6 7";
        assert_eq!(cpu_ticks_in(stat), Some(127));
        assert_eq!(cpu_ticks_in("7 (a"), None);
    }

    const SHELL: Namespace = Namespace(1);
    const PROGRAM: Namespace = Namespace(2);
    const OTHER: Namespace = Namespace(3);

    /// A shell 10 with a command 11, a program 20 and another, 30, that has left daemons: 31 is in its session, 32 has
    /// a session of its own, and both are orphans.
    fn all() -> HashMap<i32, Place> {
        let places = [
            (1, 0, 1, SHELL),
            (10, 1, 10, SHELL),
            (11, 10, 10, SHELL),
            (12, 1, 12, SHELL),
            (20, 1, 20, PROGRAM),
            (21, 1, 21, PROGRAM),
            (31, 1, 30, OTHER),
            (32, 1, 32, OTHER),
        ];
        let place = |(pid, parent, session, namespace)| {
            (pid, Place { parent, session, namespace: Some(namespace) })
        };
        HashMap::from(places.map(place))
    }

    fn killed(scope: Scope<'_>) -> Vec<i32> {
        let mut killed = victims(&all(), scope);
        killed.sort_unstable();
        killed
    }

    #[test]
    fn a_killed_program_takes_its_own_daemons_and_no_others() {
        assert_eq!(killed(Scope::Program { root: 20, namespace: PROGRAM }), [20, 21]);
        assert_eq!(killed(Scope::Program { root: 30, namespace: OTHER }), [31, 32]);
    }

    #[test]
    fn a_killed_shell_command_spares_programs_and_what_was_there_before() {
        let none = HashSet::new();
        let scope = |spared| Scope::Command { spared, namespace: SHELL };
        assert_eq!(killed(scope(&none)), [10, 11, 12]);
        assert_eq!(killed(scope(&HashSet::from([10]))), [12]);
        assert_eq!(killed(Scope::AllBut(&HashSet::from([10]))), [11, 12, 20, 21, 31, 32]);
    }

    #[test]
    fn few_processes_get_time_to_end_by_themselves() {
        for few in [0, 1, MANY] {
            assert_eq!(grace(few), Duration::from_millis(200));
        }
        assert_eq!(grace(129), Duration::from_millis(50));
    }

    #[test]
    fn a_killed_process_is_dying_before_it_is_gone() {
        let status = |state: &str, pending: &str| {
            format!("Name:\tbash\nState:\t{state}\nSigPnd:\t0000000000000000\nShdPnd:\t{pending}\n")
        };
        assert!(!is_dead_in(&status("S (sleeping)", "0000000000000000")));
        assert!(!is_dead_in(&status("S (sleeping)", "0000000000010000")));
        assert!(is_dead_in(&status("S (sleeping)", "0000000000000100")));
        assert!(is_dead_in(&status("Z (zombie)", "0000000000000000")));
        assert!(is_dying(i32::MAX), "it does not exist");
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a process to stop")]
    fn a_stopped_process_is_recognized() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        assert!(!is_stopped(pid) && !is_exiting(pid));
        signal(&[pid], Signal::STOP);
        let deadline = Instant::now() + Duration::from_secs(20);
        while !is_stopped(pid) && Instant::now() < deadline {
            sleep(Duration::from_millis(1));
        }
        assert!(is_stopped(pid) && !is_exiting(pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(is_stopped(pid) && !is_exiting(pid), "it does not exist");
    }

    #[test]
    fn a_name_does_not_change_what_is_read() {
        let rest = "Z 18181 18180 4937 0 -1 4227084 584 0 2 0 0 0 0 0 20 0 3 0 3088106 0 0";
        let read = Stat { state: "Z", parent: 18181, session: 4937, flags: 4_227_084, threads: 3 };
        assert_ne!(read.flags & EXITING, 0);
        for name in ["perl", "a b", ") R 1 1 1 1 1"] {
            assert_eq!(Stat::parse(&format!("18334 ({name}) {rest}")).as_ref(), Some(&read));
        }
        assert_eq!(Stat::parse("18334 (perl) Z 18181"), None);
    }

    #[test]
    fn a_process_that_cannot_be_inspected_is_known_by_its_session() {
        let unknown = |pid, session| (pid, Place { parent: 1, session, namespace: None });
        let all = HashMap::from([unknown(20, 20), unknown(21, 20), unknown(22, 22)]);
        let mut killed = victims(&all, Scope::Program { root: 20, namespace: PROGRAM });
        killed.sort_unstable();
        assert_eq!(killed, [20, 21]);
    }
}
