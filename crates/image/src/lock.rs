//! Coordination between processes that use one store: workspaces, leases and the store's lock, all by advisory file
//! locks.
//!
//! The kernel releases a lock when its process ends, `kill -9` included. Knows nothing of images.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use rustix::fs::{FlockOperation, flock};

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

/// Opens a file or directory and tries to lock it exclusively.
pub(crate) fn try_exclusive(path: &Path) -> io::Result<Try> {
    try_lock(fs::File::open(path)?)
}

/// Tries to lock an open file exclusively.
pub(crate) fn try_lock(file: fs::File) -> io::Result<Try> {
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Try::Locked(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(Try::Busy),
        Err(error) => Err(error.into()),
    }
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
                Err(rustix::io::Errno::INTR) => {}
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
}

const LEASES: &str = "leases";

impl Workspace {
    pub(crate) fn new(below: &Path) -> io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        private_dir(below)?;
        loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = below.join(format!("{}-{count}", std::process::id()));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {}
                // Left by a dead process with our id, or in use in another container.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(error),
            }
            // Before it is locked, a prune may remove it. Then try another.
            match try_exclusive(&path) {
                Ok(Try::Locked(lock)) if still_at(&lock, &path)? => {
                    fs::create_dir(path.join(LEASES))?;
                    return Ok(Self { path, _lock: lock, next: AtomicU64::new(0) });
                }
                Ok(_) => {
                    let _ = fs::remove_dir(&path);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// An unused path; nothing is created there.
    pub(crate) fn new_path(&self) -> PathBuf {
        self.path.join(self.next.fetch_add(1, Ordering::Relaxed).to_string())
    }

    /// Protects a layer from being pruned while this workspace exists. Requires the store's lock.
    pub(crate) fn lease(&self, layer: &Digest) -> io::Result<()> {
        fs::File::create(self.path.join(LEASES).join(layer.hex())).map(drop)
    }

    /// The layers that a workspace, of any process, has leased.
    pub(crate) fn leased(workspace: &Path) -> io::Result<Vec<Digest>> {
        let entries = match fs::read_dir(workspace.join(LEASES)) {
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
            flock(&file, FlockOperation::LockShared)?;
            Ok(file)
        };
        Ok(Self { _layers: Arc::new(paths.iter().map(lock).collect::<io::Result<_>>()?) })
    }
}
