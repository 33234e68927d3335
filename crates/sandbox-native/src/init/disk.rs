//! Enforces the disk limit by measuring what the sandbox has written.
//!
//! Most file systems offer no quota for a directory, so the written files are measured while anything runs, including
//! deleted files that are still open. Measuring takes at most a twentieth of the time. A single file cannot pass the
//! limit at all: it is also the limit on the file size of every command.

use std::{
    collections::HashSet,
    ffi::CString,
    fs,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    time::{Duration, Instant},
};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, statat};

use super::processes;

/// Bytes charged for an entry besides its blocks.
const PER_ENTRY: u64 = 256;
/// More entries than this count as a violation: they would take too long to measure.
const MAX_ENTRIES: u64 = 2_000_000;
/// Stands for the size of more entries than that.
const UNKNOWN: u64 = u64::MAX / 2;
const FIRST_CHECK: Duration = Duration::from_millis(20);
const MIN_INTERVAL: Duration = Duration::from_millis(50);
const COST_FACTOR: u32 = 20;
/// Longest pause between measurements: on a busy machine a measurement takes longer than its work.
const MAX_INTERVAL: Duration = Duration::from_millis(500);
/// A measurement this quick is always done at the end of a command.
const CHEAP: Duration = Duration::from_millis(50);
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

pub(crate) struct DiskWatch {
    limit: Option<u64>,
    /// Use when the running command started: a command that does not add to it is not to blame.
    baseline: u64,
    used: u64,
    due: Instant,
    looked: Instant,
    cost: Duration,
}

/// When to measure.
#[derive(PartialEq, Eq)]
pub(crate) enum Check {
    /// If the next measurement is due.
    WhenDue,
    /// Now: the kernel stopped a command at the limit on file size.
    Now,
    /// At the end of a command: now, unless measuring is expensive and was just done.
    AtEnd,
}

impl DiskWatch {
    pub(crate) fn new(limit: Option<u64>) -> Self {
        let now = Instant::now();
        Self { limit, baseline: 0, used: 0, due: now, looked: now, cost: Duration::ZERO }
    }

    /// Notes the start of a command.
    pub(crate) fn begin(&mut self) {
        self.baseline = self.used;
        let now = Instant::now();
        let first = now + FIRST_CHECK;
        // A measurement that is due soon is not put off: a writer in the background must not profit from short commands.
        self.due = if self.due > now { self.due.min(first) } else { first };
    }

    /// Time until the next measurement; `None` without a limit.
    pub(crate) fn due_in(&self) -> Option<Duration> {
        self.limit.map(|_| self.due.saturating_duration_since(Instant::now()))
    }

    /// Measures if it is time, and returns whether the limit was passed since the command started.
    pub(crate) fn over(&mut self, uppers: &[OwnedFd], check: Check) -> bool {
        self.is_over(|| used_by(uppers), check)
    }

    /// Bytes written, measured now unless that is expensive and was just done; `None` if there are too many files to
    /// measure.
    pub(crate) fn used(&mut self, uppers: &[OwnedFd]) -> Option<u64> {
        let now = Instant::now();
        if self.is_affordable(now) {
            self.measure(|| used_by(uppers), now);
        }
        (self.used < UNKNOWN).then_some(self.used)
    }

    fn is_affordable(&self, now: Instant) -> bool {
        self.cost < CHEAP || now.duration_since(self.looked) >= self.cost * COST_FACTOR
    }

    fn measure(&mut self, measure: impl FnOnce() -> u64, start: Instant) {
        self.used = measure();
        self.looked = Instant::now();
        self.cost = self.looked - start;
        self.due = self.looked + (self.cost * COST_FACTOR).clamp(MIN_INTERVAL, MAX_INTERVAL);
    }

    fn is_over(&mut self, measure: impl FnOnce() -> u64, check: Check) -> bool {
        let Some(limit) = self.limit else { return false };
        let start = Instant::now();
        let ready = match check {
            Check::WhenDue => start >= self.due,
            Check::Now => true,
            Check::AtEnd => self.is_affordable(start),
        };
        if ready {
            let due = self.due;
            self.measure(measure, start);
            if check == Check::AtEnd {
                self.due = self.due.min(due);
            }
        }
        (ready || check == Check::AtEnd) && self.used >= limit && self.used > self.baseline
    }
}

fn used_by(dirs: &[OwnedFd]) -> u64 {
    let mut sum = Sum::default();
    for dir in dirs {
        sum.add_tree(dir);
    }
    sum.add_deleted();
    if sum.entries > MAX_ENTRIES { UNKNOWN } else { sum.bytes }
}

#[derive(Default)]
struct Sum {
    bytes: u64,
    entries: u64,
    /// Inodes of counted files with several links.
    linked: HashSet<u64>,
}

