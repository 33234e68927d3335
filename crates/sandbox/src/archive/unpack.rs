//! Unpacks a tar stream that nobody vouches for.

use std::{
    cell::Cell,
    fs, io,
    io::{Read, Seek, Write},
    path::{Component, Path, PathBuf},
    rc::Rc,
};

use cap_std::{ambient_authority, fs::Dir};

use super::{
    MAX_DEPTH, OnStep, TOO_DEEP,
    removal::{Partial, Unfinished},
    stays_inside,
};
use crate::CopyReport;

/// Most bytes of the headers of one entry: its names, extended attributes, and the map of a sparse file. They are read
/// into memory.
const MAX_HEADERS: u64 = 1 << 20;

/// Bytes charged for an entry besides its content: for its name, and an inode.
const PER_ENTRY: u64 = 256;

/// Content takes whole blocks of the host's file system.
const BLOCK: u64 = 4096;

/// Targets of links up to this length are stored in the inode.
const MAX_INLINE_TARGET: usize = 59;

/// Unpacks a tar stream of one file or tree to exactly `dest`, whatever its name in the stream. Fails once the entries take
/// more than this many bytes together: files and long targets of links in whole blocks, holes included, a block for a
/// directory, and 256 bytes for each entry.
///
/// A new destination appears complete or not at all, with the directories above it; an existing directory is added to.
/// An empty stream creates nothing. Data after the end of the archive is read, so that its writer does not block.
pub fn unpack(
    bytes: u64,
    stream: impl Read,
    dest: &Path,
    on_step: OnStep<'_>,
) -> io::Result<CopyReport> {
    // Declared first, so that it ends after what was written is removed.
    let _unfinished = Unfinished::begin();
    if dest.is_dir() {
        return Unpacking::within(bytes, on_step).run(stream, dest);
    }
    let partial = Partial::beside(dest)?;
    let report = Unpacking::within(bytes, on_step).run(stream, partial.path())?;
    if partial.path().symlink_metadata().is_ok() {
        fs::rename(partial.path(), dest)?;
    }
    Ok(report)
}

/// A stream of which only so much can be read before more is allowed.
struct Metered<R> {
    inner: R,
    allowed: Rc<Cell<u64>>,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        match self.allowed.get().checked_sub(read as u64) {
            Some(left) => self.allowed.set(left),
            None => {
                let text = format!("the headers of an entry have more than {MAX_HEADERS} bytes");
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
        }
        Ok(read)
    }
}

struct Unpacking<'a> {
    /// Most bytes of all entries together.
    most: u64,
    /// Those of the entries so far.
    charged: u64,
    on_step: OnStep<'a>,
    report: CopyReport,
}

impl<'a> Unpacking<'a> {
    fn within(most: u64, on_step: OnStep<'a>) -> Self {
        Self { most, charged: 0, on_step, report: CopyReport::default() }
    }
}

