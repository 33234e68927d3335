//! The audit log: a JSON line for each request that changes something or is refused.
//!
//! Lines are written by a thread of their own and dropped where it cannot follow: neither a slow nor a full disk delays a
//! request. What was lost is counted, logged, and said by the readiness check.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use serde::Serialize;

/// The file in the data directory.
const FILE: &str = "audit.jsonl";
/// How many older files are kept, as `audit.jsonl.1` (the newest) and so on.
const OLDER: u32 = 4;
/// Lines that wait for the disk.
const WAITING: usize = 4096;
/// How long the last lines may take.
const CLOSING: Duration = Duration::from_secs(5);
/// Bytes of one file by default; with the older ones at most 320 MiB.
pub(crate) const FILE_BYTES: u64 = 64 << 20;

/// One line.
#[derive(Debug, Serialize)]
pub(crate) struct Entry {
    pub(crate) time: String,
    pub(crate) request: String,
    /// The name of the token; absent where no key was accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client: Option<String>,
    pub(crate) method: String,
    /// Without the query, which may have a signature.
    pub(crate) path: String,
    pub(crate) status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sandbox: Option<String>,
    pub(crate) seconds: f64,
    /// How many refused requests before this one have no line, as there were too many in a second.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) skipped: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The log.
#[derive(Debug)]
pub(crate) struct Audit {
    /// `None` once it is closed.
    lines: Mutex<Option<mpsc::SyncSender<Entry>>>,
    writer: thread::JoinHandle<()>,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    lost: AtomicU64,
    /// The last line could not be written.
    failing: AtomicBool,
    skipped: AtomicU64,
    refused: Mutex<Refused>,
}

/// Lines for refused requests, by token (`None`: no valid key): a bounded number of each in a second, so that nobody can
/// push the lines of others out with them.
#[derive(Debug, Default)]
struct Refused {
    since: Option<Instant>,
    lines: BTreeMap<Option<String>, u32>,
}

/// Lines in a second for refused requests with one token, and for those without a valid key.
const REFUSED_PER_SECOND: u32 = 10;

impl Refused {
    fn admit(&mut self, token: Option<&str>, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        if now.duration_since(since) >= Duration::from_secs(1) {
            self.since = Some(now);
            self.lines.clear();
        }
        let lines = self.lines.entry(token.map(str::to_owned)).or_default();
        *lines = lines.saturating_add(1);
        *lines <= REFUSED_PER_SECOND
    }
}

impl Audit {
    /// Opens the log in a directory, and rotates it whenever a file has `file_bytes`.
    pub(crate) fn open(directory: &Path, file_bytes: u64) -> io::Result<Self> {
        let mut writer = Writer::open(directory.join(FILE), file_bytes)?;
        let (lines, waiting) = mpsc::sync_channel::<Entry>(WAITING);
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        let writer = thread::Builder::new().name("audit".into()).spawn(move || {
            for entry in waiting {
                shared.note(writer.write(&entry));
            }
        })?;
        Ok(Self { lines: Mutex::new(Some(lines)), writer, state })
    }

