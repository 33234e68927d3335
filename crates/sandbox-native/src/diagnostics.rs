//! What the spawner and each PID 1 report about their own failures, and how it reaches the caller.
//!
//! The spawner writes lines to its standard error, a pipe that the caller reads. PID 1 has `/dev/null` there, because
//! commands inherit it; it sends its report over its socket, which no command can reach.

use std::{
    os::fd::{AsRawFd, BorrowedFd, RawFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI32, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader},
    task::JoinHandle,
    time::timeout,
};

use crate::{init::Reply, launch::Process, sys, wire};

/// Bytes of diagnostics that are kept, from the end.
const KEPT: usize = 4 << 10;
/// Longest line that is read at once.
const MAX_LINE: u64 = 4 << 10;
/// How long to wait for the last lines of a process that has just ended.
const LAST_LINES: Duration = Duration::from_millis(500);

const NO_SOCKET: RawFd = -1;
static SOCKET: AtomicI32 = AtomicI32::new(NO_SOCKET);

/// In PID 1 and its file workers: has later reports sent over this socket.
///
/// # Safety
/// The socket must stay open under this number until the process ends, or until [`report_nowhere`] is called.
pub(crate) unsafe fn report_over(socket: BorrowedFd<'_>) {
    SOCKET.store(socket.as_raw_fd(), Ordering::Relaxed);
}

/// In a child that is about to close the socket: drops later reports.
pub(crate) fn report_nowhere() {
    SOCKET.store(NO_SOCKET, Ordering::Relaxed);
}

/// In the spawner and its children: reports a failure that no reply carries. Never fails and never panics.
pub(crate) fn report(message: &str) {
    let line = message.replace('\n', " ");
    let _ = rustix::io::write(rustix::stdio::stderr(), format!("{line}\n").as_bytes());
    let socket = SOCKET.load(Ordering::Relaxed);
    if socket != NO_SOCKET {
        // SAFETY: `report_over` requires that the number stays that of the open socket for as long as it is stored.
        let socket = unsafe { BorrowedFd::borrow_raw(socket) };
        let _ = wire::send(socket, &Reply::Diagnostic(line), &[]);
    }
}

/// In the spawner: drops reports that the caller does not read, instead of waiting for it.
pub(crate) fn drop_unread_reports() {
    let stderr = rustix::stdio::stderr();
    if let Ok(flags) = rustix::fs::fcntl_getfl(stderr) {
        let _ = rustix::fs::fcntl_setfl(stderr, flags | rustix::fs::OFlags::NONBLOCK);
    }
}

/// In the spawner and its children: reports panics, and ends the process instead of unwinding. A forked child must
/// not unwind into code that believes to be its parent.
pub(crate) fn exit_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        report(&panic.to_string());
        sys::exit_now(101)
    }));
}

/// The last lines another process reported, in bounded memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogTail(Arc<Mutex<String>>);

impl LogTail {
    /// Adds a line. Control characters, which a terminal would act on, become spaces.
    pub(crate) fn push(&self, line: &str) {
        let mut text = self.lock();
        if !text.is_empty() {
            text.push_str("; ");
        }
        text.extend(line.chars().map(|c| if c.is_control() { ' ' } else { c }));
        let over = text.len().saturating_sub(KEPT);
        let cut = (over..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
        text.drain(..cut);
    }

    /// A message, followed by what was reported.
    pub(crate) fn explain(&self, message: &str) -> String {
        match self.lock().as_str() {
            "" => message.to_owned(),
            text => format!("{message}: {text}"),
        }
    }

    fn lock(&self) -> MutexGuard<'_, String> {
        // Nothing panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The spawner's process and what it wrote to its standard error.
pub(crate) struct SpawnerProcess {
    process: Process,
    log: LogTail,
    reader: Option<JoinHandle<()>>,
    /// Why it has ended, once known.
    reason: Option<String>,
}

impl SpawnerProcess {
    /// Starts reading the standard error of a process that was started with a pipe there.
    pub(crate) fn new(mut process: Process) -> Self {
        let log = LogTail::default();
        let reader = process.stderr().map(|pipe| tokio::spawn(read_lines(pipe, log.clone())));
        Self { process, log, reader, reason: None }
    }

    /// The end of what the spawner and new sandboxes wrote to standard error.
    pub(crate) fn log(&self) -> &LogTail {
        &self.log
    }

    /// Explains why the spawner has ended: its exit status and its last lines. Waits a moment for both.
    pub(crate) async fn explain(&mut self) -> String {
        if let Some(reason) = &self.reason {
            return reason.clone();
        }
        let status = timeout(LAST_LINES, self.process.wait()).await;
        // Children of the spawner may hold the pipe open.
        if let Some(reader) = &mut self.reader
            && timeout(LAST_LINES, reader).await.is_ok()
        {
            self.reader = None;
        }
        match status {
            Ok(Ok(status)) => {
                let ended = format!("the spawner process has ended ({status})");
                self.reason.insert(self.log.explain(&ended)).clone()
            }
            _ => self.log.explain("the spawner process does not answer"),
        }
    }
}

async fn read_lines(pipe: impl AsyncRead + Unpin, log: LogTail) {
    let mut pipe = BufReader::new(pipe);
    let mut line = Vec::new();
    loop {
        line.clear();
        // A line without an end must not fill the memory.
        match (&mut pipe).take(MAX_LINE).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                let line = String::from_utf8_lossy(&line);
                tracing::warn!(target: "sandbox_native::spawner", "{}", line.trim_end());
                log.push(line.trim_end());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Panics in a process of its own, as the spawner would.
    #[test]
    #[ignore = "started by a_panic_is_reported_and_ends_the_process"]
    fn panics_on_purpose() {
        exit_on_panic();
        panic!("on purpose,\nin two lines");
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the process that panics is this test's own")]
    fn a_panic_is_reported_and_ends_the_process() {
        let test = "diagnostics::tests::panics_on_purpose";
        let ended = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--ignored", "--nocapture"])
            .output()
            .unwrap();
        let reported = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(101), "{reported}");
        let line = reported.lines().find(|line| line.contains("on purpose, in two lines"));
        assert!(line.is_some_and(|line| line.contains("diagnostics.rs")), "{reported}");
    }

    #[test]
    fn reports_of_pid_1_travel_over_its_socket() {
        let (ours, theirs) = wire::pair().unwrap();
        // SAFETY: the socket is open until `report_nowhere` below. No other test of this process reports.
        unsafe { report_over(std::os::fd::AsFd::as_fd(&theirs)) };
        report("a failure");
        report_nowhere();
        let (reply, _) = wire::receive::<Reply>(std::os::fd::AsFd::as_fd(&ours)).unwrap().unwrap();
        assert!(matches!(reply, Reply::Diagnostic(text) if text == "a failure"));
    }

    #[test]
    fn only_the_end_of_a_long_log_is_kept() {
        let log = LogTail::default();
        assert_eq!(log.explain("it ended"), "it ended");
        (0..KEPT).for_each(|i| log.push(&format!("größe {i}")));
        let text = log.explain("it ended");
        assert!(text.len() < KEPT + 20 && text.ends_with(&format!("größe {}", KEPT - 1)));
    }
}
