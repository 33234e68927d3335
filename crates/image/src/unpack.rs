//! Unpacks a layer's untrusted tar stream into a directory that overlayfs can stack.
//!
//! No entry affects anything outside the directory; devices and extended attributes are dropped. Knows nothing of images
//! and digests.

use std::{
    io,
    io::{Read, Seek, SeekFrom, Write},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, Uid, chownat, fchmod,
    linkat, openat, symlinkat, utimensat,
};

use crate::{
    overlay,
    tar_stream::{Entry, Kind, TarError, TarStream},
    tree::{self, Missing, Tree},
};

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
/// The prefix of other markers of AUFS, which have no meaning elsewhere.
const AUFS_MARKER: &[u8] = b".wh..wh.";
/// The most bytes of directory paths stored until the end.
const MAX_PENDING: usize = 64 << 20;

/// Why a layer cannot be unpacked.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// The archive is invalid.
    #[error(transparent)]
    Tar(#[from] TarError),
    /// An unacceptable name or target of an entry.
    #[error("the entry `{path}` is refused: {why}")]
    Refused {
        /// The entry's name, shortened.
        path: String,
        /// What is wrong.
        why: &'static str,
    },
    /// A file system operation failed.
    #[error("cannot unpack `{path}`")]
    Entry {
        /// The entry's name, shortened.
        path: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

/// Who owns the unpacked files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// The owners in the archive; requires root.
    Archive,
    /// This process's user.
    CurrentUser,
}

impl Ownership {
    /// The archive's owners if this process can set them.
    pub(crate) fn possible() -> Self {
        if rustix::process::geteuid().is_root() { Self::Archive } else { Self::CurrentUser }
    }
}

/// What was unpacked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unpacked {
    /// Entries that were unpacked.
    pub(crate) entries: u64,
    /// Bytes of file data.
    pub(crate) bytes: u64,
    /// Devices and unknown types, skipped.
    pub(crate) skipped: u64,
}

/// Unpacks a whole stream into an existing empty directory. The rest of the stream is left unread.
pub(crate) fn unpack<R: Read>(
    stream: &mut TarStream<R>,
    root: &Path,
    ownership: Ownership,
) -> Result<Unpacked, UnpackError> {
    let tree = Tree::open(root).map_err(at(b"/"))?;
    let mut unpacker = Unpacker {
        tree,
        ownership,
        dirs: Vec::new(),
        pending_bytes: 0,
        report: Unpacked::default(),
    };
    while let Some(entry) = stream.next()? {
        unpacker.entry(&entry, stream)?;
    }
    unpacker.finish_dirs()?;
    Ok(unpacker.report)
}

/// A directory whose mode and time are set last, because filling it needs and changes them.
struct PendingDir {
    path: Vec<u8>,
    mode: u32,
    mtime: (i64, u32),
}

struct Unpacker {
    tree: Tree,
    ownership: Ownership,
    dirs: Vec<PendingDir>,
    pending_bytes: usize,
    report: Unpacked,
}

impl Unpacker {
    fn entry<R: Read>(
        &mut self,
        entry: &Entry,
        data: &mut TarStream<R>,
    ) -> Result<(), UnpackError> {
        let parts = split(&entry.path)?;
        let fail = at(&entry.path);
        let Some((&name, above)) = parts.split_last() else {
            // The root itself, which must be a directory.
            if entry.kind != Kind::Dir {
                return Err(refused(&entry.path, "it would replace the root"));
            }
            let root = self.tree.root().try_clone_to_owned().map_err(fail)?;
            return self.finish_later(entry, root.as_fd(), &parts);
        };
        if matches!(entry.kind, Kind::Device | Kind::Unknown) {
            self.report.skipped += 1;
            return Ok(());
        }
        let parent = self.tree.dir(above, Missing::Create).map_err(fail)?;
        self.report.entries += 1;
        if name.starts_with(WHITEOUT) {
            return self.whiteout(&entry.path, parent.as_fd(), name);
        }
        match entry.kind {
            Kind::Dir => {
                let dir = self.dir(parent.as_fd(), name).map_err(at(&entry.path))?;
                self.finish_later(entry, dir.as_fd(), &parts)
            }
            Kind::File => self.file(entry, parent.as_fd(), name, data).map_err(at(&entry.path)),
            Kind::Symlink => self.symlink(entry, parent.as_fd(), name).map_err(at(&entry.path)),
            Kind::HardLink => self.hard_link(entry, parent.as_fd(), name),
            Kind::Fifo => self.fifo(entry, parent.as_fd(), name).map_err(at(&entry.path)),
            Kind::Device | Kind::Unknown => Ok(()),
        }
    }

