//! A tar reader for untrusted streams: every name, record and count is bounded before it is stored in memory.
//!
//! Reads headers; `unpack` applies entries to a file system.

use std::{io, io::Read};

use crate::pax;

/// The longest path on Linux, in bytes.
const MAX_NAME: u64 = 4096;
/// The most bytes of extended header records of one entry; extended attributes make them long.
const MAX_EXTENDED: u64 = 1 << 20;
/// The most pieces of a sparse file.
const MAX_PIECES: usize = 1 << 16;
const BLOCK: usize = 512;

/// Why a tar archive cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TarError {
    /// An invalid header.
    #[error("the archive is broken at byte {at}: {why}")]
    Broken {
        /// Where the entry starts in the uncompressed stream.
        at: u64,
        /// What is wrong.
        why: &'static str,
    },
    /// More entries than allowed.
    #[error("the archive has more than {0} entries, the limit")]
    TooMany(u64),
    /// The stream could not be read, or is too large.
    #[error("cannot read the archive")]
    Read(#[source] io::Error),
}

/// The type of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    HardLink,
    Symlink,
    Dir,
    Fifo,
    Device,
    Unknown,
}

/// One entry, with long names and extended headers already applied.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) path: Vec<u8>,
    pub(crate) link: Vec<u8>,
    pub(crate) kind: Kind,
    pub(crate) mode: u32,
    pub(crate) uid: u64,
    pub(crate) gid: u64,
    /// Seconds and nanoseconds.
    pub(crate) mtime: (i64, u32),
    /// Bytes of data in the stream.
    pub(crate) size: u64,
    /// Where the data starts in the stream.
    pub(crate) offset: u64,
    /// For sparse files the length of the file and its pieces (offset, length).
    pub(crate) sparse: Option<(u64, Vec<(u64, u64)>)>,
}

/// A tar stream. Between two calls of [`TarStream::next`] it reads as the data of the current entry.
pub(crate) struct TarStream<R> {
    inner: R,
    at: u64,
    left: u64,
    padding: u64,
    entries: u64,
    max_entries: u64,
}

/// Values from the extension headers before an entry.
#[derive(Default)]
struct Overrides {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    pax: pax::Records,
}

impl<R: Read> TarStream<R> {
    pub(crate) fn new(inner: R, max_entries: u64) -> Self {
        Self { inner, at: 0, left: 0, padding: 0, entries: 0, max_entries }
    }

    pub(crate) fn into_inner(self) -> R {
        self.inner
    }

    /// The next entry; none at the end of the archive.
    pub(crate) fn next(&mut self) -> Result<Option<Entry>, TarError> {
        let mut overrides = Overrides::default();
        loop {
            self.skip(self.left.saturating_add(self.padding))?;
            (self.left, self.padding) = (0, 0);
            let start = self.at;
            let broken = |why| TarError::Broken { at: start, why };
            let Some(header) = self.header()? else { return Ok(None) };
            self.entries += 1;
            if self.entries > self.max_entries {
                return Err(TarError::TooMany(self.max_entries));
            }
            let size = number(&header.as_old().size, header.entry_size())
                .ok_or_else(|| broken("the size is not a number"))?;
            self.data(size);
            match header.entry_type().as_byte() {
                b'L' => overrides.path = Some(self.name(size, start)?),
                b'K' => overrides.link = Some(self.name(size, start)?),
                b'x' => {
                    let bytes = self.small(size, MAX_EXTENDED, start)?;
                    overrides.pax = pax::parse(&bytes).map_err(broken)?;
                }
                // Global records describe the archive, never a single file.
                b'g' => {}
                _ => return self.entry(&header, overrides, start).map(Some),
            }
        }
    }

    fn entry(
        &mut self,
        header: &tar::Header,
        overrides: Overrides,
        start: u64,
    ) -> Result<Entry, TarError> {
        let broken = |why| TarError::Broken { at: start, why };
        let Overrides { path, link, pax } = overrides;
        let kind_byte = header.entry_type().as_byte();
        let path = pax.path.or(path).unwrap_or_else(|| header.path_bytes().into_owned());
        let link = pax.link.or(link);
        let link =
            link.or_else(|| header.link_name_bytes().map(|l| l.into_owned())).unwrap_or_default();
        if path.len() as u64 > MAX_NAME || link.len() as u64 > MAX_NAME {
            return Err(broken("a name is longer than 4096 bytes"));
        }
        let kind = match kind_byte {
            b'0' | 0 if path.ends_with(b"/") => Kind::Dir,
            b'0' | 0 | b'7' | b'S' => Kind::File,
            b'1' => Kind::HardLink,
            b'2' => Kind::Symlink,
            b'3' | b'4' => Kind::Device,
            b'5' => Kind::Dir,
            b'6' => Kind::Fifo,
            _ => Kind::Unknown,
        };
        // Links, directories and devices carry no data, whatever size they claim.
        let size = match kind {
            Kind::File | Kind::Unknown => pax.size.unwrap_or(self.left),
            _ => 0,
        };
        self.data(size);
        let sparse = match kind_byte {
            b'S' => Some(self.sparse_map(header, size, start)?),
            _ => None,
        };
        let old = header.as_old();
        let mode = number(&old.mode, header.mode().map(u64::from));
        let uid = pax.uid.or_else(|| number(&old.uid, header.uid()));
        let gid = pax.gid.or_else(|| number(&old.gid, header.gid()));
        let seconds = |mtime| (i64::try_from(mtime).unwrap_or(0), 0);
        let mtime = pax.mtime.or_else(|| number(&old.mtime, header.mtime()).map(seconds));
        Ok(Entry {
            kind,
            mode: (mode.ok_or_else(|| broken("the mode is not a number"))? & 0o7777) as u32,
            uid: uid.ok_or_else(|| broken("the owner is not a number"))?,
            gid: gid.ok_or_else(|| broken("the group is not a number"))?,
            mtime: mtime.ok_or_else(|| broken("the time is not a number"))?,
            path,
            link,
            size,
            offset: self.at,
            sparse,
        })
    }

