//! Child processes of this program at its end.

use std::{sync::mpsc, thread, time::Duration};

use rustix::{
    io::Errno,
    process::{Pid, Signal, WaitOptions, kill_process, wait},
};

/// Children get this long to clean up after the last sandbox is gone.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Waits up to two seconds until all child processes have ended.
pub fn wait_for_children() {
    // An error means that there are no children.
    if !matches!(wait(WaitOptions::NOHANG), Ok(_) | Err(Errno::INTR)) {
        return;
    }
    // The system call has no time limit, so another thread makes it.
    let (waiting, done) = mpsc::channel::<()>();
    let waiter = thread::Builder::new().spawn(move || {
        while matches!(wait(WaitOptions::empty()), Ok(_) | Err(Errno::INTR)) {}
        drop(waiting);
    });
    if waiter.is_ok() {
        let _ = done.recv_timeout(TIMEOUT);
    }
}

/// Sends SIGTERM to all child processes.
pub fn terminate_children() {
    // Any thread may have started them.
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    for thread in threads {
        let children = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        let pids = children.split_whitespace().filter_map(|word| word.parse().ok());
        for pid in pids.filter_map(Pid::from_raw) {
            // It may be gone already.
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}
