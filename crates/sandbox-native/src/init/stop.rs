//! Stops every process of the sandbox but PID 1 and the file workers, so that none escapes.
//!
//! A signal alone is not enough: a process that is sending `SIGCONT` to all others may be behind the one that sends
//! `SIGSTOP`, and the kernel itself lets stopped processes continue when the last parent of their session exits. So the control
//! group of commands is frozen first. Then nothing runs that could send a signal, every process gets `SIGSTOP`, and the group
//! is thawed: each stops before it executes another instruction.
//!
//! For a pause the group stays frozen until it ends. Signals alone would not hold: a timer, the end of a parent or of a lease
//! lets a stopped process continue, without another that runs. On version 1 a frozen process that is killed ends only when it
//! is thawed, but executes nothing before that.
//!
//! Without a group that can be frozen, signals are repeated until two searches in a row have found all processes stopped.

use std::{
    cell::Cell,
    collections::HashSet,
    fs::File,
    io::{self, Write},
    time::{Duration, Instant},
};

use rustix::process::Signal;

use super::{processes, sleep};
use crate::{
    cgroup::{self, Counters},
    sys,
};

/// How long processes may take to stop: on a busy machine each has to be scheduled once, and a system call that cannot be
/// interrupted has to end first.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_micros(200);

/// Stops the processes of commands.
pub(crate) struct Stopper {
    freezer: Option<Freezer>,
    /// The group is frozen until it is released.
    held: Cell<bool>,
}

/// The control group's means to stop everything in it at one moment.
enum Freezer {
    V1 { state: File },
    V2 { freeze: File, events: File },
}

impl Stopper {
    /// One that uses the control group, where it can be frozen.
    pub(crate) fn new(counters: &Counters) -> Self {
        let copy =
            |fd: &Option<std::os::fd::OwnedFd>| fd.as_ref()?.try_clone().ok().map(File::from);
        let freezer = match (copy(&counters.freezer), copy(&counters.frozen)) {
            (Some(freeze), Some(events)) => Some(Freezer::V2 { freeze, events }),
            (Some(state), None) => Some(Freezer::V1 { state }),
            (None, _) => None,
        };
        Self { freezer, held: Cell::new(false) }
    }

    /// Stops all processes but these and PID 1. On an error, which comes after `patience`, some may run.
    pub(crate) fn stop_all(&self, spared: &[i32], patience: Duration) -> io::Result<()> {
        let frozen = self.stop(spared, patience);
        if !self.held.get() {
            self.thaw();
        }
        frozen.map(drop)
    }

    /// The same, and keeps them stopped until they are released.
    pub(crate) fn hold(&self, spared: &[i32], patience: Duration) -> io::Result<()> {
        let frozen = self.stop(spared, patience);
        match frozen {
            Ok(true) => self.held.set(true),
            _ => self.release(),
        }
        frozen.map(drop)
    }

    /// Ends what [`Stopper::hold`] began. Processes that were stopped by a signal stay so.
    pub(crate) fn release(&self) {
        self.held.set(false);
        self.thaw();
    }

    /// Whether the group of commands stays frozen: nothing in it executes anything until it is released.
    pub(crate) fn is_holding(&self) -> bool {
        self.held.get()
    }

    /// Returns whether the group is frozen.
    fn stop(&self, spared: &[i32], patience: Duration) -> io::Result<bool> {
        let deadline = Instant::now() + patience;
        let spared: HashSet<_> = spared.iter().copied().chain([1]).collect();
        if self.freezer.as_ref().is_some_and(|freezer| freezer.stop_all(&spared, deadline)) {
            return Ok(true);
        }
        self.thaw();
        stop_by_signals(&spared, deadline).map(|()| false)
    }

    fn thaw(&self) {
        if let Some(freezer) = &self.freezer {
            freezer.thaw();
        }
    }
}

impl Freezer {
    fn freeze(&self) -> io::Result<()> {
        match self {
            Self::V1 { state } => put(state, b"FROZEN"),
            Self::V2 { freeze, .. } => put(freeze, b"1"),
        }
    }

    fn thaw(&self) {
        let _ = match self {
            Self::V1 { state } => put(state, b"THAWED"),
            Self::V2 { freeze, .. } => put(freeze, b"0"),
        };
    }

    fn is_frozen(&self) -> bool {
        match self {
            Self::V1 { state } => cgroup::word_in(state) == "FROZEN",
            Self::V2 { events, .. } => cgroup::count(events, "frozen") == 1,
        }
    }

    /// Stops all processes but these, and leaves them frozen; returns whether all are certain to be stopped.
    fn stop_all(&self, spared: &HashSet<i32>, deadline: Instant) -> bool {
        if self.freeze().is_err() {
            return false;
        }
        // One that exits is not frozen, and may make the kernel let others continue.
        let mut settled = false;
        while !settled && Instant::now() < deadline {
            settled = self.is_frozen() && !others(spared).any(processes::is_exiting);
            if !settled {
                sleep(SHORT);
            }
        }
        let all: Vec<_> = others(spared).collect();
        processes::signal(&all, Signal::STOP);
        settled
    }
}

fn put(mut file: &File, word: &[u8]) -> io::Result<()> {
    file.write_all(word)
}

/// The ids of all processes but these.
fn others(spared: &HashSet<i32>) -> impl Iterator<Item = i32> {
    processes::numbers().into_iter().filter(move |pid| !spared.contains(pid))
}

fn stop_by_signals(spared: &HashSet<i32>, deadline: Instant) -> io::Result<()> {
    let workers: Vec<_> = spared.iter().copied().filter(|pid| *pid != 1).collect();
    let mut still = 0;
    loop {
        if still == 0 {
            // In one step: of processes that fork all the time, some would be missed one by one.
            sys::stop_all();
            processes::signal(&workers, Signal::CONT);
        }
        // What one search has found stopped may have been let go by a process that it had yet to see.
        still = match others(spared).all(processes::is_stopped) {
            true => still + 1,
            false => 0,
        };
        if still == 2 {
            return Ok(());
        }
        if still == 0 {
            if Instant::now() >= deadline {
                let message = "processes keep letting each other continue, or do not stop";
                return Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
            sleep(SHORT);
        }
    }
}