    /// Writes a line soon, or counts it as lost.
    pub(crate) fn record(&self, mut entry: Entry) {
        // A client that left may have changed something.
        let refused = (400..499).contains(&entry.status);
        let token = entry.token.as_deref();
        if (refused || token.is_none()) && !self.state.refused().admit(token, Instant::now()) {
            self.state.skipped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        entry.skipped = self.state.skipped.swap(0, Ordering::Relaxed);
        let sent = match &*self.lines() {
            Some(lines) => lines.try_send(entry).is_ok(),
            None => false,
        };
        if !sent {
            self.state.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn lines(&self) -> MutexGuard<'_, Option<mpsc::SyncSender<Entry>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what waits, and nothing more. A disk that hangs is waited for in bounded time.
    pub(crate) async fn close(&self) {
        self.lines().take();
        let begun = Instant::now();
        while !self.writer.is_finished() {
            if begun.elapsed() > CLOSING {
                tracing::error!("the last lines of the audit log could not be written in time");
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Lines that were lost.
    pub(crate) fn lost(&self) -> u64 {
        self.state.lost.load(Ordering::Relaxed)
    }

    /// Whether lines cannot be written now.
    pub(crate) fn is_failing(&self) -> bool {
        self.state.failing.load(Ordering::Relaxed)
    }
}

impl State {
    fn refused(&self) -> MutexGuard<'_, Refused> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, written: io::Result<()>) {
        let failing = written.is_err();
        let was_failing = self.failing.swap(failing, Ordering::Relaxed);
        match written {
            Err(error) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
                // Once, not for each line.
                if !was_failing {
                    tracing::error!("the audit log cannot be written: {error}");
                }
            }
            Ok(()) if was_failing => {
                let lost = self.lost.load(Ordering::Relaxed);
                tracing::warn!("the audit log is written again; {lost} lines were lost");
            }
            Ok(()) => {}
        }
    }
}

struct Writer {
    path: PathBuf,
    file: File,
    length: u64,
    file_bytes: u64,
    /// A line was written in part.
    torn: bool,
}

impl Writer {
    fn open(path: PathBuf, file_bytes: u64) -> io::Result<Self> {
        let file = open(&path)?;
        let length = file.metadata()?.len();
        // As an earlier server left it.
        let torn = match length.checked_sub(1) {
            Some(last) => {
                let mut byte = [b'\n'];
                file.read_at(&mut byte, last)?;
                byte != [b'\n']
            }
            None => false,
        };
        Ok(Self { path, file, length, file_bytes, torn })
    }

    fn write(&mut self, entry: &Entry) -> io::Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        if self.length > 0 && self.length + line.len() as u64 > self.file_bytes {
            self.rotate()?;
        }
        if self.torn {
            // A part of a line must not make the next one unreadable.
            line.insert(0, b'\n');
        }
        let written = self.file.write_all(&line);
        self.torn = written.is_err();
        if written.is_ok() {
            self.length += line.len() as u64;
        }
        written
    }

    /// Renames the files, so that the oldest is gone and the newest is empty.
    fn rotate(&mut self) -> io::Result<()> {
        let older = |number: u32| {
            let mut name = self.path.clone().into_os_string();
            name.push(format!(".{number}"));
            PathBuf::from(name)
        };
        let rename = |from: &Path, to: &Path| match fs::rename(from, to) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
        // Where it is gone, as somebody else has moved it or the last rotation did not end, the older ones must not move
        // up: each attempt would lose one of them.
        if self.path.symlink_metadata().is_ok() {
            for number in (1..OLDER).rev() {
                rename(&older(number), &older(number + 1))?;
            }
            rename(&self.path, &older(1))?;
        }
        self.file = open(&self.path)?;
        (self.length, self.torn) = (0, false);
        Ok(())
    }
}

/// For appending and for its last byte, accessible to this user alone.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).read(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str) -> Entry {
        Entry {
            time: "2026-01-01T00:00:00Z".into(),
            request: "r".into(),
            token: Some("alice".into()),
            client: None,
            method: "POST".into(),
            path: path.into(),
            status: 201,
            sandbox: None,
            seconds: 0.25,
            skipped: 0,
        }
    }

    #[test]
    fn files_rotate_and_stay_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        let mut writer = Writer::open(path.clone(), 1000).unwrap();
        for number in 0..200 {
            writer.write(&entry(&format!("/x/{number}"))).unwrap();
        }
        let mut names: Vec<_> = fs::read_dir(directory.path())
            .unwrap()
            .map(|file| file.unwrap())
            .map(|file| (file.file_name().into_string().unwrap(), file.metadata().unwrap().len()))
            .collect();
        names.sort();
        assert_eq!(names.len(), 1 + OLDER as usize, "{names:?}");
        assert!(names.iter().all(|(_, length)| *length <= 1000), "{names:?}");
        let last = fs::read_to_string(&path).unwrap();
        let last: serde_json::Value = serde_json::from_str(last.lines().last().unwrap()).unwrap();
        assert_eq!(last["path"], "/x/199");
        // What is there is continued.
        let length = fs::metadata(&path).unwrap().len();
        assert_eq!(Writer::open(path, 1000).unwrap().length, length);
    }

    #[test]
    fn a_file_that_is_gone_is_made_again_and_the_older_ones_stay() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        let older = directory.path().join(format!("{FILE}.1"));
        fs::write(&older, "history").unwrap();
        let mut writer = Writer::open(path.clone(), 300).unwrap();
        writer.write(&entry("/first")).unwrap();
        fs::remove_file(&path).unwrap();
        for number in 0..3 {
            writer.write(&entry(&format!("/x/{number}"))).unwrap();
        }
        assert!(fs::read_to_string(&path).unwrap().contains("/x/2"));
        let all: String = fs::read_dir(directory.path())
            .unwrap()
            .map(|file| fs::read_to_string(file.unwrap().path()).unwrap())
            .collect();
        assert!(all.contains("history"), "{all}");
    }

    #[test]
    fn a_torn_line_of_an_earlier_server_does_not_spoil_the_next() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        fs::write(&path, "{\"path\"").unwrap();
        let mut writer = Writer::open(path.clone(), FILE_BYTES).unwrap();
        writer.write(&entry("/x")).unwrap();
        writer.write(&entry("/y")).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let paths: Vec<_> = text.lines().map(serde_json::from_str::<serde_json::Value>).collect();
        assert_eq!(paths.iter().filter(|line| line.is_ok()).count(), 2, "{text}");
    }

    #[test]
    fn refused_requests_do_not_push_others_out() {
        let mut refused = Refused::default();
        let now = Instant::now();
        for token in [None, Some("alice")] {
            let admitted = (0..1000).filter(|_| refused.admit(token, now)).count();
            assert_eq!(admitted, REFUSED_PER_SECOND as usize);
        }
        assert!(refused.admit(Some("bob"), now));
        assert!(refused.admit(None, now + Duration::from_secs(1)));
    }

    #[tokio::test]
    async fn what_waits_is_written_before_the_log_is_closed() {
        let directory = tempfile::tempdir().unwrap();
        let audit = Audit::open(directory.path(), FILE_BYTES).unwrap();
        for number in 0..1000 {
            audit.record(entry(&format!("/x/{number}")));
        }
        audit.close().await;
        let lines = fs::read_to_string(directory.path().join(FILE)).unwrap().lines().count();
        assert_eq!((lines, audit.lost()), (1000, 0));
        audit.record(entry("/late"));
        assert_eq!(audit.lost(), 1);
    }

    #[test]
    fn a_disk_that_fails_is_reported_and_blocks_nobody() {
        // Writing to this device fails as on a full disk.
        let directory = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/dev/full", directory.path().join(FILE)).unwrap();
        let audit = Audit::open(directory.path(), FILE_BYTES).unwrap();
        let begun = Instant::now();
        for _ in 0..3 {
            audit.record(entry("/x"));
        }
        while audit.lost() < 3 {
            assert!(begun.elapsed() < Duration::from_secs(5), "lost lines are not counted");
            thread::sleep(Duration::from_millis(1));
        }
        assert!(audit.is_failing());
    }
}
