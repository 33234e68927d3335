//! Who is working in the store right now: workspaces, leases and the gate, all by advisory file locks.
//!
//! A lock dies with its process, so `kill -9` needs no clean-up to be noticed. Knows nothing of images.

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

use crate::{digest::Digest, tree};

/// Makes a directory, and those above it, for this user alone.
pub(crate) fn private_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Whether a lock was had at once.
pub(crate) enum Try {
    Locked(fs::File),
    Busy,
}

/// Opens a file or directory and locks it for us alone, if nobody else has it.
pub(crate) fn try_exclusive(path: &Path) -> io::Result<Try> {
    try_lock(fs::File::open(path)?)
}

/// Locks an open file for us alone, if nobody else has it.
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

/// How the gate is passed.
#[derive(Clone, Copy)]
pub(crate) enum Pass {
    /// To rely on a layer: it is checked and leased in one go.
    Shared,
    /// To take layers away.
    Alone,
}

/// Held for moments only: between looking for a layer and leasing it nothing may take it away.
pub(crate) struct Gate(#[expect(dead_code, reason = "held for its lock")] fs::File);

impl Gate {
    pub(crate) fn pass(file: &Path, how: Pass) -> io::Result<Self> {
        let file = fs::OpenOptions::new().create(true).truncate(false).write(true).open(file)?;
        let operation = match how {
            Pass::Shared => FlockOperation::LockShared,
            Pass::Alone => FlockOperation::LockExclusive,
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

/// A directory for one operation, removed with it; a lock on it shows that its owner lives.
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
                // Left by a dead process that had our number, or by another container's.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(error),
            }
            // Between making and locking it, a prune may take it for dead. Then try another.
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

    /// A path nobody has used yet; nothing is made there.
    pub(crate) fn fresh(&self) -> PathBuf {
        self.path.join(self.next.fetch_add(1, Ordering::Relaxed).to_string())
    }

    /// Keeps a layer from being pruned while this workspace lives. Call it within the gate.
    pub(crate) fn lease(&self, layer: &Digest) -> io::Result<()> {
        fs::File::create(self.path.join(LEASES).join(layer.hex())).map(drop)
    }

    /// The layers a workspace, of whatever process, has leased.
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
        // What cannot be removed now is found by the next prune.
        let _ = tree::remove_path(&self.path);
    }
}

/// Keeps the layers of a [`crate::Rootfs`] from being pruned; the last clone dropped frees them.
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
