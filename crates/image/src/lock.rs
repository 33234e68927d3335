//! Coordination between processes that use one store: workspaces, leases and the store's lock, all by advisory file
//! locks.
//!
//! The kernel releases a lock when its process ends, `kill -9` included. Where a file system has no locks, as Lustre may
//! not, processes do not wait for each other, and nothing is removed that a lock would protect. Locks on directories of NFS
//! are not seen by other machines, so names tell whose a workspace is. Knows nothing of images.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

use crate::{delete::delete, digest::Digest};

/// Creates a directory and its parents, accessible to this user only.
pub(crate) fn private_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// The result of trying to lock a file.
pub(crate) enum Try {
    Locked(fs::File),
    Busy,
}

/// Opens a file or directory and tries to lock it exclusively, in order to remove it. Without locks, it is busy.
pub(crate) fn try_exclusive(path: &Path) -> io::Result<Try> {
    let file = fs::File::open(path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Try::Locked(file)),
        Err(Errno::WOULDBLOCK) => Ok(Try::Busy),
        Err(error) if has_no_locks(error) => Ok(Try::Busy),
        Err(error) => Err(error.into()),
    }
}

/// Tries to lock an open file exclusively, in order to use it. Without locks, it can be used.
pub(crate) fn try_lock(file: fs::File) -> io::Result<Try> {
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Try::Locked(file)),
        Err(Errno::WOULDBLOCK) => Ok(Try::Busy),
        Err(error) if has_no_locks(error) => Ok(Try::Locked(file)),
        Err(error) => Err(error.into()),
    }
}

/// Whether the file system has no locks at all.
fn has_no_locks(error: Errno) -> bool {
    matches!(error, Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK)
}

/// A workspace of another machine counts as in use until it is this old.
const MOST_FOREIGN: Duration = Duration::from_secs(7 * 24 * 3600);

/// This machine's name, for names of files.
fn machine() -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    name.chars().take(64).map(plain).collect()
}

/// The name of the n-th thing that this process makes in a directory that machines may share.
pub(crate) fn own_name(n: u64) -> String {
    format!("{}@{}-{n}", machine(), std::process::id())
}

/// Whether a workspace belongs to a process of another machine, which may be running.
pub(crate) fn is_foreign(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let changed = fs::symlink_metadata(path).and_then(|about| about.modified());
    // The clock of another machine may be ahead of this one's.
    let is_recent = |time: SystemTime| time.elapsed().map_or(true, |age| age < MOST_FOREIGN);
    changed.is_ok_and(is_recent)
        && name.split_once('@').is_some_and(|(owner, _)| owner != machine())
}

