//! One measurement of what a sandbox has written: its files, and deleted ones that a process still has open.
//!
//! A measurement goes on in slices, because a command can create millions of files and PID 1 has other things to do. It
//! takes bounded memory as well.

use std::{
    collections::HashSet,
    ffi::CString,
    fs,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    time::Instant,
};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, statat};

use crate::init::processes;

/// Bytes charged for an entry besides its blocks.
const PER_ENTRY: u64 = 256;
/// More entries than this count as a violation: they would take too long to measure.
const MAX_ENTRIES: u64 = 2_000_000;
/// Directories on the way to one, and their names, that take more memory than this count as a violation.
const MAX_PENDING: usize = 16 << 20;
/// Memory that a name takes besides its bytes.
const PER_NAME: usize = 48;
/// Memory that a level takes besides its names.
const PER_LEVEL: usize = 128;
/// Stands for the size of what is too much to measure.
pub(super) const UNKNOWN: u64 = u64::MAX / 2;
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Entries between two looks at the clock.
const BATCH: u32 = 64;

/// A measurement in progress.
pub(super) struct Walk {
    /// Trees that are not begun.
    trees: Vec<OwnedFd>,
    tree: Option<Tree>,
    /// Processes whose open files are not counted yet, once the trees are.
    processes: Option<Vec<i32>>,
    sum: Sum,
}

/// What a slice of a measurement led to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// There is more to count.
    Unfinished,
    /// The bytes in use.
    Finished(u64),
}

impl Walk {
    /// Begins to measure these trees. One that cannot be opened has nothing in it.
    pub(super) fn new(tops: &[OwnedFd]) -> Self {
        let open = |top: &OwnedFd| openat(top, ".", DIRECTORY, Mode::empty()).ok();
        let trees = tops.iter().rev().filter_map(open).collect();
        Self { trees, tree: None, processes: None, sum: Sum::default() }
    }

    /// Begins to measure these trees alone, without the files of processes.
    #[cfg(test)]
    pub(super) fn of_trees(tops: &[OwnedFd]) -> Self {
        Self { processes: Some(Vec::new()), ..Self::new(tops) }
    }

    /// Goes on until this moment, or to the end.
    pub(super) fn until(&mut self, end: Instant) -> Progress {
        loop {
            for _ in 0..BATCH {
                if !self.step() {
                    return Progress::Finished(self.sum.bytes);
                }
            }
            if Instant::now() >= end {
                return Progress::Unfinished;
            }
        }
    }

    /// Counts one thing; returns whether there was one.
    fn step(&mut self) -> bool {
        if self.sum.is_too_much() {
            self.sum.bytes = UNKNOWN;
            return false;
        }
        if let Some(tree) = &mut self.tree {
            if !tree.step(&mut self.sum) {
                self.tree = None;
            }
            return true;
        }
        if let Some(top) = self.trees.pop() {
            self.tree = Some(Tree::new(top));
            return true;
        }
        let list = || processes::numbers().into_iter().filter(|pid| *pid != 1).collect();
        match self.processes.get_or_insert_with(list).pop() {
            Some(pid) => {
                self.sum.add_deleted(pid);
                true
            }
            None => false,
        }
    }
}

/// A tree of any depth, counted with two open directories at a time.
///
/// The way up is `..`, which cannot leave the tree because it is its own mount. A directory that is moved meanwhile makes
/// this one sum wrong, nothing more.
struct Tree {
    here: OwnedFd,
    /// The entries of `here` that are not counted yet.
    entries: Option<Dir>,
    /// Directories that are not entered yet, for each level.
    pending: Vec<Vec<CString>>,
}

impl Tree {
    fn new(top: OwnedFd) -> Self {
        let entries = entries_of(&top);
        Self { here: top, entries, pending: vec![Vec::new()] }
    }

    /// Counts one entry, or goes to another directory. Returns whether there is more.
    fn step(&mut self, sum: &mut Sum) -> bool {
        let Some(names) = self.pending.last_mut() else { return false };
        if let Some(entries) = &mut self.entries {
            match entries.read() {
                Some(Ok(entry)) => {
                    let name = entry.file_name();
                    if name != c"." && name != c".." && sum.add_entry(&self.here, name) {
                        sum.pending += PER_NAME + name.to_bytes().len();
                        names.push(name.to_owned());
                    }
                }
                Some(Err(_)) | None => self.entries = None,
            }
            return true;
        }
        if let Some(name) = names.pop() {
            sum.pending -= PER_NAME + name.to_bytes().len();
            if let Ok(inner) = openat(&self.here, name.as_c_str(), DIRECTORY, Mode::empty()) {
                self.entries = entries_of(&inner);
                self.here = inner;
                self.pending.push(Vec::new());
                sum.pending += PER_LEVEL;
            }
            return true;
        }
        self.pending.pop();
        sum.pending = sum.pending.saturating_sub(PER_LEVEL);
        if self.pending.is_empty() {
            return false;
        }
        match openat(&self.here, "..", DIRECTORY, Mode::empty()) {
            Ok(above) => self.here = above,
            Err(_) => self.pending.clear(),
        }
        true
    }
}

