//! What a sandbox has written, as overlayfs stores it: copied for a fork, packed for an image.
//!
//! In an upper directory a character device 0/0 stands for a removed file, and an attribute marks a
//! directory that hides everything below it.

use std::{
    collections::HashMap,
    ffi::{CStr, CString, OsStr},
    fs::File,
    io::{self, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    rc::Rc,
};

use rustix::{
    fs::{
        AtFlags, Dir, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid, XattrFlags,
        chownat, copy_file_range, fgetxattr, fsetxattr, ioctl_ficlone, linkat, mkdirat, mknodat,
        openat, readlinkat, statat, symlinkat, utimensat,
    },
    io::Errno,
};
use sandbox::archive::OnStep;

use super::PIECE;

/// Deepest tree that is accepted: copying takes a descriptor per level.
const MAX_DEPTH: usize = 500;
const OPAQUE: &CStr = c"user.overlay.opaque";
pub(super) const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Copies a whole upper directory into an empty one.
pub(crate) fn copy(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    on_step: OnStep<'_>,
) -> io::Result<()> {
    let from = openat(from, ".", DIRECTORY, Mode::empty())?;
    let top = openat(to, ".", DIRECTORY, Mode::empty())?;
    copy_attributes(&from, &top)?;
    let mut copier = Copier { top: to, linked: HashMap::new(), opened: None, on_step };
    copier.entries(&from, to, None, 0)
}

struct Copier<'a> {
    top: BorrowedFd<'a>,
    on_step: OnStep<'a>,
    /// The copies of what has several names, by inode.
    linked: HashMap<u64, Rc<Place>>,
    /// The directory of the last of them that was needed again.
    opened: Option<(Rc<Place>, OwnedFd)>,
}

/// Where a copy is: its name in a directory, which is `None` at the top. A path for each would take hundreds of times the
/// memory where directories are nested deeply.
struct Place {
    above: Option<Rc<Place>>,
    name: CString,
}

impl Place {
    fn new(above: Option<&Rc<Self>>, name: &CStr) -> Rc<Self> {
        Rc::new(Self { above: above.cloned(), name: name.to_owned() })
    }

    /// Opens this directory. Step by step: its path may be longer than any the kernel accepts.
    fn open(&self, top: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        let above = std::iter::successors(Some(self), |place| place.above.as_deref());
        let names: Vec<_> = above.map(|place| place.name.as_c_str()).collect();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut dir = openat(top, ".", flags, Mode::empty())?;
        for name in names.into_iter().rev() {
            dir = openat(&dir, name, flags, Mode::empty())?;
        }
        Ok(dir)
    }
}

