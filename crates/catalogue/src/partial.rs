//! A file on its way: what has come so far, hashed as it comes, and renamed when it is whole and right.
//!
//! Does not know where bytes come from. A file that stays behind is the start of the model, and the next
//! pull goes on from there.

use std::{
    fs, io,
    io::{Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use crate::{
    entry::{Model, Sha256Hex},
    progress::{Progress, Stage},
};

/// Bytes between two moments at which others may have their turn.
const STEP: u64 = 1 << 20;

/// The file is not the right one, or cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum PartialError {
    /// The content is not what the list of models promises.
    #[error(
        "{file} should have the sha256 {expected} and came with {found}; nothing was kept: try again, or another source"
    )]
    WrongHash {
        /// The name of the file.
        file: String,
        /// The hash it should have.
        expected: Sha256Hex,
        /// The hash it has.
        found: Sha256Hex,
    },
    /// More came than the file has.
    #[error("more than the promised {size} bytes came")]
    TooLong {
        /// Bytes of the file.
        size: u64,
    },
    /// Less came than the file has.
    #[error("{have} of {size} bytes came")]
    Short {
        /// Bytes that came.
        have: u64,
        /// Bytes of the file.
        size: u64,
    },
    /// The file cannot be written.
    #[error("cannot write it")]
    Io(#[source] io::Error),
}

/// A file that is being fetched.
pub(crate) struct Partial {
    path: PathBuf,
    file: fs::File,
    hasher: Sha256,
    have: u64,
    size: u64,
}

/// A moment to go back to.
pub(crate) struct Mark {
    hasher: Sha256,
    have: u64,
}

impl Partial {
    /// Opens what an earlier attempt left, or begins.
    pub(crate) async fn open(
        path: PathBuf,
        size: u64,
        progress: &dyn Progress,
    ) -> Result<Self, PartialError> {
        let mut options = fs::OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(PartialError::Io)?;
        let mut partial = Self { path, file, hasher: Sha256::new(), have: 0, size };
        let there = partial.file.metadata().map_err(PartialError::Io)?.len();
        if there > size {
            partial.clear()?;
        } else if there > 0 {
            progress.stage(Stage::Checking, there);
            (partial.hasher, partial.have) = hash(&mut partial.file, progress).await?;
        }
        Ok(partial)
    }

    /// Bytes that are there.
    pub(crate) fn have(&self) -> u64 {
        self.have
    }

    /// Bytes of the whole file.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Takes the next bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), PartialError> {
        let have = self.have + bytes.len() as u64;
        if have > self.size {
            return Err(PartialError::TooLong { size: self.size });
        }
        self.file.write_all(bytes).map_err(PartialError::Io)?;
        self.hasher.update(bytes);
        self.have = have;
        Ok(())
    }

    /// Begins anew.
    pub(crate) fn clear(&mut self) -> Result<(), PartialError> {
        self.back_to(Mark { hasher: Sha256::new(), have: 0 })
    }

    /// Remembers this moment.
    pub(crate) fn mark(&self) -> Mark {
        Mark { hasher: self.hasher.clone(), have: self.have }
    }

    /// Forgets what came since.
    pub(crate) fn back_to(&mut self, mark: Mark) -> Result<(), PartialError> {
        let cut = self.file.set_len(mark.have);
        cut.and_then(|()| self.file.seek(SeekFrom::Start(mark.have))).map_err(PartialError::Io)?;
        (self.hasher, self.have) = (mark.hasher, mark.have);
        Ok(())
    }

    /// Puts the file in its place if it is whole and right; keeps nothing of a wrong one.
    pub(crate) async fn finish(&mut self, model: &Model, to: &Path) -> Result<(), PartialError> {
        if self.have < self.size {
            return Err(PartialError::Short { have: self.have, size: self.size });
        }
        let found = hex(self.hasher.clone());
        if found != model.sha256 {
            self.clear()?;
            let (file, expected) = (model.file.clone(), model.sha256.clone());
            return Err(PartialError::WrongHash { file, expected, found });
        }
        let file = self.file.try_clone().map_err(PartialError::Io)?;
        // A gigabyte takes its time to reach the disk.
        let synced = tokio::task::spawn_blocking(move || file.sync_all()).await;
        synced.map_err(io::Error::other).flatten().map_err(PartialError::Io)?;
        fs::rename(&self.path, to).map_err(PartialError::Io)
    }

    /// Leaves no empty file behind; whatever there is of the model stays.
    pub(crate) fn give_up(self) {
        if self.have == 0 {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Hashes a file from its start; afterwards it stands at its end.
pub(crate) async fn hash(
    file: &mut fs::File,
    progress: &dyn Progress,
) -> Result<(Sha256, u64), PartialError> {
    let mut hashing = Hashing::new(file).map_err(PartialError::Io)?;
    loop {
        match hashing.step().map_err(PartialError::Io)? {
            0 => return Ok((hashing.hasher, hashing.have)),
            got => progress.advance(got),
        }
        tokio::task::yield_now().await;
    }
}

/// The hash of a whole file, in one go.
pub(crate) fn hash_now(path: &Path) -> io::Result<Sha256Hex> {
    let mut file = fs::File::open(path)?;
    let mut hashing = Hashing::new(&mut file)?;
    while hashing.step()? > 0 {}
    Ok(hex(hashing.hasher))
}

pub(crate) fn hex(hasher: Sha256) -> Sha256Hex {
    let hash: [u8; 32] = hasher.finalize().into();
    Sha256Hex::from(&hash)
}

struct Hashing<'a> {
    file: &'a mut fs::File,
    hasher: Sha256,
    have: u64,
    buffer: Vec<u8>,
}

impl<'a> Hashing<'a> {
    fn new(file: &'a mut fs::File) -> io::Result<Self> {
        file.rewind()?;
        Ok(Self { file, hasher: Sha256::new(), have: 0, buffer: Vec::new() })
    }

    fn step(&mut self) -> io::Result<u64> {
        self.buffer.clear();
        let got = Read::take(&mut *self.file, STEP).read_to_end(&mut self.buffer)? as u64;
        self.hasher.update(&self.buffer);
        self.have += got;
        Ok(got)
    }
}
