//! Deletes directory trees: by several threads, because a large tree mostly waits for the disk.
//!
//! Every step is relative to an open directory, so nothing outside the tree is reached. Knows nothing of images.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use rustix::{
    fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, chmodat, fstat, openat, unlinkat},
    io::Errno,
};

use crate::tree::{OPEN_DIR, find, ignore_missing};

/// Threads that delete one tree.
const THREADS: usize = 8;
/// Directories that one thread deletes before others are started.
const ALONE: usize = 64;

/// Deletes a file, or a directory and everything below it; a missing one is not an error. The path itself is trusted.
/// `deleted` is called with the number of entries deleted since its last call, from any thread.
pub(crate) fn delete(path: &Path, deleted: &(dyn Fn(u64) + Sync)) -> io::Result<()> {
    match delete_with(THREADS, path, deleted) {
        // Every thread keeps the directories above its own open. One alone needs far fewer.
        Err(error) if is_out_of_descriptors(&error) => delete_with(1, path, deleted),
        other => other,
    }
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    let codes = [Errno::MFILE, Errno::NFILE].map(|code| Some(code.raw_os_error()));
    codes.contains(&error.raw_os_error())
}

fn delete_with(threads: usize, path: &Path, deleted: &(dyn Fn(u64) + Sync)) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = openat(CWD, parent, flags, Mode::empty())?;
    let name = name.as_encoded_bytes();
    let Some(stat) = find(parent.as_fd(), name)? else { return Ok(()) };
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return ignore_missing(unlinkat(&parent, name, AtFlags::empty()));
    }
    let above = Arc::new(Node { fd: parent, up: None, left: AtomicUsize::new(1) });
    let queue = Queue::new(Job { above, name: name.to_vec() }, deleted);
    queue.work(ALONE);
    if queue.is_idle() {
        return queue.finish();
    }
    thread::scope(|scope| {
        for _ in 1..threads {
            // Without more threads, this one does the work alone.
            let _ = thread::Builder::new().spawn_scoped(scope, || queue.work(usize::MAX));
        }
        queue.work(usize::MAX);
    });
    queue.finish()
}

/// An open directory. It is removed when nothing is left in it.
struct Node {
    fd: OwnedFd,
    /// The directory above and the name in it; `None` above the deleted tree.
    up: Option<(Arc<Node>, Vec<u8>)>,
    /// Directories in it that are not removed yet.
    left: AtomicUsize,
}

/// A directory to empty.
struct Job {
    above: Arc<Node>,
    name: Vec<u8>,
}

/// Directories to empty, the last one first: that keeps few of them open.
struct Queue<'a> {
    state: Mutex<State>,
    changed: Condvar,
    deleted: &'a (dyn Fn(u64) + Sync),
}

struct State {
    jobs: Vec<Job>,
    /// Jobs that are being worked on, which may add others.
    active: usize,
    failure: Option<io::Error>,
}

