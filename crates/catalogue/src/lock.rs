//! A lock on a model's directory, so that one process at a time works on a model.
//!
//! The kernel releases the lock when its process ends, `kill -9` included. Knows nothing of models.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};

/// An exclusive lock on a directory. Dropping it removes the directory if it is empty.
#[derive(Debug)]
pub(crate) struct DirLock {
    dir: PathBuf,
    file: fs::File,
}

impl DirLock {
    /// Locks a directory, created when missing; none where another process holds the lock.
    pub(crate) fn create(dir: &Path) -> io::Result<Option<Self>> {
        loop {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
            match Self::existing(dir) {
                // The last holder removed the directory just now.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => return other,
            }
        }
    }

    /// Locks a directory that exists; none where another process holds the lock.
    pub(crate) fn existing(dir: &Path) -> io::Result<Option<Self>> {
        let file = fs::File::open(dir)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        // It may have been removed between opening and locking.
        if !is_at(&file, dir)? {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Some(Self { dir: dir.to_owned(), file }))
    }

    /// The directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for DirLock {
    fn drop(&mut self) {
        // A directory that another process created there since is not ours. Fails if it is not empty, as intended.
        if is_at(&self.file, &self.dir).unwrap_or(false) {
            let _ = fs::remove_dir(&self.dir);
        }
    }
}

fn is_at(open: &fs::File, path: &Path) -> io::Result<bool> {
    let (open, there) = (open.metadata()?, fs::metadata(path)?);
    Ok((open.dev(), open.ino()) == (there.dev(), there.ino()))
}
