//! A directory tree in which every path is resolved as if its root were `/`.
//!
//! Untrusted symbolic links, absolute or with `..`, never lead out of the tree. Knows nothing of archives.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{
        AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, chmodat, mkdirat, openat, readlinkat,
        statat, unlinkat,
    },
    io::Errno,
};

use crate::overlay;

/// The deepest nesting of directories; a recursive removal needs a descriptor for each level.
const MAX_DEPTH: usize = 400;
/// The most links followed for one path, as in the kernel.
const MAX_LINKS: usize = 40;
/// The most steps for one path, links included.
const MAX_STEPS: usize = 4096;

pub(crate) const OPEN_DIR: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What to do when a directory of a path does not exist.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    Create,
    Fail,
}

/// A directory tree.
pub(crate) struct Tree {
    root: OwnedFd,
    /// The directory used last: archives list files directory by directory.
    last: Option<(Vec<Vec<u8>>, OwnedFd)>,
}

impl Tree {
    /// Opens an existing directory as the root. The path itself is trusted.
    pub(crate) fn open(root: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { root: openat(CWD, root, flags, Mode::empty())?, last: None })
    }

    pub(crate) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// The directory a path names, links followed inside the tree.
    pub(crate) fn dir(&mut self, path: &[&[u8]], missing: Missing) -> io::Result<OwnedFd> {
        if let Some((known, fd)) = &self.last
            && known.len() == path.len()
            && known.iter().zip(path).all(|(a, b)| a == b)
        {
            return fd.try_clone();
        }
        let fd = self.walk(path, missing)?;
        self.last = Some((path.iter().map(|part| part.to_vec()).collect(), fd.try_clone()?));
        Ok(fd)
    }

    /// Removes an entry and everything below it.
    pub(crate) fn remove(&mut self, parent: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
        // The cached directory may be inside what is removed, or reached through it.
        self.last = None;
        remove(parent, name, 0)
    }

    fn walk(&self, path: &[&[u8]], missing: Missing) -> io::Result<OwnedFd> {
        let mut todo: Vec<Vec<u8>> = path.iter().rev().map(|part| part.to_vec()).collect();
        let mut done: Vec<Vec<u8>> = Vec::new();
        let mut here = self.root.try_clone()?;
        let (mut links, mut steps) = (0, 0);
        while let Some(part) = todo.pop() {
            steps += 1;
            if steps > MAX_STEPS || done.len() >= MAX_DEPTH {
                return Err(io::Error::other("the path is too deep"));
            }
            if part == b".." {
                done.pop();
                here = self.reopen(&done)?;
                continue;
            }
            match openat(&here, part.as_slice(), OPEN_DIR, Mode::empty()) {
                Ok(next) => here = next,
                Err(Errno::NOENT) if missing == Missing::Create => {
                    here = create_dir_at(here.as_fd(), &part)?;
                }
                Err(Errno::NOTDIR | Errno::LOOP) => {
                    let stat = stat(here.as_fd(), &part)?;
                    match FileType::from_raw_mode(stat.st_mode) {
                        FileType::Symlink => {
                            links += 1;
                            if links > MAX_LINKS {
                                return Err(Errno::LOOP.into());
                            }
                            let target =
                                readlinkat(&here, part.as_slice(), Vec::new())?.into_bytes();
                            if target.starts_with(b"/") {
                                done.clear();
                                here = self.root.try_clone()?;
                            }
                            let parts = target.split(|&b| b == b'/');
                            todo.extend(
                                parts
                                    .filter(|p| !matches!(*p, b"" | b"."))
                                    .rev()
                                    .map(<[u8]>::to_vec),
                            );
                            continue;
                        }
                        // A whiteout of this layer, followed by a new directory of the same name.
                        FileType::CharacterDevice if missing == Missing::Create => {
                            unlinkat(&here, part.as_slice(), AtFlags::empty())?;
                            here = create_dir_at(here.as_fd(), &part)?;
                            overlay::make_opaque(here.as_fd())?;
                        }
                        _ => return Err(Errno::NOTDIR.into()),
                    }
                }
                Err(error) => return Err(error.into()),
            }
            done.push(part);
        }
        Ok(here)
    }

    /// Opens a path of real directories, none of them a link.
    fn reopen(&self, parts: &[Vec<u8>]) -> io::Result<OwnedFd> {
        let mut here = self.root.try_clone()?;
        for part in parts {
            here = openat(&here, part.as_slice(), OPEN_DIR, Mode::empty())?;
        }
        Ok(here)
    }
}

/// The metadata of an entry; links are not followed.
pub(crate) fn stat(parent: BorrowedFd<'_>, name: &[u8]) -> io::Result<Stat> {
    Ok(statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// The metadata of an entry, if there is one; links are not followed.
pub(crate) fn find(parent: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<Stat>> {
    match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Creates and opens a directory with mode 755, whatever the umask.
pub(crate) fn create_dir_at(parent: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    mkdirat(parent, name, Mode::RWXU)?;
    let dir = openat(parent, name, OPEN_DIR, Mode::empty())?;
    rustix::fs::fchmod(&dir, Mode::from_raw_mode(0o755))?;
    Ok(dir)
}

/// Opens a directory that is not a link.
pub(crate) fn open_dir(parent: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    Ok(openat(parent, name, OPEN_DIR, Mode::empty())?)
}

fn remove(parent: BorrowedFd<'_>, name: &[u8], depth: usize) -> io::Result<()> {
    // More than a tree may have, so that whatever was unpacked can be removed.
    if depth > MAX_DEPTH + 8 {
        return Err(io::Error::other("the directories are nested too deep"));
    }
    let Some(stat) = find(parent, name)? else { return Ok(()) };
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return ignore_missing(unlinkat(parent, name, AtFlags::empty()));
    }
    let dir = match openat(parent, name, OPEN_DIR, Mode::empty()) {
        Err(Errno::ACCESS) => {
            chmodat(parent, name, Mode::RWXU, AtFlags::empty())?;
            openat(parent, name, OPEN_DIR, Mode::empty())?
        }
        other => other?,
    };
    // Images contain directories that their owner may not write; an unprivileged user must be able to empty them.
    if stat.st_mode & 0o700 != 0o700 {
        rustix::fs::fchmod(&dir, Mode::RWXU)?;
    }
    for entry in Dir::read_from(&dir)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            remove(dir.as_fd(), name, depth + 1)?;
        }
    }
    ignore_missing(unlinkat(parent, name, AtFlags::REMOVEDIR))
}

/// Another process removing the same tree is not an error.
pub(crate) fn ignore_missing(result: Result<(), Errno>) -> io::Result<()> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        other => Ok(other?),
    }
}