/// Whether an open file is still the one at this path.
pub(crate) fn still_at(file: &fs::File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(there) => Ok((there.dev(), there.ino()) == (ours.dev(), ours.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// How the store is locked.
#[derive(Clone, Copy)]
pub(crate) enum LockMode {
    /// To use a layer: it is found and leased under one lock.
    Shared,
    /// To remove layers.
    Exclusive,
}

/// The lock on the store. Held briefly: no layer may be removed between being found and being leased.
pub(crate) struct StoreLock(#[expect(dead_code, reason = "held for its lock")] fs::File);

impl StoreLock {
    pub(crate) fn acquire(file: &Path, mode: LockMode) -> io::Result<Self> {
        let file = fs::OpenOptions::new().create(true).truncate(false).write(true).open(file)?;
        let operation = match mode {
            LockMode::Shared => FlockOperation::LockShared,
            LockMode::Exclusive => FlockOperation::LockExclusive,
        };
        loop {
            match flock(&file, operation) {
                Ok(()) => return Ok(Self(file)),
                Err(Errno::INTR) => {}
                Err(error) if has_no_locks(error) => return Ok(Self(file)),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// A directory for one operation, removed when dropped. A lock on it shows that its process is running.
pub(crate) struct Workspace {
    path: PathBuf,
    _lock: fs::File,
    next: AtomicU64,
    leases_are_expendable: bool,
}

const LEASES: &str = "leases";
const EXPENDABLE: &str = "expendable";

impl Workspace {
    pub(crate) fn new(below: &Path) -> io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        private_dir(below)?;
        loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = below.join(own_name(count));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {}
                // Left by a dead process with our id, or in use in another container.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(error),
            }
            // Before it is locked, a prune may remove it. Then try another.
            match fs::File::open(&path).and_then(try_lock) {
                Ok(Try::Locked(lock)) if still_at(&lock, &path)? => {
                    fs::create_dir(path.join(LEASES))?;
                    fs::create_dir(path.join(EXPENDABLE))?;
                    let next = AtomicU64::new(0);
                    return Ok(Self { path, _lock: lock, next, leases_are_expendable: false });
                }
                Ok(_) => {
                    let _ = fs::remove_dir(&path);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes every layer expendable that is leased from now on.
    pub(crate) fn with_expendable_leases(mut self) -> Self {
        self.leases_are_expendable = true;
        self
    }

    /// An unused path; nothing is created there.
    pub(crate) fn new_path(&self) -> PathBuf {
        self.path.join(self.next.fetch_add(1, Ordering::Relaxed).to_string())
    }

    /// Protects a layer from being pruned while this workspace exists. Requires the store's lock.
    pub(crate) fn lease(&self, layer: &Digest) -> io::Result<()> {
        if self.leases_are_expendable {
            self.mark_expendable(layer)?;
        }
        fs::File::create(self.path.join(LEASES).join(layer.hex())).map(drop)
    }

    /// Notes that a layer without an image is of no use. If this process dies, it is removed with the next image.
    pub(crate) fn mark_expendable(&self, layer: &Digest) -> io::Result<()> {
        fs::File::create(self.path.join(EXPENDABLE).join(layer.hex())).map(drop)
    }

    /// The layers that a workspace, of any process, has leased.
    pub(crate) fn leased(workspace: &Path) -> io::Result<Vec<Digest>> {
        Self::noted(workspace, LEASES)
    }

    /// The layers that a workspace, of any process, has marked as expendable.
    pub(crate) fn expendable(workspace: &Path) -> io::Result<Vec<Digest>> {
        Self::noted(workspace, EXPENDABLE)
    }

    fn noted(workspace: &Path, list: &str) -> io::Result<Vec<Digest>> {
        let entries = match fs::read_dir(workspace.join(list)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut layers = Vec::new();
        for entry in entries {
            layers.extend(entry?.file_name().to_str().and_then(|name| Digest::from_hex(name).ok()));
        }
        Ok(layers)
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next prune.
        let _ = delete(&self.path, &|_| {});
    }
}

/// Protects the layers of a [`crate::Rootfs`] from being pruned, until the last clone is dropped.
#[derive(Clone, Debug, Default)]
pub struct Lease {
    _layers: Arc<Vec<fs::File>>,
}

impl Lease {
    pub(crate) fn on(paths: &[PathBuf]) -> io::Result<Self> {
        let lock = |path: &PathBuf| {
            let file = fs::File::open(path)?;
            match flock(&file, FlockOperation::LockShared) {
                Err(error) if !has_no_locks(error) => Err(error.into()),
                _ => Ok(file),
            }
        };
        Ok(Self { _layers: Arc::new(paths.iter().map(lock).collect::<io::Result<_>>()?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workspaces_of_another_machine_are_in_use_for_a_week() {
        let dir = tempfile::tempdir().unwrap();
        let make = |name: &str, age: Duration| {
            let path = dir.path().join(name);
            fs::create_dir(&path).unwrap();
            let changed = SystemTime::now() - age;
            fs::File::open(&path).unwrap().set_modified(changed).unwrap();
            is_foreign(&path)
        };
        assert!(make("another-node@7-0", Duration::from_secs(60)));
        assert!(!make("another-node@7-1", MOST_FOREIGN * 2));
        let ahead = dir.path().join("another-node@7-3");
        fs::create_dir(&ahead).unwrap();
        let changed = SystemTime::now() + Duration::from_secs(3600);
        fs::File::open(&ahead).unwrap().set_modified(changed).unwrap();
        assert!(is_foreign(&ahead), "its clock is ahead");
        assert!(!make(&own_name(0), Duration::ZERO));
        assert!(!make("7-2", Duration::ZERO), "of an earlier version");
    }
}
