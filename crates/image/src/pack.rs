//! Importing a directory as an image of one layer, through a sorted tar stream with owners, modes, times and hard links.
//!
//! The directory is trusted. Devices, sockets and what the kernel has mounted in it are left out and reported.

use std::{
    collections::HashMap,
    fs, io,
    io::{Read, Write},
    os::{
        fd::AsFd,
        unix::fs::{FileTypeExt, MetadataExt},
    },
    path::{Path, PathBuf},
};

use crate::{
    digest::Digest,
    error::Error,
    lock::Workspace,
    name::Name,
    progress::{Progress, ProgressReader, Silent, Stage},
    record::{BaseImage, Record},
    store::{ImageInfo, Store},
    tree::{self, Missing, Tree},
};

/// What a directory must be to be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirCheck {
    /// It must look like a root file system: it has `bin/sh`.
    RootFileSystem,
    /// Any directory.
    Any,
}

/// What was left out of an image.
#[derive(Debug, Default)]
struct LeftOut {
    /// Devices and sockets.
    special: u64,
    /// Mounted file systems of the kernel.
    mounts: Vec<PathBuf>,
}

impl Store {
    /// Imports a directory with a root file system as an image of one layer. It must not contain the store.
    pub fn import_dir(
        &self,
        dir: &Path,
        name: &str,
        check: DirCheck,
        progress: &dyn Progress,
    ) -> Result<ImageInfo, Error> {
        let name = Name::new(name)?;
        self.check_dir(dir, check)?;
        progress.stage(Stage::Copying, None);
        let workspace = self.workspace()?;
        let layer = self.dir_layer(&workspace, dir, progress)?;
        let record = Record::local(name.as_str(), BaseImage::Empty, vec![layer], Vec::new(), None);
        self.put_record(&workspace, &name, record)
    }

    /// Creates an image from a directory with a root file system and one more layer, a tar stream with OCI whiteouts.
    pub fn commit_on_dir(
        &self,
        name: &str,
        dir: &Path,
        diff: impl Read,
    ) -> Result<ImageInfo, Error> {
        let name = Name::new(name)?;
        self.check_dir(dir, DirCheck::Any)?;
        let workspace = self.workspace()?.with_expendable_leases();
        let below = self.dir_layer(&workspace, dir, &Silent)?;
        let above = self.add_layer(&workspace, diff, None)?;
        let layers = vec![below, above];
        let record = Record::local(name.as_str(), BaseImage::Empty, layers, Vec::new(), None);
        self.put_record(&workspace, &name, record)
    }

    fn check_dir(&self, dir: &Path, check: DirCheck) -> Result<(), Error> {
        let what = || format!("cannot copy {}", dir.display());
        if !fs::metadata(dir).map_err(Error::io(what()))?.is_dir() {
            return Err(Error::Io { what: what(), source: io::ErrorKind::NotADirectory.into() });
        }
        let real = fs::canonicalize(dir).map_err(Error::io(what()))?;
        let store = real_path(&self.dir(""));
        if store.starts_with(&real) {
            return Err(Error::ContainsStore { path: dir.to_owned(), store });
        }
        if check == DirCheck::RootFileSystem && !has_shell(&real) {
            return Err(Error::NotARootFileSystem { path: dir.to_owned() });
        }
        Ok(())
    }

    fn dir_layer(
        &self,
        workspace: &Workspace,
        dir: &Path,
        progress: &dyn Progress,
    ) -> Result<Digest, Error> {
        let what = || format!("cannot copy {}", dir.display());
        let (reader, writer) = io::pipe().map_err(Error::io(what()))?;
        std::thread::scope(|scope| {
            let packer = scope.spawn(|| pack(dir, writer));
            let layer = self.add_layer(workspace, ProgressReader { inner: reader, progress }, None);
            let packed = packer
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("the copying thread panicked")));
            // An error of the packer explains an incomplete stream; but where the stream was refused, the packer only
            // saw its pipe close.
            match packed {
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                    Err(Error::io(what())(error))
                }
                Err(_) => layer,
                Ok(left_out) => {
                    left_out.report(progress);
                    layer
                }
            }
        })
    }
}

impl LeftOut {
    fn report(&self, progress: &dyn Progress) {
        match self.special {
            0 => {}
            1 => progress.warning("left out 1 device or socket"),
            count => progress.warning(&format!("left out {count} devices and sockets")),
        }
        for mount in &self.mounts {
            let shown = mount.display();
            progress
                .warning(&format!("left out the content of {shown}, a file system of the kernel"));
        }
    }
}

/// Whether a root file system has a shell. Links are followed as if the directory were `/`.
fn has_shell(root: &Path) -> bool {
    let Ok(mut tree) = Tree::open(root) else { return false };
    let dirs: [&[&[u8]]; 2] = [&[b"bin"], &[b"usr", b"bin"]];
    dirs.iter().any(|dir| {
        let dir = tree.dir(dir, Missing::Fail);
        dir.is_ok_and(|dir| matches!(tree::find(dir.as_fd(), b"sh"), Ok(Some(_))))
    })
}