impl Copier<'_> {
    /// Copies the entries of one directory, which is `at`.
    fn entries(
        &mut self,
        from: &OwnedFd,
        to: BorrowedFd<'_>,
        at: Option<&Rc<Place>>,
        depth: usize,
    ) -> io::Result<()> {
        if depth > MAX_DEPTH {
            return Err(io::Error::other("the directories are nested too deeply"));
        }
        each(from, |name, stat| {
            (self.on_step)()?;
            let kind = FileType::from_raw_mode(stat.st_mode);
            let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
            if kind == FileType::Directory {
                mkdirat(to, name, Mode::from_raw_mode(0o700))?;
                let (inner, copied) = (
                    openat(from, name, DIRECTORY, Mode::empty())?,
                    openat(to, name, DIRECTORY, Mode::empty())?,
                );
                let at = Place::new(at, name);
                self.entries(&inner, copied.as_fd(), Some(&at), depth + 1)?;
                copy_attributes(&inner, &copied)?;
                rustix::fs::fchown(&copied, owner(stat).0, owner(stat).1)?;
                rustix::fs::fchmod(&copied, mode)?;
                rustix::fs::futimens(&copied, &times(stat))?;
                return Ok(());
            }
            // Whatever its kind is: a copy for each name could take thousands of times the space.
            if stat.st_nlink > 1 {
                if let Some(first) = self.linked.get(&stat.st_ino) {
                    let first = Rc::clone(first);
                    let dir = self.open(first.above.as_ref())?;
                    return Ok(linkat(dir, first.name.as_c_str(), to, name, AtFlags::empty())?);
                }
                self.linked.insert(stat.st_ino, Place::new(at, name));
            }
            match kind {
                FileType::RegularFile => copy_file(from, to, (name, stat), self.on_step)?,
                FileType::Symlink => symlinkat(readlinkat(from, name, Vec::new())?, to, name)?,
                _ => mknodat(to, name, kind, mode, stat.st_rdev)?,
            }
            if kind != FileType::RegularFile {
                chownat(to, name, owner(stat).0, owner(stat).1, AtFlags::SYMLINK_NOFOLLOW)?;
            }
            Ok(utimensat(to, name, &times(stat), AtFlags::SYMLINK_NOFOLLOW)?)
        })
    }

    /// Opens a directory of the copy.
    fn open(&mut self, at: Option<&Rc<Place>>) -> io::Result<BorrowedFd<'_>> {
        let Some(at) = at else { return Ok(self.top) };
        let known = self.opened.take().filter(|(place, _)| Rc::ptr_eq(place, at));
        let opened = match known {
            Some(known) => known,
            None => (Rc::clone(at), at.open(self.top)?),
        };
        Ok(self.opened.insert(opened).1.as_fd())
    }
}

fn copy_file(
    from: &OwnedFd,
    to: BorrowedFd<'_>,
    (name, stat): (&CStr, &Stat),
    on_step: OnStep<'_>,
) -> io::Result<()> {
    let write = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let source = open_regular(from, name)?;
    let copied = openat(to, name, write, Mode::from_raw_mode(0o600))?;
    // Instant on file systems that share blocks.
    if ioctl_ficlone(&copied, &source).is_err() {
        copy_content(&source, &copied, stat.st_size as u64, on_step)?;
    }
    copy_attributes(&source, &copied)?;
    rustix::fs::fchown(&copied, owner(stat).0, owner(stat).1)?;
    Ok(rustix::fs::fchmod(&copied, Mode::from_raw_mode(stat.st_mode & 0o7777))?)
}

/// Opens a regular file. If it was replaced by a pipe, it neither waits for it nor reads it.
pub(super) fn open_regular(dir: &OwnedFd, name: &CStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(dir, name, flags, Mode::empty())?;
    match FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) {
        FileType::RegularFile => Ok(file),
        _ => Err(io::Error::other("a file changed while it was copied")),
    }
}

fn copy_content(
    source: &OwnedFd,
    copied: &OwnedFd,
    size: u64,
    on_step: OnStep<'_>,
) -> io::Result<()> {
    use rustix::fs::{SeekFrom, ftruncate, seek};
    ftruncate(copied, size)?;
    let mut at = 0u64;
    // Copies only data, so that holes stay holes.
    while at < size {
        let start = match seek(source, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => break,
            Err(_) => at,
        };
        let end = seek(source, SeekFrom::Hole(start)).unwrap_or(size).min(size);
        let (mut read, mut write) = (start, start);
        while read < end {
            on_step()?;
            let chunk = usize::try_from(end - read).unwrap_or(usize::MAX).min(PIECE as usize);
            match copy_file_range(source, Some(&mut read), copied, Some(&mut write), chunk) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                // Each has a file system of its own.
                Err(Errno::XDEV) => {
                    copy_bytes(source, copied, read..end, on_step)?;
                    read = end;
                }
                Err(error) => return Err(error.into()),
            }
        }
        at = end.max(start + 1);
    }
    Ok(())
}

