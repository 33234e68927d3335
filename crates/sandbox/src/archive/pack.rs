//! Packs a file or tree as a tar stream.

use std::{
    ffi::OsStr,
    fs, io,
    io::{Read, Write},
    path::{Component, Path, PathBuf},
    time::UNIX_EPOCH,
};

use super::{MAX_DEPTH, OnStep, TOO_DEEP, stays_inside};
use crate::CopyReport;

/// Most entries of a directory: their names are sorted in memory.
const MAX_ENTRIES: usize = 4_000_000;

/// Writes a file or tree of the host as a tar stream in which it has the path `name`.
///
/// A link given as `source` is followed; links below it are copied as links, never what they lead to, and those that lead
/// out of the tree are reported. Devices, sockets and pipes are skipped and reported.
pub fn pack(
    source: &Path,
    name: &Path,
    out: impl Write,
    on_step: OnStep<'_>,
) -> io::Result<CopyReport> {
    pack_tree(source, name, out, Origin::Host, on_step)
}

/// Like [`pack`], for a tree of a sandbox, in which this is called: skips these directories and everything below them, and
/// what is nested too deeply, has too long a path, cannot be opened at once or vanishes meanwhile.
pub fn pack_sandbox(
    excluded: &[&Path],
    source: &Path,
    name: &Path,
    out: impl Write,
    on_step: OnStep<'_>,
) -> io::Result<CopyReport> {
    pack_tree(source, name, out, Origin::Sandbox { excluded }, on_step)
}

/// Writes one file, with its contents in memory, as a tar stream in which it has the path `name`.
pub fn pack_bytes(name: &Path, contents: &[u8], mode: u32, out: impl Write) -> io::Result<()> {
    let mut builder = tar::Builder::new(out);
    let mut header = tar::Header::new_gnu();
    header.set_mode(mode);
    header.set_size(contents.len() as u64);
    builder.append_data(&mut header, relative(name), contents)?;
    builder.into_inner()?.flush()
}

/// Whose tree is packed.
#[derive(Clone, Copy)]
enum Origin<'a> {
    /// The caller's: what cannot be packed is an error.
    Host,
    /// A sandbox's, which may change at any time: what cannot be packed is skipped.
    Sandbox { excluded: &'a [&'a Path] },
}

/// A path leads to something other than the regular file that was there.
#[derive(Debug, thiserror::Error)]
#[error("it is not a file any more")]
struct NoFile;

/// Whether an error in opening what was a file says that something else is there: another kind, a link, a socket.
fn is_replaced(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = error.raw_os_error();
    errno == Some(Errno::LOOP.raw_os_error())
        || errno == Some(Errno::NXIO.raw_os_error())
        || error.get_ref().is_some_and(|inner| inner.is::<NoFile>())
}

impl Origin<'_> {
    fn excludes(&self, path: &Path) -> bool {
        matches!(self, Self::Sandbox { excluded } if excluded.contains(&path))
    }

    /// Why an entry with this depth below the top is skipped.
    fn too_deep(&self, depth: usize) -> Option<&'static str> {
        (matches!(self, Self::Sandbox { .. }) && depth > MAX_DEPTH).then_some(TOO_DEEP)
    }

    /// Why an entry is skipped that cannot be opened.
    fn excuse(&self, error: &io::Error) -> Option<&'static str> {
        use io::ErrorKind::{InvalidFilename, NotADirectory, NotFound, WouldBlock};
        match (self, error.kind()) {
            (Self::Host, _) => None,
            (Self::Sandbox { .. }, NotFound | NotADirectory) => Some("it changed meanwhile"),
            (Self::Sandbox { .. }, _) if is_replaced(error) => Some("it changed meanwhile"),
            (Self::Sandbox { .. }, WouldBlock) => Some("a process has a lease on it"),
            (Self::Sandbox { .. }, InvalidFilename) => Some("its path is too long"),
            _ => None,
        }
    }
}

fn pack_tree(
    source: &Path,
    name: &Path,
    out: impl Write,
    origin: Origin<'_>,
    on_step: OnStep<'_>,
) -> io::Result<CopyReport> {
    let mut builder = tar::Builder::new(out);
    builder.mode(tar::HeaderMode::Complete);
    let top = &fs::canonicalize(source)?;
    let meta = fs::metadata(top)?;
    let report = CopyReport::default();
    let mut packer = Packer { builder, top, origin, on_step, report };
    packer.entry(top, &relative(name), &meta, 0)?;
    let Packer { builder, report, .. } = packer;
    builder.into_inner()?.flush()?;
    Ok(report)
}

struct Packer<'a, W: Write> {
    builder: tar::Builder<W>,
    top: &'a Path,
    origin: Origin<'a>,
    on_step: OnStep<'a>,
    report: CopyReport,
}

