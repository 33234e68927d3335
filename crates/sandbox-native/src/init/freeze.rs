//! Taking the right to write away from everything in the sandbox.
//!
//! All mounts become read-only in one step, or none does: the kernel refuses while anybody has a file open
//! for writing. Nobody inside can undo it, for lack of the capability and by the system call filter.

use std::{collections::HashSet, io, time::Duration};

use super::{Server, nap, processes};
use crate::mounts;

/// How often to try while processes that are ending still hold files.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(2);

impl Server<'_> {
    /// Makes every file read-only. Where writers stand in the way they end, the shell last.
    pub(super) fn freeze(&mut self) -> io::Result<()> {
        if attempt()? == Frozen::Yes {
            return Ok(());
        }
        for id in self.programs.ids() {
            self.kill(id, None)?;
        }
        let workers = self.workers.pids();
        let mut spared: HashSet<i32> = workers.iter().copied().collect();
        spared.extend(self.shell.processes());
        processes::kill_all_but(&spared, processes::Family::Not);
        if attempt()? == Frozen::Yes {
            return Ok(());
        }
        processes::kill_all_but(&workers.into_iter().collect(), processes::Family::Not);
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
    /// Somebody has a file open for writing.
    Busy,
}

fn attempt() -> io::Result<Frozen> {
    for _ in 0..TRIES {
        match mounts::freeze() {
            Ok(()) => return Ok(Frozen::Yes),
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => nap(PAUSE),
            Err(error) => return Err(error),
        }
    }
    Ok(Frozen::Busy)
}
