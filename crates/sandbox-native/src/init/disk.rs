//! How much the sandbox has written, and whether that is too much.
//!
//! Ordinary file systems offer no limit for a directory, so the written files are measured while
//! commands run. Measuring is rationed to a twentieth of the time. A single file cannot pass the limit
//! at all: every command's largest file size is set to it.

use std::{
    collections::HashSet,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, statat},
    io::Errno,
};

/// Deeper trees count as a violation: nobody needs them, and walking them takes a descriptor a level.
pub(crate) const DEEPEST: usize = 500;
/// What an entry costs besides its blocks.
const PER_ENTRY: u64 = 256;
const FIRST_LOOK: Duration = Duration::from_millis(20);
const NEXT_LOOK: Duration = Duration::from_millis(50);
const RATION: u32 = 20;

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
            Check::AtEnd => start.duration_since(self.looked) >= self.cost * RATION,
        };
        if !ready {
            return check == Check::AtEnd && self.used >= limit && self.used > self.baseline;
        }
        self.used = used_by(uppers);
        self.looked = Instant::now();
        self.cost = self.looked - start;
        self.due = self.looked + NEXT_LOOK.max(self.cost * RATION);
        self.used >= limit && self.used > self.baseline
    }
}

fn used_by(dirs: &[OwnedFd]) -> u64 {
    let mut linked = HashSet::new();
    dirs.iter().map(|dir| measure(dir.as_fd(), 0, &mut linked)).fold(0, u64::saturating_add)
}

fn measure(dir: BorrowedFd<'_>, depth: usize, linked: &mut HashSet<u64>) -> u64 {
    if depth > DEEPEST {
        return u64::MAX;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = openat(dir, ".", flags, Mode::empty()).and_then(Dir::new);
    let Ok(mut entries) = opened else { return 0 };
    let mut sum = 0u64;
    while let Some(Ok(entry)) = entries.read() {
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let Ok(stat) = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind != FileType::Directory && stat.st_nlink > 1 && !linked.insert(stat.st_ino) {
            continue;
        }
        sum = sum.saturating_add(stat.st_blocks as u64 * 512 + PER_ENTRY);
        if kind == FileType::Directory {
            match openat(dir, name, flags, Mode::empty()) {
                Ok(inner) => sum = sum.saturating_add(measure(inner.as_fd(), depth + 1, linked)),
                Err(Errno::MFILE | Errno::NFILE) => return u64::MAX,
                Err(_) => {}
            }
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn counts_blocks_once_and_notices_depth() {
        let top = tempfile::tempdir().unwrap();
        fs::write(top.path().join("a"), vec![1u8; 1 << 20]).unwrap();
        fs::hard_link(top.path().join("a"), top.path().join("b")).unwrap();
        let open = || vec![OwnedFd::from(fs::File::open(top.path()).unwrap())];
        let used = used_by(&open());
        assert!((1 << 20..2 << 20).contains(&used), "{used}");
        let deep = top.path().join("d/".repeat(DEEPEST + 2));
        fs::create_dir_all(deep).unwrap();
        assert_eq!(used_by(&open()), u64::MAX);
    }

    #[test]
    fn only_growth_past_the_limit_is_a_violation() {
        let top = tempfile::tempdir().unwrap();
        let open = || vec![OwnedFd::from(fs::File::open(top.path()).unwrap())];
        let mut watch = DiskWatch::new(Some(1 << 20));
        watch.begin();
        assert!(!watch.over(&open(), Check::AtEnd));
        fs::write(top.path().join("a"), vec![1u8; 2 << 20]).unwrap();
        std::thread::sleep(FIRST_LOOK);
        assert!(watch.over(&open(), Check::WhenDue));
        watch.begin();
        std::thread::sleep(FIRST_LOOK);
        assert!(!watch.over(&open(), Check::WhenDue), "already full before this command");
        fs::write(top.path().join("b"), "more").unwrap();
        std::thread::sleep(watch.due_in().unwrap());
        assert!(watch.over(&open(), Check::WhenDue));
    }
}
