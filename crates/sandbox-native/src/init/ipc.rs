//! Frees memory that outlives the processes that took it: System V shared memory and message queues.
//!
//! They count against the memory limit but belong to no process, so the kernel would kill every later command in vain.
//! Semaphores are kept: they are small, and nothing tells whether a process still needs them.

use std::fs;

use crate::sys::{self, IpcKind};

/// Queues that hold less than this share of the memory limit are kept, unless memory is full without them.
const QUEUE_SHARE: u64 = 8;
/// Memory that a queue and a message take besides its bytes.
const PER_QUEUE: u64 = 512;
const PER_MESSAGE: u64 = 64;

/// Frees memory after the kernel has killed a process for the lack of it. Removes shared memory that no process is attached
/// to, if memory is full. Removes message queues only if it still is then, or if they hold a large part of it: a process may
/// need one without being seen to use it.
pub(crate) fn free_memory(limit: u64, is_full: impl Fn() -> bool) {
    if is_full() {
        remove(IpcKind::SharedMemory, &list("/proc/sysvipc/shm"));
    }
    let queues = list("/proc/sysvipc/msg");
    if is_full() || held_by(&queues) > limit / QUEUE_SHARE {
        remove(IpcKind::Queue, &queues);
    }
}

fn list(file: &str) -> String {
    fs::read_to_string(file).unwrap_or_default()
}

fn remove(kind: IpcKind, list: &str) {
    for id in list.lines().skip(1).filter_map(|line| removable(kind, line)) {
        sys::remove_ipc(kind, id);
    }
}

/// Bytes of memory that the queues of a list hold.
fn held_by(queues: &str) -> u64 {
    let held = queues.lines().skip(1).map(|line| {
        // After key, number and permissions: bytes and messages.
        let mut fields = line.split_whitespace().skip(3).map(|field| field.parse().unwrap_or(0));
        let (bytes, messages): (u64, u64) =
            (fields.next().unwrap_or(0), fields.next().unwrap_or(0));
        bytes.saturating_add(messages.saturating_mul(PER_MESSAGE)).saturating_add(PER_QUEUE)
    });
    held.fold(0, u64::saturating_add)
}

/// The number in a line of such a list, unless it is of shared memory in use.
fn removable(kind: IpcKind, line: &str) -> Option<i32> {
    let mut fields = line.split_whitespace().skip(1);
    let id = fields.next()?.parse().ok()?;
    match kind {
        // After permissions, size, creator and last user.
        IpcKind::SharedMemory => (fields.nth(4)? == "0").then_some(id),
        IpcKind::Queue => Some(id),
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

    #[test]
    fn queues_are_weighed_by_what_they_hold() {
        let list = "key msqid perms cbytes qnum lspid\n 0 3 600 16000 8 11\n 0 4 600 0 0 0\n";
        assert_eq!(held_by(list), 16000 + 8 * PER_MESSAGE + 2 * PER_QUEUE);
        assert_eq!(held_by(""), 0);
    }
}
