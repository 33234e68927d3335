//! Ids and keys that cannot be guessed: random numbers of the operating system, as bytes or as letters. Knows nothing of what
//! they name.
//!
//! ```
//! let id = lis_random_id::letters(20)?;
//! assert_eq!(id.len(), 20);
//! # Ok::<(), std::io::Error>(())
//! ```

use std::{fs::File, io, io::Read};

/// The letters of ids: those of host names, without `i`, `l`, `o` and `u`, which are misread. They sort by their value.
pub const LETTERS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Fills a buffer with random bytes of the operating system.
///
/// # Errors
/// If the system has no random numbers for this process, for example because it may open no more files.
pub fn fill(bytes: &mut [u8]) -> io::Result<()> {
    File::open("/dev/urandom")?.read_exact(bytes)
}

/// So many random letters of [`LETTERS`], of five bits each: 20 are enough for an id that nobody can guess.
///
/// # Errors
/// As [`fill`].
pub fn letters(count: usize) -> io::Result<String> {
    let mut bytes = vec![0; count];
    fill(&mut bytes)?;
    Ok(bytes.iter().map(|byte| letter(u64::from(*byte))).collect())
}

/// The letter for the lowest five bits of a number.
pub fn letter(bits: u64) -> char {
    char::from(LETTERS[(bits & 31) as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_and_use_all_letters() {
        let id = letters(2000).unwrap();
        assert_ne!(id, letters(2000).unwrap());
        assert!(LETTERS.iter().all(|letter| id.contains(char::from(*letter))), "{id}");
        assert!(LETTERS.is_sorted() && letter(32) == '0' && letter(31) == 'z');
    }
}
