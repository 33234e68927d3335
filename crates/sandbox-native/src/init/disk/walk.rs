//! One measurement of what a sandbox has written: its files, and deleted ones that a process still has open.
//!
//! A measurement goes on in slices, because a command can create millions of files and PID 1 has other things to do. It
//! takes bounded memory as well.

use std::{
    collections::HashSet,
    ffi::{CStr, CString},
    fs,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    path::{Path, PathBuf},
    time::Instant,
};

use rustix::{
    fs::{
        AtFlags, Dir, FileType, MemfdFlags, Mode, OFlags, fstat, memfd_create, openat, stat, statat,
    },
    io::Errno,
};

use crate::{init::processes, mounts::PRIVATE_DIR};

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
    /// The open files of one of them: there may be hundreds of thousands.
    files: Option<Box<dyn Iterator<Item = PathBuf>>>,
    /// Devices whose files count as memory.
    in_memory: Vec<u64>,
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
        let open = |top: &OwnedFd| open(top, c".").ok();
        let trees = tops.iter().rev().filter_map(open).collect();
        let (files, sum) = (None, Sum::default());
        Self { trees, tree: None, processes: None, files, in_memory: in_memory(), sum }
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
                if std::mem::take(&mut self.sum.moved) {
                    // Finding the way back takes as long as the tree is deep.
                    break;
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
            // One that cannot be opened again is as empty as one that cannot be opened.
            let here = open(&top, c".");
            self.tree = here.ok().map(|here| Tree::new(top, here));
            return true;
        }
        if let Some(files) = &mut self.files {
            match files.next() {
                Some(file) => self.sum.add_deleted(&file, &self.in_memory),
                None => self.files = None,
            }
            return true;
        }
        let list = || processes::numbers().into_iter().filter(|pid| *pid != 1).collect();
        match self.processes.get_or_insert_with(list).pop() {
            Some(pid) => {
                self.files = Some(Box::new(processes::open_files(pid)));
                true
            }
            None => false,
        }
    }
}

/// The devices of files that count as memory: those without a name, and those of the mounts in `/dev`. Names say nothing,
/// because a command can give any to a file that it deletes.
fn in_memory() -> Vec<u64> {
    let unnamed = memfd_create(c"device", MemfdFlags::CLOEXEC).and_then(fstat);
    let mounts = ["/dev", "/dev/shm", PRIVATE_DIR].map(stat);
    [unnamed].into_iter().chain(mounts).flatten().map(|stat| stat.st_dev).collect()
}

/// A tree of any depth, counted with two open directories at a time.
///
/// The way up is `..`, which cannot leave the tree because it is its own mount. Where it leads elsewhere than the way down came
/// from, a directory was moved meanwhile; the walk then goes on in the last one that is still in its place.
struct Tree {
    top: OwnedFd,
    here: OwnedFd,
    /// The entries of `here` that are not counted yet.
    entries: Option<Dir>,
    /// The directories from the top to `here`.
    levels: Vec<Level>,
}

/// A directory on the way to the one that is being counted.
struct Level {
    /// Its name in the one above.
    name: CString,
    /// Device and inode; `None` where they are unknown.
    identity: Option<(u64, u64)>,
    /// Directories in it that are not entered yet.
    pending: Vec<CString>,
}

impl Level {
    fn new(name: CString, dir: &OwnedFd) -> Self {
        Self { name, identity: identity(dir), pending: Vec::new() }
    }

    /// The memory that it takes, without its pending directories.
    fn weight(&self) -> usize {
        PER_LEVEL + self.name.to_bytes().len()
    }
}

fn identity(dir: &OwnedFd) -> Option<(u64, u64)> {
    fstat(dir).ok().map(|stat| (stat.st_dev, stat.st_ino))
}

impl Tree {
    fn new(top: OwnedFd, here: OwnedFd) -> Self {
        let entries = entries_of(&top);
        let levels = vec![Level::new(CString::default(), &top)];
        Self { top, here, entries, levels }
    }

    /// Counts one entry, or goes to another directory. Returns whether there is more.
    fn step(&mut self, sum: &mut Sum) -> bool {
        let Some(level) = self.levels.last_mut() else { return false };
        if let Some(entries) = &mut self.entries {
            match entries.read() {
                Some(Ok(entry)) => {
                    let name = entry.file_name();
                    if name != c"." && name != c".." && sum.add_entry(&self.here, name) {
                        sum.pending += PER_NAME + name.to_bytes().len();
                        level.pending.push(name.to_owned());
                    }
                }
                Some(Err(_)) | None => self.entries = None,
            }
            return true;
        }
        if let Some(name) = level.pending.pop() {
            sum.pending -= PER_NAME + name.to_bytes().len();
            if let Ok(inner) = open(&self.here, &name) {
                self.entries = entries_of(&inner);
                let level = Level::new(name, &inner);
                self.here = inner;
                sum.pending += level.weight();
                self.levels.push(level);
            }
            return true;
        }
        self.leave(sum);
        if let Some(level) = self.levels.last() {
            match open(&self.here, c"..") {
                Ok(above) if identity(&above) == level.identity => self.here = above,
                _ => self.find_way(sum),
            }
        }
        !self.levels.is_empty()
    }

