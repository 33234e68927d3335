//! The directory of named pipes between PID 1 and the shell.
//!
//! A running shell cannot receive descriptors, so it opens the pipes by name. Like every command it sees the directory
//! read-only; only PID 1 has a writable mount of it. What arrives is not trusted: any command may write into a pipe.

use std::{
    fs::File,
    io::{self, Read},
    os::fd::OwnedFd,
};

use rustix::fs::{AtFlags, Mode, OFlags, mkfifoat, openat, unlinkat};

/// The directory of pipes.
pub(crate) struct Pipes(OwnedFd);

impl Pipes {
    /// Wraps an open directory.
    pub(crate) fn new(dir: OwnedFd) -> Self {
        Self(dir)
    }

    /// Stores a script under this name.
    pub(crate) fn store(&self, name: &str, mut script: File) -> io::Result<()> {
        self.remove(name);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let stored = openat(&self.0, name, flags, Mode::from_raw_mode(0o600))?;
        io::copy(&mut script, &mut File::from(stored)).map(drop)
    }

    /// Creates a pipe, opened for reading and writing at once: opening does not wait, and reading sees no end.
    pub(crate) fn both_ways(&self, name: &str) -> io::Result<File> {
        self.make(name)?;
        self.open(name, OFlags::RDWR)
    }

    /// Creates a pipe for output: returns the reading end, and a writing end that keeps the pipe open.
    pub(crate) fn output(&self, name: &str) -> io::Result<(File, File)> {
        self.make(name)?;
        let reading = self.open(name, OFlags::RDONLY)?;
        Ok((reading, self.open(name, OFlags::WRONLY)?))
    }

    /// Removes a name. Processes that have it open are not affected.
    pub(crate) fn remove(&self, name: &str) {
        let _ = unlinkat(&self.0, name, AtFlags::empty());
    }

    fn make(&self, name: &str) -> io::Result<()> {
        self.remove(name);
        Ok(mkfifoat(&self.0, name, Mode::from_raw_mode(0o600))?)
    }

    fn open(&self, name: &str, way: OFlags) -> io::Result<File> {
        let flags = way | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&self.0, name, flags, Mode::empty())?.into())
    }
}

/// Empties a pipe of what was in it. Bounded: another process may write faster than this reads.
pub(crate) fn drain(pipe: &mut File) {
    let mut buffer = [0u8; 4096];
    // The largest pipe that an ordinary user can have.
    for _ in 0..(1 << 20) / buffer.len() {
        if !matches!(pipe.read(&mut buffer), Ok(1..)) {
            break;
        }
    }
}
