//! Content digests (`sha256:…`) and a reader that computes them.
//!
//! Supports SHA-256 only, as every registry does.

use std::{fmt, io, io::Read, str::FromStr};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The sha256 of some bytes, written `sha256:` and 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

/// The text is not a digest this crate can check.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a digest of the form sha256:<64 hexadecimal digits>")]
pub struct ParseDigestError(String);

impl Digest {
    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The 64 hexadecimal digits, without the algorithm.
    pub fn hex(&self) -> String {
        use fmt::Write;
        self.0.iter().fold(String::with_capacity(64), |mut text, byte| {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    /// Parses the 64 hexadecimal digits.
    pub(crate) fn from_hex(hex: &str) -> Result<Self, ParseDigestError> {
        let refuse = || ParseDigestError(clip(hex));
        if hex.len() != 64 || !hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(refuse());
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
            let text = std::str::from_utf8(pair).map_err(|_| refuse())?;
            *byte = u8::from_str_radix(text, 16).map_err(|_| refuse())?;
        }
        Ok(Self(bytes))
    }
}

/// Shortens untrusted text that is quoted in an error.
fn clip(text: &str) -> String {
    text.chars().take(100).collect()
}

impl FromStr for Digest {
    type Err = ParseDigestError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let hex = text.strip_prefix("sha256:").ok_or_else(|| ParseDigestError(clip(text)))?;
        Self::from_hex(hex)
    }
}

impl TryFrom<String> for Digest {
    type Error = ParseDigestError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A digest under construction.
#[derive(Clone, Default)]
pub(crate) struct Hasher(Sha256);

impl Hasher {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

/// A reader that hashes and counts its bytes, and fails beyond a limit.
pub(crate) struct HashingReader<R> {
    inner: R,
    hasher: Hasher,
    count: u64,
    limit: u64,
}

impl<R: Read> HashingReader<R> {
    pub(crate) fn new(inner: R, limit: u64) -> Self {
        Self { inner, hasher: Hasher::default(), count: 0, limit }
    }

    /// Reads to the end and returns digest and size of everything read.
    pub(crate) fn finish(mut self) -> io::Result<(Digest, u64)> {
        io::copy(&mut self, &mut io::sink())?;
        Ok((self.hasher.finish(), self.count))
    }
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.inner.read(buffer)?;
        self.count += got as u64;
        if self.count > self.limit {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("the stream is larger than the limit of {} bytes", self.limit),
            ));
        }
        self.hasher.update(&buffer[..got]);
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn digests_print_as_they_are_read() {
        assert_eq!(Digest::of(b"").to_string(), EMPTY);
        assert_eq!(EMPTY.parse::<Digest>().unwrap(), Digest::of(b""));
        for bad in ["", "sha256:", "sha512:00", &EMPTY.to_uppercase(), &EMPTY[..70], "sha256:../x"]
        {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_metered_reader_hashes_everything_and_stops_at_its_limit() {
        let mut reader = HashingReader::new(&b"abcdef"[..], 6);
        let mut two = [0; 2];
        reader.read_exact(&mut two).unwrap();
        assert_eq!(reader.finish().unwrap(), (Digest::of(b"abcdef"), 6));
        assert!(HashingReader::new(&b"abcdef"[..], 5).finish().is_err());
    }
}
