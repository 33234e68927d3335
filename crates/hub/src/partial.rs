//! A file while it is downloaded: hashed as it grows, kept over a crash, and renamed once it is complete and right.
//!
//! Does not know where the bytes come from.

use std::{
    fs, io,
    io::{Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use crate::{Progress, Sha256Hex, Stage, sha256};

/// Bytes to hash before other tasks get a turn.
const STEP: u64 = 1 << 20;

/// A partial file cannot be written, or is not the file it should be.
#[derive(Debug, thiserror::Error)]
pub enum PartialError {
    /// The content has the wrong hash.
    #[error(
        "{file} arrived with sha256 {found} instead of {expected}; it was discarded: try again, or use another source"
    )]
    WrongHash {
        /// The name of the file.
        file: String,
        /// The hash it should have.
        expected: Sha256Hex,
        /// The hash it has.
        found: Sha256Hex,
    },
    /// More bytes than the file has.
    #[error("more than the expected {size} bytes arrived")]
    TooLong {
        /// Bytes of the file, or the limit on them.
        size: u64,
    },
    /// Fewer bytes than the file has.
    #[error("{have} of {size} bytes arrived")]
    Short {
        /// Bytes that arrived.
        have: u64,
        /// Bytes of the file.
        size: u64,
    },
    /// The file cannot be written.
    #[error("cannot write the file")]
    Io(#[source] io::Error),
}

/// What is known of a file's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Exactly this many bytes.
    Exact(u64),
    /// At most this many bytes.
    AtMost(u64),
}

impl Size {
    fn limit(self) -> u64 {
        match self {
            Self::Exact(size) | Self::AtMost(size) => size,
        }
    }
}

/// A file that is being downloaded.
#[derive(Debug)]
pub struct PartialFile {
    path: PathBuf,
    file: fs::File,
    hasher: Sha256,
    len: u64,
    size: Size,
}

/// A state of a [`PartialFile`] to return to.
#[derive(Debug)]
pub struct Checkpoint {
    hasher: Sha256,
    len: u64,
}

impl PartialFile {
    /// Opens the file that an earlier attempt left at `path`, or creates it. What is there is hashed; a file that is
    /// too long is emptied.
    pub async fn open(
        path: PathBuf,
        size: Size,
        progress: &dyn Progress,
    ) -> Result<Self, PartialError> {
        let mut options = fs::OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(PartialError::Io)?;
        let mut partial = Self { path, file, hasher: Sha256::new(), len: 0, size };
        let found = partial.file.metadata().map_err(PartialError::Io)?.len();
        if found > size.limit() {
            partial.clear()?;
        } else if found > 0 {
            progress.stage(Stage::Checking, Some(found));
            (partial.hasher, partial.len) =
                hash(&mut partial.file, progress).await.map_err(PartialError::Io)?;
        }
        Ok(partial)
    }

    /// Bytes that have arrived.
    #[expect(clippy::len_without_is_empty, reason = "`is_complete` is the question here")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// What is known of the complete file's size.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Whether the size is known and all bytes have arrived.
    pub fn is_complete(&self) -> bool {
        self.size == Size::Exact(self.len)
    }

    /// Appends bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), PartialError> {
        let len = self.len + bytes.len() as u64;
        let size = self.size.limit();
        if len > size {
            return Err(PartialError::TooLong { size });
        }
        self.file.write_all(bytes).map_err(PartialError::Io)?;
        self.hasher.update(bytes);
        self.len = len;
        Ok(())
    }

    /// Discards everything.
    pub fn clear(&mut self) -> Result<(), PartialError> {
        self.roll_back(Checkpoint { hasher: Sha256::new(), len: 0 })
    }

    /// The current state.
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint { hasher: self.hasher.clone(), len: self.len }
    }

    /// Discards what was written after a checkpoint.
    pub fn roll_back(&mut self, to: Checkpoint) -> Result<(), PartialError> {
        let cut = self.file.set_len(to.len);
        cut.and_then(|()| self.file.seek(SeekFrom::Start(to.len))).map_err(PartialError::Io)?;
        (self.hasher, self.len) = (to.hasher, to.len);
        Ok(())
    }

    /// Starts the stage of fetching, with what has arrived already done.
    pub fn announce(&self, progress: &dyn Progress) {
        let total = match self.size {
            Size::Exact(size) => Some(size),
            Size::AtMost(_) => None,
        };
        progress.stage(Stage::Fetching, total);
        progress.advance(self.len);
    }

    /// Renames the file to its destination once it is complete and has the right hash, and has reached the disk. A file
    /// with another hash is emptied.
    pub async fn finish(
        &mut self,
        sha256: Option<&Sha256Hex>,
        to: &Path,
    ) -> Result<(), PartialError> {
        if let Size::Exact(size) = self.size
            && self.len < size
        {
            return Err(PartialError::Short { have: self.len, size });
        }
        let found = Sha256Hex::of(self.hasher.clone());
        if let Some(expected) = sha256.filter(|expected| **expected != found) {
            self.clear()?;
            let file = to.file_name().unwrap_or_default().to_string_lossy().into_owned();
            return Err(PartialError::WrongHash { file, expected: expected.clone(), found });
        }
        let file = self.file.try_clone().map_err(PartialError::Io)?;
        // Gigabytes take a while to reach the disk.
        let synced = tokio::task::spawn_blocking(move || file.sync_all()).await;
        synced.map_err(io::Error::other).flatten().map_err(PartialError::Io)?;
        fs::rename(&self.path, to).map_err(PartialError::Io)
    }

    /// Closes the file and removes it if it is empty; the start of a file stays for the next attempt.
    pub fn close(self) {
        if self.len == 0 {
            let _ = fs::remove_file(&self.path);
        }
    }

    /// Notes the size that a server reports.
    pub(crate) fn set_size(&mut self, size: u64) {
        self.size = Size::Exact(size);
    }
}

/// Hashes a whole file, letting other tasks run in between.
pub async fn hash_file(path: &Path, progress: &dyn Progress) -> io::Result<Sha256Hex> {
    let (hasher, _) = hash(&mut fs::File::open(path)?, progress).await?;
    Ok(Sha256Hex::of(hasher))
}

/// Hashes a file from its start; afterwards its position is its end. Returns the bytes hashed, too.
async fn hash(file: &mut fs::File, progress: &dyn Progress) -> io::Result<(Sha256, u64)> {
    file.rewind()?;
    let (mut hasher, mut len) = (Sha256::new(), 0);
    loop {
        match sha256::hash_next(file, STEP, &mut hasher)? {
            0 => return Ok((hasher, len)),
            got => {
                len += got;
                progress.advance(got);
            }
        }
        tokio::task::yield_now().await;
    }
}
