//! Makes every file of the sandbox read-only.
//!
//! All mounts become read-only in one step, or none: the kernel refuses while a process has a file open for writing.
//! Nothing inside can undo it, for lack of the capability and because of the system call filter.

use std::{collections::HashSet, io, time::Duration};

use super::{
    Server,
    processes::{self, Scope},
    sleep,
};
use crate::mounts;

/// Tries while processes that are exiting still have files open.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(2);

impl Server<'_> {
    /// Makes every file read-only. Kills processes that prevent it, the shell last.
    pub(super) fn freeze(&mut self) -> io::Result<()> {
        if attempt()? == Frozen::Yes {
            return Ok(());
        }
        self.workers.let_go();
        let frozen = self.kill_and_freeze();
        self.workers.hold_again();
        frozen
    }

    fn kill_and_freeze(&mut self) -> io::Result<()> {
        for id in self.programs.ids() {
            self.kill(id, None)?;
        }
        let workers = self.workers.pids();
        let mut spared: HashSet<i32> = workers.iter().copied().collect();
        spared.extend(self.shell.processes());
        processes::kill(Scope::AllBut(&spared), self.workers.stopping());
        if attempt()? == Frozen::Yes {
            return Ok(());
        }
        let workers = workers.into_iter().collect();
        processes::kill(Scope::AllBut(&workers), self.workers.stopping());
        self.shell.give_up();
        match attempt()? {
            Frozen::Yes => Ok(()),
            Frozen::Busy => Err(io::Error::from_raw_os_error(libc::EBUSY)),
        }
    }
}

#[derive(PartialEq, Eq)]
enum Frozen {
    Yes,
    /// A process has a file open for writing.
    Busy,
}

fn attempt() -> io::Result<Frozen> {
    for _ in 0..TRIES {
        match mounts::freeze() {
            Ok(()) => return Ok(Frozen::Yes),
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => sleep(PAUSE),
            Err(error) => return Err(error),
        }
    }
    Ok(Frozen::Busy)
}