impl<W: Write> Packer<'_, W> {
    /// Packs an entry this deep below the top, and what is below it.
    fn entry(
        &mut self,
        source: &Path,
        name: &Path,
        meta: &fs::Metadata,
        depth: usize,
    ) -> io::Result<()> {
        (self.on_step)()?;
        let mut header = tar::Header::new_gnu();
        header.set_metadata(meta);
        let modified = meta.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        header.set_mtime(modified.map_or(0, |age| age.as_secs()));
        header.set_uid(0);
        header.set_gid(0);
        if meta.is_dir() {
            if name.components().next().is_some() {
                self.builder.append_data(&mut header, name, io::empty())?;
            }
            self.children(source, name, depth)?;
        } else if meta.is_symlink() {
            header.set_size(0);
            let Some(target) = self.unless_excused(fs::read_link(source), name)? else {
                return Ok(());
            };
            let path = source.strip_prefix(self.top).unwrap_or(source);
            if !stays_inside(path, &target) {
                self.report.note_outward_link(path.to_owned());
            }
            self.builder.append_link(&mut header, name, target)?;
        } else if meta.is_file() {
            let Some(file) = self.unless_excused(open_regular(source), name)? else {
                return Ok(());
            };
            let shrunk = match self.origin {
                Origin::Host => Shrunk::Fails,
                Origin::Sandbox { .. } => Shrunk::IsFilled(0),
            };
            let (left, on_step) = (meta.len(), self.on_step);
            let mut exact = ExactLength { inner: file, left, on_step, shrunk };
            self.builder.append_data(&mut header, name, &mut exact)?;
            if let Shrunk::IsFilled(missing @ 1..) = exact.shrunk {
                let why =
                    format!("its last {missing} bytes are zeros: it shrank while it was copied");
                self.report.skip(name.to_owned(), why);
            }
            self.report.files += 1;
            self.report.bytes += meta.len();
        } else {
            self.report.skip(name.to_owned(), "not a file, directory or link");
        }
        Ok(())
    }

    /// Packs the entries of a directory, sorted by name.
    fn children(&mut self, dir: &Path, name: &Path, depth: usize) -> io::Result<()> {
        let Some(children) = self.unless_excused(fs::read_dir(dir), name)? else { return Ok(()) };
        let mut names: Vec<Box<OsStr>> = Vec::new();
        for child in children {
            (self.on_step)()?;
            if names.len() == MAX_ENTRIES {
                let text = format!("a directory has more than {MAX_ENTRIES} entries");
                return Err(io::Error::other(text));
            }
            names.push(child?.file_name().into());
        }
        names.sort_unstable();
        for child in names {
            let (path, name) = (dir.join(&*child), name.join(&*child));
            if self.origin.excludes(&path) {
                self.report.skip(name, "not part of the files");
            } else if let Some(why) = self.origin.too_deep(depth + 1) {
                (self.on_step)()?;
                self.report.skip(name, why);
            } else if let Some(meta) = self.unless_excused(path.symlink_metadata(), &name)? {
                self.entry(&path, &name, &meta, depth + 1)?;
            }
        }
        Ok(())
    }

    /// The result; none where the entry is skipped because of its error.
    fn unless_excused<T>(&mut self, opened: io::Result<T>, name: &Path) -> io::Result<Option<T>> {
        match opened {
            Ok(opened) => Ok(Some(opened)),
            Err(error) => match self.origin.excuse(&error) {
                Some(why) => {
                    self.report.skip(name.to_owned(), why);
                    Ok(None)
                }
                None => Err(error),
            },
        }
    }
}

/// Opens a file that was checked to be a regular file. If it was replaced by a pipe or a link since, this neither waits
/// for it nor follows it; nor does it wait for a process with a lease on the file.
fn open_regular(path: &Path) -> io::Result<fs::File> {
    let mut options = fs::OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW;
        options.custom_flags(flags.bits() as i32);
    }
    let file = options.open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other(NoFile)) }
}

/// The path without its root, as tar needs it.
fn relative(path: &Path) -> PathBuf {
    path.components().filter(|c| matches!(c, Component::Normal(_))).collect()
}

/// Reads exactly the length in the header.
struct ExactLength<'a> {
    inner: fs::File,
    left: u64,
    on_step: OnStep<'a>,
    shrunk: Shrunk,
}

/// What happens with a file that becomes shorter while it is read. The archive must not become a broken one.
#[derive(Clone, Copy)]
enum Shrunk {
    /// It is an error.
    Fails,
    /// Its end is filled with zeros, so far this many: a log that is emptied must not keep all other files of a sandbox from
    /// being copied.
    IsFilled(u64),
}

impl Read for ExactLength<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (self.on_step)()?;
        let want = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let mut got = match self.shrunk {
            Shrunk::IsFilled(1..) => 0,
            _ => self.inner.read(&mut buffer[..want])?,
        };
        if got == 0 && want > 0 {
            let Shrunk::IsFilled(filled) = &mut self.shrunk else {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the file shrank while it was copied",
                ));
            };
            buffer[..want].fill(0);
            *filled += want as u64;
            got = want;
        }
        self.left -= got as u64;
        Ok(got)
    }
}
