//! SHA-256 hashes in hexadecimal form, as the hub and lists of models write them.

use std::{fmt, fs, io, io::Read, path::Path};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// A SHA-256 hash in lower-case hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Sha256Hex(String);

/// A text that is not a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a SHA-256 hash has 64 lower-case hexadecimal digits")]
pub struct InvalidSha256;

impl Sha256Hex {
    /// The hash of a file. Blocks; [`crate::hash_file`] does not.
    pub fn of_file(path: &Path) -> io::Result<Self> {
        let (mut file, mut hasher) = (fs::File::open(path)?, Sha256::new());
        while hash_next(&mut file, 1 << 20, &mut hasher)? > 0 {}
        Ok(Self::of(hasher))
    }

    /// The hash of bytes in memory.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self::of(Sha256::new_with_prefix(bytes))
    }

    /// The hash that a hasher has arrived at.
    pub(crate) fn of(hasher: Sha256) -> Self {
        Self(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

impl TryFrom<String> for Sha256Hex {
    type Error = InvalidSha256;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if text.len() == 64 && text.bytes().all(hex) { Ok(Self(text)) } else { Err(InvalidSha256) }
    }
}

impl From<Sha256Hex> for String {
    fn from(hash: Sha256Hex) -> Self {
        hash.0
    }
}

impl fmt::Display for Sha256Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Hashes up to `most` bytes of a file; returns how many there were.
pub(crate) fn hash_next(file: &mut fs::File, most: u64, hasher: &mut Sha256) -> io::Result<u64> {
    let mut bytes = Vec::new();
    let got = file.take(most).read_to_end(&mut bytes)?;
    hasher.update(&bytes);
    Ok(got as u64)
}