impl Unpacking<'_> {
    /// Charges an entry with content of this size. It need not be unpacked: a stream of nothing else would not end.
    fn charge(&mut self, content: u64) -> io::Result<()> {
        let content = content.checked_next_multiple_of(BLOCK).unwrap_or(u64::MAX);
        self.charged = self.charged.saturating_add(content).saturating_add(PER_ENTRY);
        if self.charged > self.most {
            let text = format!("the files take more than {} bytes", self.most);
            return Err(io::Error::other(text));
        }
        Ok(())
    }

    fn run(mut self, stream: impl Read, dest: &Path) -> io::Result<CopyReport> {
        let allowed = Rc::new(Cell::new(0));
        let mut archive =
            tar::Archive::new(Metered { inner: stream, allowed: Rc::clone(&allowed) });
        let mut tree: Option<Dir> = None;
        let mut entries = archive.entries()?;
        loop {
            (self.on_step)()?;
            // The entry before was read to its end, so what `next` reads are headers.
            allowed.set(MAX_HEADERS);
            let Some(entry) = entries.next() else { break };
            let mut entry = entry?;
            allowed.set(u64::MAX);
            self.charge(content_size(&entry)?)?;
            self.entry(&mut entry, dest, &mut tree)?;
            self.finish(&mut entry)?;
        }
        allowed.set(u64::MAX);
        let mut rest = archive.into_inner();
        self.finish(&mut rest)?;
        Ok(self.report)
    }

    /// Reads to the end.
    fn finish(&self, from: &mut impl Read) -> io::Result<()> {
        let mut buffer = [0u8; 1 << 13];
        while from.read(&mut buffer)? > 0 {
            (self.on_step)()?;
        }
        Ok(())
    }

    fn entry<R: Read>(
        &mut self,
        entry: &mut tar::Entry<'_, R>,
        dest: &Path,
        tree: &mut Option<Dir>,
    ) -> io::Result<()> {
        let path = entry.path()?.into_owned();
        let Some(inner) = inside(&path) else {
            self.report.skip(path, "its name leads out of the tree");
            return Ok(());
        };
        if inner.as_os_str().is_empty() {
            *tree = self.top(entry, dest)?;
            return Ok(());
        }
        if inner.components().count() > MAX_DEPTH {
            self.report.skip(inner, TOO_DEEP);
            return Ok(());
        }
        let Some(root) = tree else {
            return Err(io::Error::other("the stream does not start with the copied path itself"));
        };
        match self.below(entry, root, &inner) {
            Err(Refusal::Skip(why)) => {
                self.report.skip(inner, why);
                Ok(())
            }
            Err(Refusal::Io(error)) => Err(error),
            Ok(()) => Ok(()),
        }
    }

    /// Unpacks the entry of `dest` itself: a directory to fill, or a single file.
    fn top<R: Read>(
        &mut self,
        entry: &mut tar::Entry<'_, R>,
        dest: &Path,
    ) -> io::Result<Option<Dir>> {
        if entry.header().entry_type().is_dir() {
            fs::create_dir_all(dest)?;
            return Dir::open_ambient_dir(dest, ambient_authority()).map(Some);
        }
        if !is_file(entry.header().entry_type()) {
            return Err(io::Error::other("it is neither a file nor a directory"));
        }
        let name =
            dest.file_name().ok_or_else(|| io::Error::other("the destination has no name"))?;
        fs::create_dir_all(parent_of(dest))?;
        let dir = Dir::open_ambient_dir(parent_of(dest), ambient_authority())?;
        self.file(entry, &dir, Path::new(name)).map(|()| None)
    }

    /// Creates the directories above a path. A link among them is refused.
    fn create_parents(&mut self, root: &Dir, path: &Path) -> Result<(), Refusal> {
        let mut above = PathBuf::new();
        for component in path.parent().into_iter().flat_map(Path::components) {
            above.push(component);
            match root.symlink_metadata(&above) {
                Ok(meta) if meta.is_dir() => {}
                Ok(_) => return Err(Refusal::Skip("its directory is not a directory")),
                Err(_) => {
                    self.charge(BLOCK)?;
                    root.create_dir(&above)?;
                }
            }
        }
        Ok(())
    }

    fn below<R: Read>(
        &mut self,
        entry: &mut tar::Entry<'_, R>,
        root: &Dir,
        path: &Path,
    ) -> Result<(), Refusal> {
        self.create_parents(root, path)?;
        let kind = entry.header().entry_type();
        let existing = root.symlink_metadata(path).ok();
        if kind.is_dir() {
            return match existing {
                Some(meta) if meta.is_dir() => Ok(()),
                Some(_) => Err(Refusal::Skip("something that is not a directory is in its place")),
                None => Ok(root.create_dir(path)?),
            };
        }
        if existing.is_some_and(|meta| meta.is_dir()) {
            return Err(Refusal::Skip("a directory is in its place"));
        }
        let clear = || match root.remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        };
        if is_file(kind) {
            clear()?;
            Ok(self.file(entry, root, path)?)
        } else if kind.is_symlink() {
            let target = entry.link_name()?.ok_or(Refusal::Skip("a link without a target"))?;
            if !stays_inside(path, &target) {
                return Err(Refusal::Skip("a link that leads out of the tree"));
            }
            clear()?;
            put_link(root, &target, path)
        } else if kind.is_hard_link() {
            let target = entry.link_name()?.ok_or(Refusal::Skip("a link without a target"))?;
            let target =
                inside(&target).ok_or(Refusal::Skip("a link that leads out of the tree"))?;
            if !root.symlink_metadata(&target).is_ok_and(|meta| meta.is_file()) {
                return Err(Refusal::Skip("a hard link to something that was not copied"));
            }
            clear()?;
            self.report.files += 1;
            Ok(root.hard_link(&target, root, path)?)
        } else {
            Err(Refusal::Skip("not a file, directory or link"))
        }
    }

    fn file<R: Read>(
        &mut self,
        entry: &mut tar::Entry<'_, R>,
        dir: &Dir,
        path: &Path,
    ) -> io::Result<()> {
        let mut options = cap_std::fs::OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        {
            use cap_std::fs::OpenOptionsExt;
            // Never setuid, and always readable by the owner.
            options.mode(entry.header().mode().unwrap_or(0o644) & 0o777 | 0o600);
        }
        let mut file = dir.open_with(path, &options)?;
        self.report.bytes += copy_sparse(entry, &mut file, self.on_step).inspect_err(|_| {
            // A part of a file must not be taken for the whole.
            let _ = dir.remove_file(path);
        })?;
        self.report.files += 1;
        Ok(())
    }
}

