//! [`DirectoryLock`]: one process uses a directory at a time.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::Path,
};

use rustix::fs::{FlockOperation, OFlags, flock};

use crate::Error;

/// A directory that no other process locks until this is dropped or the process dies.
#[derive(Debug)]
pub struct DirectoryLock {
    _file: File,
}

impl DirectoryLock {
    /// Locks a directory, creating it for this user alone where necessary.
    ///
    /// # Errors
    /// [`Error::InUse`] if it is locked already.
    pub fn acquire(dir: &Path) -> Result<Self, Error> {
        let failed = || Error::storage(format!("cannot use {}", dir.display()));
        // What clients keep in it is their own.
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed())?;
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        options.custom_flags(OFlags::NOFOLLOW.bits() as i32);
        let file = options.open(dir.join("lock")).map_err(failed())?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(io::Error::from) {
            Ok(()) => Ok(Self { _file: file }),
            // That no other process uses the directory is then up to the operator.
            Err(error) if results::has_no_locks(&error) => Ok(Self { _file: file }),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(Error::InUse(dir.to_owned()))
            }
            Err(error) => Err(failed()(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_user() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("new/data");
        let lock = DirectoryLock::acquire(&data).unwrap();
        assert!(matches!(DirectoryLock::acquire(&data), Err(Error::InUse(used)) if used == data));
        drop(lock);
        DirectoryLock::acquire(&data).unwrap();
    }
}
