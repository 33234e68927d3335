//! One process at a time works on a model: a lock on the model's directory.
//!
//! A lock dies with its process, so `kill -9` needs no clean-up to be noticed. Knows nothing of models.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};

/// A directory that is ours for now.
#[derive(Debug)]
pub(crate) struct Claim {
    dir: PathBuf,
    lock: fs::File,
}

impl Claim {
    /// Claims a directory, made when missing; nothing where somebody else has it.
    pub(crate) fn make(dir: &Path) -> io::Result<Option<Self>> {
        loop {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
            match Self::of(dir) {
                // Its last owner removed it in this moment.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => return other,
            }
        }
    }

    /// Claims a directory that is there.
    pub(crate) fn of(dir: &Path) -> io::Result<Option<Self>> {
        let lock = fs::File::open(dir)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        // What was locked may have been removed before.
        if !is_at(&lock, dir)? {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Some(Self { dir: dir.to_owned(), lock }))
    }

    /// The directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // What somebody made there since is not ours. Fails where there is something in it, as it should.
        if is_at(&self.lock, &self.dir).unwrap_or(false) {
            let _ = fs::remove_dir(&self.dir);
        }
    }
}

fn is_at(open: &fs::File, path: &Path) -> io::Result<bool> {
    let (ours, there) = (open.metadata()?, fs::metadata(path)?);
    Ok((ours.dev(), ours.ino()) == (there.dev(), there.ino()))
}
