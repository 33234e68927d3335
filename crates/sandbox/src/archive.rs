//! Copies trees between the host and a sandbox as tar streams.
//!
//! Packing reads the host's own files. Unpacking does not trust the stream, which comes from a sandbox: no name, link or
//! device in it may affect anything but the destination.

use std::{
    fs, io,
    io::{Read, Seek, Write},
    path::{Component, Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    time::UNIX_EPOCH,
};

use cap_std::{ambient_authority, fs::Dir};

use crate::{CopyReport, Skipped};

/// Writes a file or tree of the host as a tar stream in which it has the path `name`.
///
/// A link given as `source` is followed; links below it are copied as links, never what they lead to, and those that lead
/// out of the tree are reported. Devices, sockets and pipes are skipped and reported.
pub fn pack(source: &Path, name: &Path, out: impl Write) -> io::Result<CopyReport> {
    pack_without(&[], source, name, out)
}

/// Like [`pack`], but skips these directories and everything below them.
pub fn pack_without(
    excluded: &[&Path],
    source: &Path,
    name: &Path,
    out: impl Write,
) -> io::Result<CopyReport> {
    let mut report = CopyReport::default();
    let mut builder = tar::Builder::new(out);
    builder.mode(tar::HeaderMode::Complete);
    let source = &fs::canonicalize(source)?;
    let meta = fs::metadata(source)?;
    let tree = Tree { top: source, excluded };
    pack_entry(&mut builder, (source, name), &meta, &tree, &mut report)?;
    builder.into_inner()?.flush()?;
    Ok(report)
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

/// A tree that is packed.
struct Tree<'a> {
    top: &'a Path,
    /// Directories that are skipped.
    excluded: &'a [&'a Path],
}

fn pack_entry<W: Write>(
    builder: &mut tar::Builder<W>,
    (source, name): (&Path, &Path),
    meta: &fs::Metadata,
    tree: &Tree<'_>,
    report: &mut CopyReport,
) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_metadata(meta);
    let modified = meta.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    header.set_mtime(modified.map_or(0, |age| age.as_secs()));
    header.set_uid(0);
    header.set_gid(0);
    let name = relative(name);
    if meta.is_dir() {
        if name.components().next().is_some() {
            builder.append_data(&mut header, &name, io::empty())?;
        }
        let mut children: Vec<_> = fs::read_dir(source)?.collect::<Result<_, _>>()?;
        children.sort_by_key(fs::DirEntry::file_name);
        for child in children {
            let (path, name) = (child.path(), name.join(child.file_name()));
            if tree.excluded.contains(&path.as_path()) {
                report.skipped.push(Skipped { path: name, why: "not part of the files".into() });
                continue;
            }
            let meta = path.symlink_metadata()?;
            pack_entry(builder, (&path, &name), &meta, tree, report)?;
        }
    } else if meta.is_symlink() {
        header.set_size(0);
        let target = fs::read_link(source)?;
        let path = source.strip_prefix(tree.top).unwrap_or(source);
        if !stays_inside(path, &target) {
            report.outward_links.push(path.to_owned());
        }
        builder.append_link(&mut header, &name, target)?;
    } else if meta.is_file() {
        let file = open_regular(source)?;
        let mut exact = ExactLength { inner: file, left: meta.len() };
        builder.append_data(&mut header, &name, &mut exact)?;
        report.files += 1;
        report.bytes += meta.len();
    } else {
        report.skipped.push(Skipped { path: name, why: "not a file, directory or link".into() });
    }
    Ok(())
}

/// Opens a file that was checked to be a regular file. If it was replaced by a pipe or a link since, this neither waits
/// for it nor follows it.
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
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("it is not a file any more"))
    }
}

/// The path without its root, as tar needs it.
fn relative(path: &Path) -> PathBuf {
    path.components().filter(|c| matches!(c, Component::Normal(_))).collect()
}

/// Reads exactly the length in the header. A file that shrinks meanwhile is an error instead of a broken archive.
struct ExactLength {
    inner: fs::File,
    left: u64,
}

impl Read for ExactLength {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let want = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let got = self.inner.read(&mut buffer[..want])?;
        if got == 0 && want > 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the file shrank while it was copied",
            ));
        }
        self.left -= got as u64;
        Ok(got)
    }
}

/// Deepest entry that is unpacked: each costs the host a walk through all directories above it.
const MAX_DEPTH: usize = 128;

/// Unpacks a tar stream of one file or tree to exactly `dest`, whatever its name in the stream.
pub fn unpack(stream: impl Read, dest: &Path) -> io::Result<CopyReport> {
    unpack_at_most(u64::MAX, stream, dest)
}

/// Like [`unpack`], but fails once the files have more than this many bytes together.
///
/// A new destination appears complete or not at all, with the directories above it; an existing directory is added to.
/// An empty stream creates nothing.
pub fn unpack_at_most(bytes: u64, stream: impl Read, dest: &Path) -> io::Result<CopyReport> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    if dest.is_dir() {
        return unpack_to(dest, bytes, stream);
    }
    let name = dest.file_name().ok_or_else(|| io::Error::other("the destination has no name"))?;
    let (name, own) = (name.to_string_lossy(), NEXT.fetch_add(1, Ordering::Relaxed));
    let partial = dest.with_file_name(format!(".{name}.partial-{}-{own}", std::process::id()));
    let unpacked = unpack_to(&partial, bytes, stream);
    let created = partial.symlink_metadata();
    match (&unpacked, created) {
        (_, Err(_)) => unpacked,
        (Ok(_), Ok(_)) => fs::rename(&partial, dest).and(unpacked),
        (Err(_), Ok(meta)) => {
            let _ = if meta.is_dir() {
                fs::remove_dir_all(&partial)
            } else {
                fs::remove_file(&partial)
            };
            unpacked
        }
    }
}