    fn leave(&mut self, sum: &mut Sum) {
        if let Some(level) = self.levels.pop() {
            let names = level.pending.iter().map(|name| PER_NAME + name.to_bytes().len());
            let weight = level.weight() + names.sum::<usize>();
            sum.pending = sum.pending.saturating_sub(weight);
        }
    }

    /// After a move: goes to the last directory on the way that is still where it was. What is left of those that are not
    /// is counted wherever they are now, unless the walk has been there.
    fn find_way(&mut self, sum: &mut Sum) {
        sum.moved = true;
        let Ok(mut here) = open(&self.top, c".") else {
            return self.levels.clear();
        };
        let mut found = 1;
        for level in self.levels.iter().skip(1) {
            match open(&here, &level.name) {
                Ok(inner) if identity(&inner) == level.identity => here = inner,
                _ => break,
            }
            found += 1;
        }
        while self.levels.len() > found {
            self.leave(sum);
        }
        self.here = here;
    }
}

/// Opens a directory. Reading it changes no time of access where that can be avoided: commands would see when their files are
/// measured.
fn open(dir: &OwnedFd, name: &CStr) -> rustix::io::Result<OwnedFd> {
    match openat(dir, name, DIRECTORY | OFlags::NOATIME, Mode::empty()) {
        Err(Errno::PERM) => openat(dir, name, DIRECTORY, Mode::empty()),
        opened => opened,
    }
}

fn entries_of(dir: &OwnedFd) -> Option<Dir> {
    open(dir, c".").and_then(Dir::new).ok()
}

#[derive(Default)]
struct Sum {
    bytes: u64,
    entries: u64,
    /// Bytes of memory that directories on the way take.
    pending: usize,
    /// A directory on the way was moved just now.
    moved: bool,
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
    fn add_entry(&mut self, dir: &OwnedFd, name: &CStr) -> bool {
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

    /// Adds a file that a process has open, if it is deleted and takes space on the disk.
    fn add_deleted(&mut self, file: &Path, in_memory: &[u64]) {
        self.entries += 1;
        let Ok(meta) = fs::metadata(file) else { return };
        let is_deleted = meta.is_file() && meta.nlink() == 0 && !in_memory.contains(&meta.dev());
        if is_deleted && self.deleted.insert((meta.dev(), meta.ino())) {
            self.bytes = self.bytes.saturating_add(meta.blocks() * 512);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn opened(dir: &tempfile::TempDir) -> OwnedFd {
        OwnedFd::from(fs::File::open(dir.path()).unwrap())
    }

    /// The bytes in a tree, counted in slices of one batch each.
    fn tree_bytes(dir: &tempfile::TempDir) -> u64 {
        let mut walk = Walk::of_trees(&[opened(dir)]);
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
        let mut walk = Walk::of_trees(&[opened(&top)]);
        assert_eq!(walk.until(Instant::now()), Progress::Unfinished);
        let end = Instant::now() + Duration::from_secs(60);
        let Progress::Finished(bytes) = walk.until(end) else { panic!("a minute is enough") };
        assert_eq!(bytes, tree_bytes(&top));
        assert!(bytes >= 3000 * PER_ENTRY, "{bytes}");
    }

    /// Directories that are moved while they are counted do not keep the walk from those beside them.
    #[test]
    fn a_moved_directory_hides_nothing_beside_it() {
        let top = tempfile::tempdir().unwrap();
        let (from, to) = (top.path().join("from"), top.path().join("to"));
        fs::create_dir(&to).unwrap();
        for i in 0..200 {
            let inner = from.join(format!("{i}/inner"));
            fs::create_dir_all(&inner).unwrap();
            for file in 0..10 {
                fs::write(inner.join(file.to_string()), "").unwrap();
            }
            fs::write(inner.join("large"), vec![1u8; 16 << 10]).unwrap();
        }
        let still = tree_bytes(&top);
        let mut walk = Walk::of_trees(&[opened(&top)]);
        let mut moved = 0;
        let bytes = loop {
            if let Progress::Finished(bytes) = walk.until(Instant::now()) {
                break bytes;
            }
            // The one that is being counted is moved away: `..` leads to where the walk may have been.
            let here = walk.tree.as_ref().and_then(|tree| tree.levels.get(2));
            if let Some(name) = here.map(|level| level.name.to_str().unwrap().to_owned())
                && fs::rename(from.join(&name), to.join(&name)).is_ok()
            {
                moved += 1;
            }
        };
        assert!(moved > 10, "{moved}");
        // At most the rest of those that were moved.
        assert!(bytes > still / 2, "{bytes} of {still}, {moved} moved");
    }

    #[test]
    fn what_would_take_too_much_memory_is_a_violation() {
        let top = tempfile::tempdir().unwrap();
        let mut walk = Walk::of_trees(&[opened(&top)]);
        walk.sum.pending = MAX_PENDING + 1;
        assert_eq!(walk.until(Instant::now()), Progress::Finished(UNKNOWN));
    }
}