/// Copies a range of one file to the same range of another.
fn copy_bytes(
    source: &OwnedFd,
    copied: &OwnedFd,
    range: std::ops::Range<u64>,
    on_step: OnStep<'_>,
) -> io::Result<()> {
    let mut buffer = vec![0u8; 1 << 17];
    let mut at = range.start;
    while at < range.end {
        on_step()?;
        let most = buffer.len().min(usize::try_from(range.end - at).unwrap_or(usize::MAX));
        let read = rustix::io::pread(source, &mut buffer[..most], at)?;
        let mut written = 0;
        while written < read {
            written += rustix::io::pwrite(copied, &buffer[written..read], at + written as u64)?;
        }
        if read == 0 {
            break;
        }
        at += read as u64;
    }
    Ok(())
}

fn copy_attributes(from: &OwnedFd, to: &OwnedFd) -> io::Result<()> {
    // By its name: a command can give a directory more attributes than the kernel lists.
    if hides_all(from) {
        fsetxattr(to, OPAQUE, b"y", XattrFlags::empty())?;
    }
    let mut names = vec![0u8; 1 << 16];
    let length = rustix::fs::flistxattr(from, &mut names).unwrap_or(0);
    for name in names[..length].split(|b| *b == 0).filter(|name| name.starts_with(b"user.")) {
        let mut value = vec![0u8; 1 << 16];
        if let Ok(size) = fgetxattr(from, name, &mut value) {
            fsetxattr(to, name, &value[..size], XattrFlags::empty())?;
        }
    }
    Ok(())
}

fn owner(stat: &Stat) -> (Option<Uid>, Option<Gid>) {
    (Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)))
}

fn times(stat: &Stat) -> Timestamps {
    let accessed = Timespec { tv_sec: stat.st_atime, tv_nsec: stat.st_atime_nsec as _ };
    let modified = Timespec { tv_sec: stat.st_mtime, tv_nsec: stat.st_mtime_nsec as _ };
    Timestamps { last_access: accessed, last_modification: modified }
}

/// Packs upper directories, each below its mount point, as one layer of an OCI image, without one file.
pub(crate) fn pack<'a>(
    uppers: impl Iterator<Item = (&'a Path, &'a OwnedFd)>,
    without: Option<&Path>,
    stream: File,
    on_step: OnStep<'_>,
) -> io::Result<()> {
    let builder = tar::Builder::new(io::BufWriter::with_capacity(1 << 16, stream));
    let mut packer = Packer { builder, without, linked: HashMap::new(), on_step };
    for (target, upper) in uppers {
        let upper = openat(upper, ".", DIRECTORY, Mode::empty())?;
        let mut above = PathBuf::new();
        for name in target {
            above.push(name);
            let stat = rustix::fs::stat(Path::new("/").join(&above))?;
            packer.builder.append_data(&mut header(&stat), &above, io::empty())?;
        }
        packer.entries(&upper, target, 0)?;
    }
    packer.builder.into_inner()?.flush()
}

/// How the name of a whiteout in an image begins: the rest is the name of what it hides.
const WHITEOUT: &[u8] = b".wh.";

struct Packer<'a, W: Write> {
    builder: tar::Builder<W>,
    /// The file that is left out.
    without: Option<&'a Path>,
    /// The first path of each file or link with several names, which is stored once.
    linked: HashMap<(u64, u64), PathBuf>,
    on_step: OnStep<'a>,
}

