//! Unique names, and quoting for bash.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Returns 32 random hexadecimal digits.
pub(crate) fn unique() -> String {
    // Every RandomState has its own keys, seeded by the system.
    let word = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", word(), word())
}

/// Quotes bytes so that bash reads exactly them.
pub(crate) fn quoted(bytes: &[u8]) -> String {
    let mut word = String::from("$'");
    for byte in bytes {
        match byte {
            b'\'' | b'\\' => word.extend(['\\', *byte as char]),
            0x20..=0x7e => word.push(*byte as char),
            _ => word.push_str(&format!("\\{byte:03o}")),
        }
    }
    word.push('\'');
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ() {
        let names: std::collections::HashSet<_> = (0..1000).map(|_| unique()).collect();
        assert_eq!(names.len(), 1000);
    }

    #[test]
    fn words_hold_no_byte_that_bash_would_read_otherwise() {
        assert_eq!(quoted(b"a b"), "$'a b'");
        assert_eq!(quoted(b"it's \\ \n\xff7"), "$'it\\'s \\\\ \\012\\3777'");
    }
}
