//! Importing a directory as an image of one layer, through a sorted tar stream with owners, modes, times and hard links.
//!
//! The directory is trusted; devices and sockets are skipped.

use std::{
    collections::HashMap,
    fs, io,
    io::{Read, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use crate::{
    error::Error,
    name::Name,
    progress::{Progress, ProgressReader, Stage},
    record::{BaseImage, Record},
    store::{ImageInfo, Store},
};

impl Store {
    /// Imports a directory with a root file system as an image of one layer.
    pub fn import_dir(
        &self,
        dir: &Path,
        name: &str,
        progress: &dyn Progress,
    ) -> Result<ImageInfo, Error> {
        let name = Name::new(name)?;
        let what = || format!("cannot copy {}", dir.display());
        if !fs::metadata(dir).map_err(Error::io(what()))?.is_dir() {
            return Err(Error::Io { what: what(), source: io::ErrorKind::NotADirectory.into() });
        }
        progress.stage(Stage::Copying, None);
        let workspace = self.workspace()?;
        let (reader, writer) = io::pipe().map_err(Error::io(what()))?;
        let layer = std::thread::scope(|scope| {
            let packer = scope.spawn(|| pack(dir, writer));
            let layer =
                self.add_layer(&workspace, ProgressReader { inner: reader, progress }, None);
            let packed = packer
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("the copying thread panicked")));
            // An error of the packer explains an incomplete stream; but where the stream was refused, the packer only
            // saw its pipe close.
            match packed {
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                    Err(Error::io(what())(error))
                }
                _ => layer,
            }
        })?;
        let record = Record::local(name.as_str(), BaseImage::Empty, vec![layer], Vec::new(), None);
        self.put_record(&workspace, &name, record)
    }
}

/// Writes a directory and everything below it.
pub(crate) fn pack(root: &Path, out: impl Write) -> io::Result<()> {
    let mut builder = tar::Builder::new(io::BufWriter::with_capacity(256 << 10, out));
    let mut packer = Packer { builder: &mut builder, links: HashMap::new() };
    let meta = fs::metadata(root)?;
    let mut header = packer.header(&meta);
    // The tar builder refuses an empty name; this one is equivalent.
    header.set_path("./").map_err(|error| at(root, error))?;
    header.set_cksum();
    packer.builder.append(&header, io::empty())?;
    packer.below(root, Path::new(""))?;
    builder.into_inner()?.flush()
}

struct Packer<'a, W: Write> {
    builder: &'a mut tar::Builder<W>,
    /// The first path of each file with several names.
    links: HashMap<(u64, u64), PathBuf>,
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
            return self.below(from, to);
        }
        if to.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".wh.")) {
            return Err(io::Error::other("names that start with .wh. are whiteouts in an image"));
        }
        if meta.is_symlink() {
            header.set_size(0);
            return self.builder.append_link(&mut header, to, fs::read_link(from)?);
        }
        if !meta.is_file() {
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