    fn whiteout(
        &mut self,
        path: &[u8],
        parent: BorrowedFd<'_>,
        name: &[u8],
    ) -> Result<(), UnpackError> {
        if name == OPAQUE {
            return overlay::make_opaque(parent).map_err(at(path));
        }
        if name.starts_with(AUFS_MARKER) {
            return Ok(());
        }
        let removed = &name[WHITEOUT.len()..];
        if matches!(removed, b"" | b"." | b"..") {
            return Err(refused(path, "it removes no name"));
        }
        let result = match tree::find(parent, removed) {
            Ok(None) => overlay::whiteout(parent, removed),
            // This layer replaces the directory: only the lower layers' content is removed.
            Ok(Some(stat)) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
                tree::open_dir(parent, removed).and_then(|dir| overlay::make_opaque(dir.as_fd()))
            }
            Ok(Some(_)) => Ok(()),
            Err(error) => Err(error),
        };
        result.map_err(at(path))
    }

    fn dir(&mut self, parent: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
        match tree::find(parent, name)?.map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            Some(FileType::Directory) => tree::open_dir(parent, name),
            Some(kind) => {
                self.tree.remove(parent, name)?;
                let dir = tree::create_dir_at(parent, name)?;
                if kind == FileType::CharacterDevice {
                    overlay::make_opaque(dir.as_fd())?;
                }
                Ok(dir)
            }
            None => tree::create_dir_at(parent, name),
        }
    }

    fn file<R: Read>(
        &mut self,
        entry: &Entry,
        parent: BorrowedFd<'_>,
        name: &[u8],
        data: &mut TarStream<R>,
    ) -> io::Result<()> {
        self.clear(parent, name)?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = openat(parent, name, flags, Mode::RUSR | Mode::WUSR)?;
        let mut file = std::fs::File::from(fd);
        match &entry.sparse {
            None => {
                let got = io::copy(data, &mut file)?;
                self.report.bytes += got;
            }
            Some((length, pieces)) => {
                for &(offset, size) in pieces {
                    file.seek(SeekFrom::Start(offset))?;
                    self.report.bytes += io::copy(&mut data.by_ref().take(size), &mut file)?;
                }
                file.set_len(*length)?;
            }
        }
        file.flush()?;
        self.own(entry, parent, name)?;
        fchmod(&file, mode_of(entry.mode))?;
        touch(parent, name, entry.mtime)
    }

    fn symlink(&mut self, entry: &Entry, parent: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
        self.clear(parent, name)?;
        symlinkat(entry.link.as_slice(), parent, name)?;
        self.own(entry, parent, name)?;
        touch(parent, name, entry.mtime)
    }

    fn hard_link(
        &mut self,
        entry: &Entry,
        parent: BorrowedFd<'_>,
        name: &[u8],
    ) -> Result<(), UnpackError> {
        let parts = split(&entry.link)?;
        let fail = at(&entry.path);
        let Some((&old, above)) = parts.split_last() else {
            return Err(refused(&entry.path, "it links to the root"));
        };
        let from = self.tree.dir(above, Missing::Fail).map_err(at(&entry.path))?;
        let there = tree::find(from.as_fd(), old).map_err(at(&entry.path))?;
        let Some(there) = there else {
            return Err(refused(&entry.path, "it links to a file that the layer does not contain"));
        };
        if !matches!(
            FileType::from_raw_mode(there.st_mode),
            FileType::RegularFile | FileType::Symlink | FileType::Fifo
        ) {
            return Err(refused(&entry.path, "it links to a directory"));
        }
        let mut link = || -> io::Result<()> {
            if let Some(here) = tree::find(parent, name)?
                && (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)
            {
                return Ok(());
            }
            self.clear(parent, name)?;
            linkat(&from, old, parent, name, AtFlags::empty())?;
            Ok(())
        };
        link().map_err(fail)
    }

    fn fifo(&mut self, entry: &Entry, parent: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
        self.clear(parent, name)?;
        overlay::make_fifo(parent, name)?;
        self.own(entry, parent, name)?;
        touch(parent, name, entry.mtime)
    }

    fn clear(&mut self, parent: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
        match tree::find(parent, name)? {
            Some(_) => self.tree.remove(parent, name),
            None => Ok(()),
        }
    }

    fn own(&self, entry: &Entry, parent: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
        if self.ownership == Ownership::CurrentUser {
            return Ok(());
        }
        let id = |id: u64| {
            // For the kernel the largest number means "do not change".
            u32::try_from(id).ok().filter(|&id| id != u32::MAX).ok_or(io::ErrorKind::InvalidData)
        };
        let (uid, gid) = (Uid::from_raw(id(entry.uid)?), Gid::from_raw(id(entry.gid)?));
        chownat(parent, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(())
    }

    fn finish_later(
        &mut self,
        entry: &Entry,
        dir: BorrowedFd<'_>,
        parts: &[&[u8]],
    ) -> Result<(), UnpackError> {
        self.own(entry, dir, b".").map_err(at(&entry.path))?;
        let path = parts.join(&b'/');
        self.pending_bytes += path.len() + size_of::<PendingDir>();
        if self.pending_bytes > MAX_PENDING {
            return Err(refused(&entry.path, "the layer contains too many directories"));
        }
        self.dirs.push(PendingDir { path, mode: entry.mode, mtime: entry.mtime });
        Ok(())
    }

    fn finish_dirs(&mut self) -> Result<(), UnpackError> {
        // Deepest first: a directory that loses its owner's rights is not needed any more by then.
        for dir in std::mem::take(&mut self.dirs).into_iter().rev() {
            let parts = split(&dir.path)?;
            let mut finish = || -> io::Result<()> {
                // Replaced by a later entry, or moved behind a link: then there is nothing to set.
                let Ok(fd) = self.tree.dir(&parts, Missing::Fail) else { return Ok(()) };
                fchmod(&fd, mode_of(dir.mode))?;
                touch(fd.as_fd(), b".", dir.mtime)
            };
            finish().map_err(at(&dir.path))?;
        }
        Ok(())
    }
}

