//! The supervisor's log: a file of bounded size for people who look for the cause of a failure.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::{Mutex, PoisonError},
};

/// At this size the log starts again from nothing.
const MAX_SIZE: u64 = 256 << 10;
/// Longer lines are cut.
const MAX_LINE: usize = 2000;

/// The log. Failures to write are ignored: there is nowhere to report them.
#[derive(Debug)]
pub(crate) struct Log(Mutex<File>);

impl Log {
    /// Opens the log for appending.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.create(true).append(true).mode(0o600);
        options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32);
        options.open(path).map(|file| Self(Mutex::new(file)))
    }

    /// Appends a line with the time.
    pub(crate) fn line(&self, text: &str) {
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if file.metadata().is_ok_and(|about| about.len() > MAX_SIZE) {
            let _ = file.set_len(0);
        }
        let text: String = text.chars().take(MAX_LINE).flat_map(char::escape_debug).collect();
        let now = jiff::Timestamp::now();
        let _ = writeln!(file, "{now:.3} {} {text}", std::process::id());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_stays_small_and_a_line_is_a_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let log = Log::open(&path).unwrap();
        log.line("one\ntwo\x1b[0m");
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 1);
        for _ in 0..400 {
            log.line(&"x".repeat(5000));
        }
        let length = std::fs::metadata(&path).unwrap().len();
        assert!(length < MAX_SIZE + 3000 && length > 0, "{length}");
    }
}