fn entries_of(dir: &OwnedFd) -> Option<Dir> {
    openat(dir, ".", DIRECTORY, Mode::empty()).and_then(Dir::new).ok()
}

#[derive(Default)]
struct Sum {
    bytes: u64,
    entries: u64,
    /// Bytes of memory that directories on the way take.
    pending: usize,
    /// Inodes of what has several names and is counted.
    linked: HashSet<u64>,
    /// Device and inode of counted deleted files.
    deleted: HashSet<(u64, u64)>,
}

impl Sum {
    fn is_too_much(&self) -> bool {
        self.entries > MAX_ENTRIES || self.pending > MAX_PENDING
    }

    /// Adds an entry of a directory; returns whether it is a directory itself.
    fn add_entry(&mut self, dir: &OwnedFd, name: &std::ffi::CStr) -> bool {
        self.entries += 1;
        let Ok(stat) = statat(dir.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW) else { return false };
        let is_dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        // Every name takes space, and in a copy perhaps an inode.
        self.bytes = self.bytes.saturating_add(PER_ENTRY);
        if is_dir || stat.st_nlink == 1 || self.linked.insert(stat.st_ino) {
            self.bytes = self.bytes.saturating_add(stat.st_blocks as u64 * 512);
        }
        is_dir
    }

    /// Adds deleted files that a process still has open, in the descriptors of any of its threads.
    fn add_deleted(&mut self, pid: i32) {
        for file in processes::open_files(pid) {
            self.entries += 1;
            if self.is_too_much() {
                return;
            }
            let Ok(meta) = fs::metadata(&file) else { continue };
            if !meta.is_file() || meta.nlink() != 0 {
                continue;
            }
            // Files in memory count as memory.
            let target = fs::read_link(&file).unwrap_or_default();
            let in_memory =
                target.starts_with("/dev") || target.to_string_lossy().starts_with("/memfd:");
            if !in_memory && self.deleted.insert((meta.dev(), meta.ino())) {
                self.bytes = self.bytes.saturating_add(meta.blocks() * 512);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn open(dir: &tempfile::TempDir) -> OwnedFd {
        OwnedFd::from(fs::File::open(dir.path()).unwrap())
    }

    /// The bytes in a tree, counted in slices of one batch each.
    fn tree_bytes(dir: &tempfile::TempDir) -> u64 {
        let mut walk = Walk::of_trees(&[open(dir)]);
        for _ in 0..1_000_000 {
            if let Progress::Finished(bytes) = walk.until(Instant::now()) {
                return bytes;
            }
        }
        panic!("it does not end");
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
    fn every_name_is_charged() {
        let top = tempfile::tempdir().unwrap();
        let link = top.path().join("link");
        std::os::unix::fs::symlink("x".repeat(4000), &link).unwrap();
        let one = tree_bytes(&top);
        for i in 0..1000 {
            fs::hard_link(&link, top.path().join(i.to_string())).unwrap();
        }
        let all = tree_bytes(&top);
        assert!((one + 1000 * PER_ENTRY..2 * one + 1000 * PER_ENTRY).contains(&all), "{all}");
    }

    #[test]
    fn a_slice_is_short_and_loses_nothing() {
        let top = tempfile::tempdir().unwrap();
        for i in 0..3000 {
            fs::create_dir(top.path().join(i.to_string())).unwrap();
        }
        let mut walk = Walk::of_trees(&[open(&top)]);
        assert_eq!(walk.until(Instant::now()), Progress::Unfinished);
        let end = Instant::now() + Duration::from_secs(60);
        let Progress::Finished(bytes) = walk.until(end) else { panic!("a minute is enough") };
        assert_eq!(bytes, tree_bytes(&top));
        assert!(bytes >= 3000 * PER_ENTRY, "{bytes}");
    }

    #[test]
    fn what_would_take_too_much_memory_is_a_violation() {
        let top = tempfile::tempdir().unwrap();
        let mut walk = Walk::of_trees(&[open(&top)]);
        walk.sum.pending = MAX_PENDING + 1;
        assert_eq!(walk.until(Instant::now()), Progress::Finished(UNKNOWN));
    }
}
