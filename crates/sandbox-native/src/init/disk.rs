//! How much the sandbox has written, and whether that is too much.
//!
//! Ordinary file systems offer no limit for a directory, so the written files are measured while
//! anything runs, deleted files that processes keep open included. Measuring is rationed to a twentieth
//! of the time. A single file cannot pass the limit at all: every command's largest file size is set to it.

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

/// What an entry costs besides its blocks.
const PER_ENTRY: u64 = 256;
/// More entries than this count as a violation: they would take too long to measure.
const MOST_ENTRIES: u64 = 2_000_000;
const FIRST_LOOK: Duration = Duration::from_millis(20);
const NEXT_LOOK: Duration = Duration::from_millis(50);
const RATION: u32 = 20;
/// Under load the cost says little about the work.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// Measuring that is this quick needs no rationing at the end of a command.
const CHEAP: Duration = Duration::from_millis(50);
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

pub(crate) struct DiskWatch {
    limit: Option<u64>,
    /// What was in use when the running command started; removing files must stay possible.
    baseline: u64,
    used: u64,
    due: Instant,
    looked: Instant,
    cost: Duration,
}

/// When to measure.
#[derive(PartialEq, Eq)]
pub(crate) enum Check {
    /// If it is time.
    WhenDue,
    /// Now: the kernel stopped a command at its largest file size.
    Now,
    /// A command has ended: now, unless measuring takes so long that it was done a moment ago.
    AtEnd,
}

impl DiskWatch {
    pub(crate) fn new(limit: Option<u64>) -> Self {
        let now = Instant::now();
        Self { limit, baseline: 0, used: 0, due: now, looked: now, cost: Duration::ZERO }
    }

    /// A command starts.
    pub(crate) fn begin(&mut self) {
        self.baseline = self.used;
        self.due = Instant::now() + FIRST_LOOK;
    }

    /// How long until the next measurement, if there is anything to enforce.
    pub(crate) fn due_in(&self) -> Option<Duration> {
        self.limit.map(|_| self.due.saturating_duration_since(Instant::now()))
    }

    /// Measures if it is time, and answers whether the limit was passed since the command started.
    pub(crate) fn over(&mut self, uppers: &[OwnedFd], check: Check) -> bool {
        let Some(limit) = self.limit else { return false };
        let start = Instant::now();
        let ready = match check {
            Check::WhenDue => start >= self.due,
            Check::Now => true,
            Check::AtEnd => {
                self.cost < CHEAP || start.duration_since(self.looked) >= self.cost * RATION
            }
        };
        if ready {
            self.used = used_by(uppers);
            self.looked = Instant::now();
            self.cost = self.looked - start;
            self.due = self.looked + (self.cost * RATION).clamp(NEXT_LOOK, LONGEST_PAUSE);
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
    if sum.entries > MOST_ENTRIES { u64::MAX / 2 } else { sum.bytes }
}

#[derive(Default)]
struct Sum {
    bytes: u64,
    entries: u64,
    /// Files with several names count once.
    linked: HashSet<u64>,
}

impl Sum {
    /// Adds a tree of any depth, with one open directory at a time.
    ///
    /// The way up is `..`, which cannot leave the tree: it is a mount of its own. A directory moved
    /// meanwhile makes the sum wrong for once, and nothing worse.
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

    /// Adds what a directory holds; answers the directories in it.
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
            if self.entries > MOST_ENTRIES {
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

    /// Adds files that have no name any more but are still open.
    fn add_deleted(&mut self) {
        let mut seen = HashSet::new();
        for pid in super::processes::numbers().into_iter().filter(|pid| *pid != 1) {
            for fd in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
                self.entries += 1;
                let Ok(meta) = fs::metadata(fd.path()) else { continue };
                if !meta.is_file() || meta.nlink() != 0 || !seen.insert((meta.dev(), meta.ino())) {
                    continue;
                }
                // Files in memory are the memory limit's business.
                let target = fs::read_link(fd.path()).unwrap_or_default();
                if !target.starts_with("/dev") && !target.to_string_lossy().starts_with("/memfd:") {
                    self.bytes = self.bytes.saturating_add(meta.blocks() * 512);
                }
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
        let top = tempfile::tempdir().unwrap();
        let mut watch = DiskWatch::new(Some(1 << 40));
        watch.begin();
        assert!(!watch.over(&open(&top), Check::AtEnd));
        // Other processes' deleted files count as well, so the limit is set above what they hold.
        std::thread::sleep(watch.cost * RATION);
        watch.limit = Some(used_by(&open(&top)) + (1 << 20));
        watch.begin();
        fs::write(top.path().join("a"), vec![1u8; 2 << 20]).unwrap();
        std::thread::sleep(FIRST_LOOK);
        assert!(watch.over(&open(&top), Check::WhenDue));
        watch.begin();
        std::thread::sleep(FIRST_LOOK);
        assert!(!watch.over(&open(&top), Check::WhenDue), "already full before this command");
        fs::write(top.path().join("b"), vec![1u8; 1 << 20]).unwrap();
        std::thread::sleep(watch.due_in().unwrap());
        assert!(watch.over(&open(&top), Check::WhenDue));
    }
}