impl<W: Write> Packer<'_, W> {
    fn entries(&mut self, dir: &OwnedFd, at: &Path, depth: usize) -> io::Result<()> {
        if depth > MAX_DEPTH {
            return Err(io::Error::other("the directories are nested too deeply"));
        }
        if hides_all(dir) {
            let mark = at.join(".wh..wh..opq");
            self.builder.append_data(&mut empty_file(), mark, io::empty())?;
        }
        each(dir, |name, stat| {
            (self.on_step)()?;
            // An image cannot hold such a file: it would hide another one there, or make the image unreadable.
            if name.to_bytes().starts_with(WHITEOUT) {
                return Ok(());
            }
            let path = at.join(OsStr::from_bytes(name.to_bytes()));
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => {
                    self.builder.append_data(&mut header(stat), &path, io::empty())?;
                    let inner = openat(dir, name, DIRECTORY, Mode::empty())?;
                    self.entries(&inner, &path, depth + 1)
                }
                _ if self.without == Some(path.as_path()) => Ok(()),
                FileType::RegularFile | FileType::Symlink => self.file(dir, name, stat, path),
                FileType::CharacterDevice if stat.st_rdev == 0 => {
                    let mut hidden = WHITEOUT.to_vec();
                    hidden.extend_from_slice(name.to_bytes());
                    let hidden = at.join(OsStr::from_bytes(&hidden));
                    self.builder.append_data(&mut empty_file(), hidden, io::empty())
                }
                // Sockets and pipes are skipped: they are useless without their processes.
                _ => Ok(()),
            }
        })
    }

    /// Packs a file or link: another name of one that is packed already as a hard link to it.
    fn file(&mut self, dir: &OwnedFd, name: &CStr, stat: &Stat, path: PathBuf) -> io::Result<()> {
        let mut header = header(stat);
        if stat.st_nlink > 1 {
            if let Some(first) = self.linked.get(&(stat.st_dev, stat.st_ino)) {
                header.set_entry_type(tar::EntryType::Link);
                header.set_size(0);
                return self.builder.append_link(&mut header, &path, first);
            }
            self.linked.insert((stat.st_dev, stat.st_ino), path.clone());
        }
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            let target = readlinkat(dir, name, Vec::new())?;
            let target = OsStr::from_bytes(target.to_bytes());
            return self.builder.append_link(&mut header, &path, target);
        }
        let left = u64::try_from(stat.st_size).unwrap_or(0);
        let file = Steps { file: open_regular(dir, name)?.into(), left, on_step: self.on_step };
        self.builder.append_data(&mut header, &path, file)
    }
}

/// A file that is read step by step, with exactly the length in its header: what follows must not be taken for another
/// entry if it grows.
struct Steps<'a> {
    file: File,
    left: u64,
    on_step: OnStep<'a>,
}

impl Read for Steps<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (self.on_step)()?;
        let want = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let got = self.file.read(&mut buffer[..want])?;
        if got == 0 && want > 0 {
            return Err(io::Error::other("a file shrank while it was saved"));
        }
        self.left -= got as u64;
        Ok(got)
    }
}

fn empty_file() -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o600);
    header.set_size(0);
    header
}

fn header(stat: &Stat) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    let kind = FileType::from_raw_mode(stat.st_mode);
    header.set_entry_type(match kind {
        FileType::Directory => tar::EntryType::Directory,
        FileType::Symlink => tar::EntryType::Symlink,
        _ => tar::EntryType::Regular,
    });
    header.set_mode(stat.st_mode & 0o7777);
    header.set_uid(u64::from(stat.st_uid));
    header.set_gid(u64::from(stat.st_gid));
    header.set_mtime(stat.st_mtime.max(0) as u64);
    header.set_size(if kind == FileType::RegularFile { stat.st_size as u64 } else { 0 });
    header
}

/// Whether a directory hides everything that lower layers have in its place.
pub(super) fn hides_all(dir: &OwnedFd) -> bool {
    let mut mark = [0u8; 1];
    fgetxattr(dir, OPAQUE, &mut mark) == Ok(1) && mark[0] == b'y'
}

/// Calls `visit` for every entry of a directory.
fn each(dir: &OwnedFd, mut visit: impl FnMut(&CStr, &Stat) -> io::Result<()>) -> io::Result<()> {
    let mut entries = Dir::new(openat(dir, ".", DIRECTORY, Mode::empty())?)?;
    while let Some(entry) = entries.read() {
        let entry = entry?;
        let name = entry.file_name();
        if name != c"." && name != c".." {
            let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
            visit(name, &stat)?;
        }
    }
    Ok(())
}