fn unpack_to(dest: &Path, bytes: u64, stream: impl Read) -> io::Result<CopyReport> {
    let mut report = CopyReport::default();
    let mut archive = tar::Archive::new(stream);
    let mut tree: Option<Dir> = None;
    for entry in archive.entries()? {
        let mut entry = entry?;
        if report.bytes.saturating_add(entry.size()) > bytes {
            return Err(io::Error::other(format!("the files have more than {bytes} bytes")));
        }
        let path = entry.path()?.into_owned();
        let Some(inner) = inside(&path) else {
            report.skipped.push(Skipped { path, why: "its name leads out of the tree".into() });
            continue;
        };
        if inner.as_os_str().is_empty() {
            tree = unpack_top(&mut entry, dest, &mut report)?;
            continue;
        }
        if inner.components().count() > MAX_DEPTH {
            report.skipped.push(Skipped { path: inner, why: "it is nested too deeply".into() });
            continue;
        }
        let Some(root) = &tree else {
            return Err(io::Error::other("the stream does not start with the copied path itself"));
        };
        if let Err(why) = unpack_below(&mut entry, root, &inner, &mut report) {
            match why {
                Refusal::Skip(why) => report.skipped.push(Skipped { path: inner, why: why.into() }),
                Refusal::Io(error) => return Err(error),
            }
        }
    }
    // Data after the end of the archive is read as well, so that the writer does not block.
    io::copy(&mut archive.into_inner(), &mut io::sink())?;
    Ok(report)
}

/// Unpacks the entry of `dest` itself: a directory to fill, or a single file.
fn unpack_top<R: Read>(
    entry: &mut tar::Entry<'_, R>,
    dest: &Path,
    report: &mut CopyReport,
) -> io::Result<Option<Dir>> {
    if entry.header().entry_type().is_dir() {
        fs::create_dir_all(dest)?;
        return Dir::open_ambient_dir(dest, ambient_authority()).map(Some);
    }
    if !is_file(entry.header().entry_type()) {
        return Err(io::Error::other("it is neither a file nor a directory"));
    }
    let name = dest.file_name().ok_or_else(|| io::Error::other("the destination has no name"))?;
    fs::create_dir_all(parent_of(dest))?;
    let dir = Dir::open_ambient_dir(parent_of(dest), ambient_authority())?;
    write_file(entry, &dir, Path::new(name), report).map(|()| None)
}

/// The directory of a path.
fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
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

fn unpack_below<R: Read>(
    entry: &mut tar::Entry<'_, R>,
    root: &Dir,
    path: &Path,
    report: &mut CopyReport,
) -> Result<(), Refusal> {
    create_parents(root, path)?;
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
        Ok(write_file(entry, root, path, report)?)
    } else if kind.is_symlink() {
        let target = entry.link_name()?.ok_or(Refusal::Skip("a link without a target"))?;
        if !stays_inside(path, &target) {
            return Err(Refusal::Skip("a link that leads out of the tree"));
        }
        clear()?;
        put_link(root, &target, path)
    } else if kind.is_hard_link() {
        let target = entry.link_name()?.ok_or(Refusal::Skip("a link without a target"))?;
        let target = inside(&target).ok_or(Refusal::Skip("a link that leads out of the tree"))?;
        if !root.symlink_metadata(&target).is_ok_and(|meta| meta.is_file()) {
            return Err(Refusal::Skip("a hard link to something that was not copied"));
        }
        clear()?;
        report.files += 1;
        Ok(root.hard_link(&target, root, path)?)
    } else {
        Err(Refusal::Skip("not a file, directory or link"))
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

/// Creates the directories above a path. A link among them is refused.
fn create_parents(root: &Dir, path: &Path) -> Result<(), Refusal> {
    let mut above = PathBuf::new();
    for component in path.parent().into_iter().flat_map(Path::components) {
        above.push(component);
        match root.symlink_metadata(&above) {
            Ok(meta) if meta.is_dir() => {}
            Ok(_) => return Err(Refusal::Skip("its directory is not a directory")),
            Err(_) => root.create_dir(&above)?,
        }
    }
    Ok(())
}

fn write_file<R: Read>(
    entry: &mut tar::Entry<'_, R>,
    dir: &Dir,
    path: &Path,
    report: &mut CopyReport,
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
    report.bytes += copy_sparse(entry, &mut file)?;
    report.files += 1;
    Ok(())
}

/// Copies, leaving holes where the content is zero, so that a sparse file stays sparse.
fn copy_sparse(from: &mut impl Read, to: &mut cap_std::fs::File) -> io::Result<u64> {
    let mut buffer = vec![0u8; 1 << 16];
    let mut total = 0u64;
    loop {
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

/// Whether a link at `path` with this target stays inside the tree.
///
/// `..` is accepted only at the start: after a name, which may be another link, it could lead elsewhere than it seems.
fn stays_inside(path: &Path, target: &Path) -> bool {
    let depth = path.components().count() - 1;
    let mut ups = 0;
    let mut named = false;
    for component in target.components() {
        match component {
            Component::ParentDir if named => return false,
            Component::ParentDir => ups += 1,
            Component::Normal(_) => named = true,
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return false,
        }
    }
    ups <= depth
}

#[cfg(test)]
#[path = "archive_tests.rs"]
mod tests;