/// The path without links, as far as it exists.
fn real_path(path: &Path) -> PathBuf {
    for above in path.ancestors() {
        if let (Ok(real), Ok(rest)) = (fs::canonicalize(above), path.strip_prefix(above)) {
            return real.join(rest);
        }
    }
    path.to_owned()
}

/// Whether a directory is the root of a file system that the kernel generates, such as `/proc`.
#[cfg(target_os = "linux")]
fn is_generated(dir: &Path) -> bool {
    /// proc, sysfs, cgroup, cgroup2, devpts, debugfs, tracefs, securityfs, bpf, mqueue, configfs.
    const GENERATED: [u64; 11] = [
        0x9fa0,
        0x6265_6572,
        0x0027_e0eb,
        0x6367_7270,
        0x1cd1,
        0x6462_6720,
        0x7472_6163,
        0x7363_6673,
        0xcafe_4a11,
        0x1980_0202,
        0x6265_6570,
    ];
    rustix::fs::statfs(dir).is_ok_and(|found| GENERATED.contains(&(found.f_type as u64)))
}

#[cfg(not(target_os = "linux"))]
fn is_generated(_: &Path) -> bool {
    false
}

/// Writes a directory and everything below it.
fn pack(root: &Path, out: impl Write) -> io::Result<LeftOut> {
    let mut builder = tar::Builder::new(io::BufWriter::with_capacity(256 << 10, out));
    let meta = fs::metadata(root)?;
    let mut packer = Packer {
        builder: &mut builder,
        links: HashMap::new(),
        device: meta.dev(),
        left_out: LeftOut::default(),
    };
    let mut header = packer.header(&meta);
    // The tar builder refuses an empty name; this one is equivalent.
    header.set_path("./").map_err(|error| at(root, error))?;
    header.set_cksum();
    packer.builder.append(&header, io::empty())?;
    packer.below(root, Path::new(""))?;
    let left_out = packer.left_out;
    builder.into_inner()?.flush()?;
    Ok(left_out)
}

struct Packer<'a, W: Write> {
    builder: &'a mut tar::Builder<W>,
    /// The first path of each file with several names.
    links: HashMap<(u64, u64), PathBuf>,
    /// The device of the root.
    device: u64,
    left_out: LeftOut,
}

impl<W: Write> Packer<'_, W> {
    fn below(&mut self, source: &Path, name: &Path) -> io::Result<()> {
        let read = || -> io::Result<Vec<_>> {
            fs::read_dir(source)?.map(|entry| Ok(entry?.file_name())).collect()
        };
        let mut names = read().map_err(|error| at(source, error))?;
        names.sort();
        for child in names {
            let (from, to) = (source.join(&child), name.join(&child));
            self.one(&from, &to).map_err(|error| match error.kind() {
                io::ErrorKind::BrokenPipe => error,
                _ => at(&from, error),
            })?;
        }
        Ok(())
    }

    fn one(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let meta = fs::symlink_metadata(from)?;
        let mut header = self.header(&meta);
        if meta.is_dir() {
            self.builder.append_data(&mut header, to, io::empty())?;
            // Its files change while they are read, and describe this machine.
            if meta.dev() != self.device && is_generated(from) {
                self.left_out.mounts.push(from.to_owned());
                return Ok(());
            }
            return self.below(from, to);
        }
        if to.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".wh.")) {
            return Err(io::Error::other("names that start with .wh. are whiteouts in an image"));
        }
        if meta.is_symlink() {
            header.set_size(0);
            return self.builder.append_link(&mut header, to, fs::read_link(from)?);
        }
        if meta.file_type().is_fifo() {
            header.set_size(0);
            return self.builder.append_data(&mut header, to, io::empty());
        }
        if !meta.is_file() {
            self.left_out.special += 1;
            return Ok(());
        }
        if meta.nlink() > 1 {
            if let Some(first) = self.links.get(&(meta.dev(), meta.ino())) {
                header.set_entry_type(tar::EntryType::Link);
                header.set_size(0);
                return self.builder.append_link(&mut header, to, first);
            }
            self.links.insert((meta.dev(), meta.ino()), to.to_owned());
        }
        let file = fs::File::open(from)?;
        let mut exact = Exact { inner: file, left: meta.len() };
        self.builder.append_data(&mut header, to, &mut exact)
    }

    fn header(&self, meta: &fs::Metadata) -> tar::Header {
        let mut header = tar::Header::new_gnu();
        header.set_metadata(meta);
        header
    }
}

/// Reads exactly the announced number of bytes, or fails: a file that changes must not corrupt the stream.
struct Exact {
    inner: fs::File,
    left: u64,
}

impl Read for Exact {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let want = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let got = self.inner.read(&mut buffer[..want])?;
        if got == 0 && want > 0 {
            return Err(io::Error::other("the file shrank while it was copied"));
        }
        self.left -= got as u64;
        Ok(got)
    }
}

fn at(path: &Path, error: io::Error) -> io::Error {
    // A deeper level has added the path already.
    if error.get_ref().is_some_and(|inner| inner.is::<Located>()) {
        return error;
    }
    io::Error::new(error.kind(), Located { path: path.to_owned(), error })
}

#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", path.display())]
struct Located {
    path: PathBuf,
    error: io::Error,
}