/// The names in an archive path, which is relative to the root even when it starts with `/`.
fn split(path: &[u8]) -> Result<Vec<&[u8]>, UnpackError> {
    let mut parts = Vec::new();
    for part in path.split(|&b| b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => return Err(refused(path, "its name leads out of its directory")),
            part if part.contains(&0) => return Err(refused(path, "its name contains a NUL byte")),
            part => parts.push(part),
        }
    }
    Ok(parts)
}

fn mode_of(mode: u32) -> Mode {
    #[cfg(target_os = "macos")]
    let mode = mode as u16;
    Mode::from_raw_mode(mode)
}

fn touch(parent: BorrowedFd<'_>, name: &[u8], (seconds, nanos): (i64, u32)) -> io::Result<()> {
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT as _ },
        last_modification: Timespec { tv_sec: seconds, tv_nsec: nanos.into() },
    };
    Ok(utimensat(parent, name, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

fn at(path: &[u8]) -> impl FnOnce(io::Error) -> UnpackError + Copy {
    move |source| UnpackError::Entry { path: shorten(path), source }
}

fn refused(path: &[u8], why: &'static str) -> UnpackError {
    UnpackError::Refused { path: shorten(path), why }
}

fn shorten(path: &[u8]) -> String {
    String::from_utf8_lossy(&path[..path.len().min(120)]).escape_debug().to_string()
}

#[cfg(test)]
#[path = "unpack_tests.rs"]
mod tests;