impl Sum {
    /// Adds a tree of any depth, with one open directory at a time.
    ///
    /// The way up is `..`, which cannot leave the tree because it is its own mount. A directory that is moved meanwhile
    /// makes this one sum wrong, nothing more.
    fn add_tree(&mut self, top: &OwnedFd) {
        let Ok(mut here) = openat(top, ".", DIRECTORY, Mode::empty()) else { return };
        let mut pending: Vec<Vec<CString>> = vec![self.add_directory(&here)];
        while let Some(names) = pending.last_mut() {
            let next = match names.pop() {
                Some(name) => openat(&here, name.as_c_str(), DIRECTORY, Mode::empty()),
                None => {
                    pending.pop();
                    if pending.is_empty() {
                        return;
                    }
                    match openat(&here, "..", DIRECTORY, Mode::empty()) {
                        Ok(above) => here = above,
                        Err(_) => return,
                    }
                    continue;
                }
            };
            if let Ok(inner) = next {
                here = inner;
                let names = self.add_directory(&here);
                pending.push(names);
            }
        }
    }

    /// Adds the entries of a directory; returns the directories among them.
    fn add_directory(&mut self, dir: &OwnedFd) -> Vec<CString> {
        let mut directories = Vec::new();
        let opened = openat(dir, ".", DIRECTORY, Mode::empty()).and_then(Dir::new);
        let Ok(mut entries) = opened else { return directories };
        while let Some(Ok(entry)) = entries.read() {
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            self.entries += 1;
            if self.entries > MAX_ENTRIES {
                return Vec::new();
            }
            let Ok(stat) = statat(dir.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let is_dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            if is_dir || stat.st_nlink == 1 || self.linked.insert(stat.st_ino) {
                self.bytes = self.bytes.saturating_add(stat.st_blocks as u64 * 512 + PER_ENTRY);
            }
            if is_dir {
                directories.push(name.to_owned());
            }
        }
        directories
    }

    /// Adds deleted files that are still open.
    fn add_deleted(&mut self) {
        let mut seen = HashSet::new();
        let others = processes::numbers().into_iter().filter(|pid| *pid != 1);
        for file in others.flat_map(processes::open_files) {
            self.entries += 1;
            if self.entries > MAX_ENTRIES {
                return;
            }
            let Ok(meta) = fs::metadata(&file) else { continue };
            if !meta.is_file() || meta.nlink() != 0 || !seen.insert((meta.dev(), meta.ino())) {
                continue;
            }
            // Files in memory count as memory.
            let target = fs::read_link(&file).unwrap_or_default();
            if !target.starts_with("/dev") && !target.to_string_lossy().starts_with("/memfd:") {
                self.bytes = self.bytes.saturating_add(meta.blocks() * 512);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(dir: &tempfile::TempDir) -> Vec<OwnedFd> {
        vec![OwnedFd::from(fs::File::open(dir.path()).unwrap())]
    }

    fn tree_bytes(dir: &tempfile::TempDir) -> u64 {
        let mut sum = Sum::default();
        sum.add_tree(&open(dir)[0]);
        sum.bytes
    }

    #[test]
    fn counts_blocks_once_at_any_depth() {
        let top = tempfile::tempdir().unwrap();
        fs::write(top.path().join("a"), vec![1u8; 1 << 20]).unwrap();
        fs::hard_link(top.path().join("a"), top.path().join("b")).unwrap();
        let used = tree_bytes(&top);
        assert!((1 << 20..2 << 20).contains(&used), "{used}");
        let deep = top.path().join("d/".repeat(1500));
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("f"), vec![1u8; 1 << 20]).unwrap();
        fs::write(top.path().join("z"), vec![1u8; 1 << 20]).unwrap();
        assert!(tree_bytes(&top) > 3 << 20);
    }

    #[test]
    fn only_growth_past_the_limit_is_a_violation() {
        let mut watch = DiskWatch::new(Some(100));
        watch.begin();
        assert!(!watch.is_over(|| 99, Check::Now));
        assert!(watch.is_over(|| 100, Check::Now));
        watch.begin();
        assert!(!watch.is_over(|| 100, Check::Now), "already full before this command");
        assert!(!watch.is_over(|| 90, Check::Now), "files may be removed");
        assert!(watch.is_over(|| 101, Check::Now));
        assert!(!DiskWatch::new(None).is_over(|| u64::MAX, Check::Now));
    }

    #[test]
    fn measuring_is_rationed() {
        let mut watch = DiskWatch::new(Some(100));
        watch.begin();
        watch.due = Instant::now() + Duration::from_secs(3600);
        assert!(!watch.is_over(|| panic!("not due yet"), Check::WhenDue));
        watch.due = Instant::now();
        assert!(watch.is_over(|| 200, Check::WhenDue));
        assert!(watch.due >= watch.looked + MIN_INTERVAL);
        // Right after an expensive measurement its result is used once more.
        watch.cost = CHEAP * 100;
        assert!(watch.is_over(|| panic!("just measured"), Check::AtEnd));
    }
}
