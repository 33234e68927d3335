//! The free space that an unpacked layer leaves on the file system of the store.

use std::{
    fs::File,
    io::{self, Read},
};

use rustix::fs::fstatvfs;

/// The reserve is the lesser of this and a hundredth of the file system, unless the limits say otherwise.
const MOST: u64 = 1 << 30;
const SHARE: u64 = 100;
/// How much is read between two looks at the free space.
const INTERVAL: u64 = 16 << 20;

/// A layer's stream that ends with an error when its content would fill the disk: a small archive can be a thousand times
/// larger unpacked.
pub(crate) struct ReservingReader<R> {
    inner: R,
    /// A file or directory of the file system.
    at: File,
    reserve: Option<u64>,
    /// Bytes until the next look.
    due: u64,
}

impl<R: Read> ReservingReader<R> {
    pub(crate) fn new(inner: R, at: File, reserve: Option<u64>) -> Self {
        Self { inner, at, reserve, due: 0 }
    }

    fn look(&self) -> io::Result<()> {
        let Ok(stat) = fstatvfs(&self.at) else { return Ok(()) };
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        let reserve = self.reserve.unwrap_or_else(|| (bytes(stat.f_blocks) / SHARE).min(MOST));
        let left = bytes(stat.f_bavail);
        if left >= reserve {
            return Ok(());
        }
        let (left, reserve) = (left >> 20, reserve >> 20);
        let why = format!(
            "the file system of the image store has {left} MiB left, and {reserve} MiB have to stay free"
        );
        Err(io::Error::new(io::ErrorKind::StorageFull, why))
    }
}

impl<R: Read> Read for ReservingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.due == 0 {
            self.look()?;
            self.due = INTERVAL;
        }
        let most = usize::try_from(self.due).unwrap_or(usize::MAX).min(buffer.len());
        let count = self.inner.read(&mut buffer[..most])?;
        self.due -= count as u64;
        Ok(count)
    }
}