    /// The pieces of an old-style GNU sparse file, which may continue in blocks after the header.
    fn sparse_map(
        &mut self,
        header: &tar::Header,
        size: u64,
        start: u64,
    ) -> Result<(u64, Vec<(u64, u64)>), TarError> {
        let broken = |why| TarError::Broken { at: start, why };
        let gnu = header.as_gnu().ok_or_else(|| broken("a sparse file without a GNU header"))?;
        let real = gnu.real_size().map_err(|_| broken("the size is not a number"))?;
        let mut pieces = Vec::new();
        let (mut total, mut end) = (0u64, 0u64);
        let mut add = |list: &[tar::GnuSparseHeader]| -> Result<(), &'static str> {
            for piece in list.iter().filter(|piece| !piece.is_empty()) {
                let bad = |_| "a sparse piece is not a number";
                let (offset, length) = (piece.offset().map_err(bad)?, piece.length().map_err(bad)?);
                let stop = offset.checked_add(length).filter(|&stop| offset >= end && stop <= real);
                end = stop.ok_or("the sparse pieces overlap or lie outside")?;
                total = total.saturating_add(length);
                if pieces.len() == MAX_PIECES {
                    return Err("too many sparse pieces");
                }
                pieces.push((offset, length));
            }
            Ok(())
        };
        add(&gnu.sparse).map_err(broken)?;
        let mut more = gnu.is_extended();
        while more {
            let mut block = tar::GnuExtSparseHeader::new();
            self.inner.read_exact(block.as_mut_bytes()).map_err(TarError::Read)?;
            self.at += BLOCK as u64;
            add(block.sparse()).map_err(broken)?;
            more = block.is_extended();
        }
        if total != size {
            return Err(broken("the sparse pieces do not add up to the data"));
        }
        Ok((real, pieces))
    }

    /// The next header, checked; none at the end.
    fn header(&mut self) -> Result<Option<tar::Header>, TarError> {
        let mut header = tar::Header::new_old();
        let mut filled = 0;
        while filled < BLOCK {
            match self.inner.read(&mut header.as_mut_bytes()[filled..]) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => {
                    return Err(TarError::Broken { at: self.at, why: "it ends inside a header" });
                }
                Ok(got) => filled += got,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(TarError::Read(error)),
            }
        }
        let bytes = header.as_bytes();
        if bytes.iter().all(|&b| b == 0) {
            return Ok(None);
        }
        let sum: u32 = bytes
            .iter()
            .enumerate()
            .map(|(i, &b)| if (148..156).contains(&i) { 32 } else { u32::from(b) })
            .sum();
        if header.cksum().ok() != Some(sum) {
            return Err(TarError::Broken {
                at: self.at,
                why: "no tar header, or its checksum is wrong",
            });
        }
        self.at += BLOCK as u64;
        Ok(Some(header))
    }

    /// Sets the data that follows the header just read.
    fn data(&mut self, size: u64) {
        self.left = size;
        self.padding = (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64;
    }

    fn name(&mut self, size: u64, start: u64) -> Result<Vec<u8>, TarError> {
        let mut name = self.small(size, MAX_NAME + 1, start)?;
        while name.last() == Some(&0) {
            name.pop();
        }
        Ok(name)
    }

    fn small(&mut self, size: u64, limit: u64, start: u64) -> Result<Vec<u8>, TarError> {
        if size > limit {
            return Err(TarError::Broken {
                at: start,
                why: "a name or extended header is too long",
            });
        }
        let mut bytes = Vec::new();
        self.read_to_end(&mut bytes).map_err(TarError::Read)?;
        Ok(bytes)
    }

    fn skip(&mut self, count: u64) -> Result<(), TarError> {
        let got = io::copy(&mut self.inner.by_ref().take(count), &mut io::sink())
            .map_err(TarError::Read)?;
        self.at += got;
        if got < count {
            return Err(TarError::Broken { at: self.at, why: "it ends inside a file" });
        }
        Ok(())
    }
}

/// An empty field is zero: writers leave out what they do not know.
fn number(field: &[u8], parsed: io::Result<u64>) -> Option<u64> {
    let empty = || field.iter().all(|&b| b == 0 || b == b' ').then_some(0);
    parsed.ok().or_else(empty)
}

impl<R: Read> Read for TarStream<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let want = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if want == 0 {
            return Ok(0);
        }
        let got = self.inner.read(&mut buffer[..want])?;
        if got == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ends inside a file"));
        }
        self.left -= got as u64;
        self.at += got as u64;
        Ok(got)
    }
}
