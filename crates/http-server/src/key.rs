//! Keys that clients send, compared without leaking anything about them.

use std::fmt;

use sha2::{Digest, Sha256};

/// The SHA-256 of a key: hashes have equal length, and comparing them leaks nothing about the key.
#[derive(Clone, Copy)]
pub struct KeyHash([u8; 32]);

impl KeyHash {
    /// The hash of a key.
    pub fn of(key: &[u8]) -> Self {
        Self(Sha256::digest(key).into())
    }

    /// A hash as 64 hexadecimal digits, as `sha256sum` prints it.
    pub fn parse(text: &str) -> Option<Self> {
        let mut hash = [0; 32];
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        for (at, byte) in hash.iter_mut().enumerate() {
            *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
        }
        Some(Self(hash))
    }

    /// Whether both are hashes of the same key, in a time that does not depend on where they differ.
    pub fn same(&self, other: &Self) -> bool {
        let differences = self.0.iter().zip(&other.0).fold(0, |all, (a, b)| all | (a ^ b));
        std::hint::black_box(differences) == 0
    }
}

impl fmt::Debug for KeyHash {
    /// Without the hash: that of a weak key could be inverted.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHash(..)")
    }
}

/// Whether two secrets are equal, in a time that does not depend on where they differ.
pub fn same_secret(one: &[u8], other: &[u8]) -> bool {
    KeyHash::of(one).same(&KeyHash::of(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_compared_whole() {
        assert!(same_secret(b"key", b"key"));
        assert!(!same_secret(b"key", b"kez") && !same_secret(b"", b"key"));
    }

    #[test]
    fn hashes_are_read_as_sha256sum_prints_them() {
        let text = "2c70e12b7a0646f92279f427c7b38e7334d8e5389cff167a1dc30e73f826b683";
        let upper = text.to_uppercase();
        for text in [text, upper.as_str()] {
            assert!(KeyHash::parse(text).unwrap().same(&KeyHash::of(b"key")), "{text}");
        }
        for bad in ["", &text[1..], &format!("{text}0"), &text.replace('2', "g"), &"é".repeat(32)]
        {
            assert!(KeyHash::parse(bad).is_none(), "{bad}");
        }
        assert!(!format!("{:?}", KeyHash::of(b"key")).contains("2c"));
    }
}
