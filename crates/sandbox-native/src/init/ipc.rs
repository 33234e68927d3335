//! Frees memory that outlives the processes that took it: System V shared memory, message queues and semaphores.
//!
//! They count against the memory limit but belong to no process, so the kernel would kill every later command in vain.

use std::fs;

use crate::sys::{self, IpcKind};

/// Removes what no process is attached to; queues and semaphores, which cannot be attached to, in any case.
pub(crate) fn remove_unattached() {
    for (kind, list) in [
        (IpcKind::SharedMemory, "/proc/sysvipc/shm"),
        (IpcKind::Queue, "/proc/sysvipc/msg"),
        (IpcKind::Semaphores, "/proc/sysvipc/sem"),
    ] {
        let text = fs::read_to_string(list).unwrap_or_default();
        for id in text.lines().skip(1).filter_map(|line| removable(kind, line)) {
            sys::remove_ipc(kind, id);
        }
    }
}

/// The number in a line of such a list, unless it is of shared memory in use.
fn removable(kind: IpcKind, line: &str) -> Option<i32> {
    let mut fields = line.split_whitespace().skip(1);
    let id = fields.next()?.parse().ok()?;
    match kind {
        // After permissions, size, creator and last user.
        IpcKind::SharedMemory => (fields.nth(4)? == "0").then_some(id),
        IpcKind::Queue | IpcKind::Semaphores => Some(id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_in_use_is_kept() {
        let line = |attached: u32| {
            format!(
                "         0          7  1600               1048576 11 12 {attached:>6}     0     0"
            )
        };
        assert_eq!(removable(IpcKind::SharedMemory, &line(0)), Some(7));
        assert_eq!(removable(IpcKind::SharedMemory, &line(2)), None);
        assert_eq!(removable(IpcKind::Queue, "0 3 600 100"), Some(3));
        assert_eq!(removable(IpcKind::Queue, ""), None);
    }
}