/// The bytes that an entry takes on the host besides its inode, before they are rounded to blocks.
fn content_size<R: Read>(entry: &tar::Entry<'_, R>) -> io::Result<u64> {
    let kind = entry.header().entry_type();
    Ok(if kind.is_dir() {
        BLOCK
    } else if kind.is_symlink() {
        let target = entry.link_name_bytes().map_or(0, |target| target.len());
        if target > MAX_INLINE_TARGET { target as u64 } else { 0 }
    } else {
        entry.size()
    })
}

/// Why an entry was not unpacked.
enum Refusal {
    Skip(&'static str),
    Io(io::Error),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The directory of a path.
fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(unix)]
fn put_link(root: &Dir, target: &Path, path: &Path) -> Result<(), Refusal> {
    Ok(root.symlink(target, path)?)
}

#[cfg(not(unix))]
fn put_link(_: &Dir, _: &Path, _: &Path) -> Result<(), Refusal> {
    Err(Refusal::Skip("this system has no such links"))
}

/// Copies, leaving holes where the content is zero, so that a sparse file stays sparse.
fn copy_sparse(
    from: &mut impl Read,
    to: &mut cap_std::fs::File,
    on_step: OnStep<'_>,
) -> io::Result<u64> {
    let mut buffer = vec![0u8; 1 << 16];
    let mut total = 0u64;
    loop {
        on_step()?;
        let mut filled = 0;
        while filled < buffer.len() {
            match from.read(&mut buffer[filled..])? {
                0 => break,
                n => filled += n,
            }
        }
        let chunk = &buffer[..filled];
        if filled == buffer.len() && chunk.iter().all(|byte| *byte == 0) {
            to.seek(io::SeekFrom::Current(filled as i64))?;
        } else {
            to.write_all(chunk)?;
        }
        total += filled as u64;
        if filled < buffer.len() {
            to.set_len(total)?;
            return Ok(total);
        }
    }
}

fn is_file(kind: tar::EntryType) -> bool {
    kind.is_file() || kind.is_gnu_sparse() || kind.is_contiguous()
}

/// The path below the stream's first component; `None` if it leads out of the tree.
fn inside(path: &Path) -> Option<PathBuf> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(name),
            Component::CurDir | Component::RootDir => {}
            Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    Some(names.into_iter().skip(1).collect())
}
