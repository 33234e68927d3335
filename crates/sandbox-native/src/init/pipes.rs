//! The directory of pipes between PID 1 and the shell, as PID 1 uses it.
//!
//! A shell cannot be handed descriptors, so it opens the pipes by name. It sees the directory read-only, as
//! every command does; PID 1 alone has a way to it that can be written to. What lies in it is still not
//! trusted: anything may be written into a pipe.

use std::{
    fs::File,
    io::{self, Read},
    os::fd::OwnedFd,
};

use rustix::fs::{AtFlags, Mode, OFlags, mkfifoat, openat, unlinkat};

/// The directory.
pub(crate) struct Pipes(OwnedFd);

impl Pipes {
    /// The directory behind this descriptor.
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

    /// A new pipe, open both ways at once: using it never waits and never sees an end.
    pub(crate) fn both_ways(&self, name: &str) -> io::Result<File> {
        self.make(name)?;
        self.open(name, OFlags::RDWR)
    }

    /// A new pipe for output: the reading end for the caller, and a writing end that keeps it open.
    pub(crate) fn output(&self, name: &str) -> io::Result<(File, File)> {
        self.make(name)?;
        let reading = self.open(name, OFlags::RDONLY)?;
        Ok((reading, self.open(name, OFlags::WRONLY)?))
    }

    /// Removes a name. Whoever has it open goes on.
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

/// Reads whatever a pipe holds.
pub(crate) fn drain(pipe: &mut File) {
    let mut buffer = [0u8; 4096];
    while matches!(pipe.read(&mut buffer), Ok(1..)) {}
}