impl<'a> Queue<'a> {
    fn new(first: Job, deleted: &'a (dyn Fn(u64) + Sync)) -> Self {
        let state = State { jobs: vec![first], active: 0, failure: None };
        Self { state: Mutex::new(state), changed: Condvar::new(), deleted }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_idle(&self) -> bool {
        self.state().jobs.is_empty()
    }

    fn finish(self) -> io::Result<()> {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        state.failure.map_or(Ok(()), Err)
    }

    /// Works until nothing is left, something failed, or this many directories are done.
    fn work(&self, most: usize) {
        for _ in 0..most {
            let Some(job) = self.next() else { return };
            let emptied = empty(job, self.deleted);
            let mut state = self.state();
            state.active -= 1;
            match emptied {
                Ok(jobs) => state.jobs.extend(jobs),
                Err(error) => {
                    state.jobs.clear();
                    state.failure.get_or_insert(error);
                }
            }
            drop(state);
            self.changed.notify_all();
        }
    }

    /// The next directory; waits while others may still add some.
    fn next(&self) -> Option<Job> {
        let mut state = self.state();
        loop {
            if state.failure.is_some() {
                return None;
            }
            if let Some(job) = state.jobs.pop() {
                state.active += 1;
                return Some(job);
            }
            if state.active == 0 {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Deletes the files of a directory, and the directory itself if it has no others. Returns those others.
fn empty(job: Job, deleted: &dyn Fn(u64)) -> io::Result<Vec<Job>> {
    let Job { above, name } = job;
    let fd = match openat(&above.fd, name.as_slice(), OPEN_DIR, Mode::empty()) {
        Err(Errno::ACCESS) => {
            chmodat(&above.fd, name.as_slice(), Mode::RWXU, AtFlags::empty())?;
            openat(&above.fd, name.as_slice(), OPEN_DIR, Mode::empty())?
        }
        Err(Errno::NOENT) => {
            return remove_upwards(above).map(|()| Vec::new());
        }
        other => other?,
    };
    // Images contain directories that their owner may not write; an unprivileged user must be able to empty them.
    if fstat(&fd)?.st_mode & 0o700 != 0o700 {
        rustix::fs::fchmod(&fd, Mode::RWXU)?;
    }
    let (mut files, mut dirs) = (0, Vec::new());
    for entry in Dir::read_from(&fd)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => match find(fd.as_fd(), name)? {
                Some(stat) => FileType::from_raw_mode(stat.st_mode),
                None => continue,
            },
            kind => kind,
        };
        if kind == FileType::Directory {
            dirs.push(name.to_vec());
        } else {
            ignore_missing(unlinkat(&fd, name, AtFlags::empty()))?;
            files += 1;
        }
    }
    deleted(files + 1);
    let left = AtomicUsize::new(dirs.len());
    let node = Arc::new(Node { fd, up: Some((above, name)), left });
    if dirs.is_empty() {
        return remove_empty(node).map(|()| Vec::new());
    }
    Ok(dirs.into_iter().map(|name| Job { above: Arc::clone(&node), name }).collect())
}

/// Removes an empty directory, and those above it that become empty by that.
fn remove_empty(node: Arc<Node>) -> io::Result<()> {
    let Some((above, name)) = &node.up else { return Ok(()) };
    ignore_missing(unlinkat(&above.fd, name.as_slice(), AtFlags::REMOVEDIR))?;
    remove_upwards(Arc::clone(above))
}

/// Counts one directory less; removes the directory if it was the last one in it.
fn remove_upwards(mut node: Arc<Node>) -> io::Result<()> {
    while node.left.fetch_sub(1, Ordering::AcqRel) == 1 {
        let Some((above, name)) = &node.up else { return Ok(()) };
        ignore_missing(unlinkat(&above.fd, name.as_slice(), AtFlags::REMOVEDIR))?;
        node = Arc::clone(above);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt, sync::atomic::AtomicU64};

    use super::*;

    #[test]
    fn a_wide_and_deep_tree_goes_and_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let (tree, outside) = (dir.path().join("tree"), dir.path().join("outside"));
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "").unwrap();
        let mut made = 1;
        for i in 0..150 {
            let inner = tree.join(format!("{}/{i}/x", i % 7));
            fs::create_dir_all(&inner).unwrap();
            fs::write(inner.join("f"), "1").unwrap();
            std::os::unix::fs::symlink(&outside, inner.join("link")).unwrap();
            fs::set_permissions(&inner, fs::Permissions::from_mode(0o500)).unwrap();
            made += 4;
        }
        let deep = (0..300).fold(tree.join("deep"), |at, i| at.join((i % 10).to_string()));
        fs::create_dir_all(&deep).unwrap();
        made += 7 + 301;
        let count = AtomicU64::new(0);
        let counted = |by| {
            count.fetch_add(by, Ordering::Relaxed);
        };
        delete(&tree, &counted).unwrap();
        assert!(!tree.exists());
        assert!(outside.join("kept").exists());
        assert_eq!(count.into_inner(), made);
        // Missing, a file, a link to a directory.
        delete(&tree, &|_| {}).unwrap();
        std::os::unix::fs::symlink(&outside, &tree).unwrap();
        delete(&tree, &|_| {}).unwrap();
        assert!(!tree.exists() && outside.join("kept").exists());
    }
}
