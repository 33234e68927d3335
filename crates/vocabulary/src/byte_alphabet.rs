//! The characters that byte-level vocabularies use for bytes (GPT-2's `bytes_to_unicode`): printable bytes represent
//! themselves, the others are the characters from U+0100 on, in order.

/// The character of a byte.
pub(crate) fn letter(byte: u8) -> char {
    match byte {
        b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => char::from(byte),
        _ => {
            let before = (0..byte).filter(|byte| !is_printable(*byte)).count();
            u32::try_from(before).ok().and_then(|n| char::from_u32(0x100 + n)).unwrap_or('\u{100}')
        }
    }
}

/// The inverse of [`letter`].
pub(crate) struct ByteAlphabet(std::collections::HashMap<char, u8>);

impl ByteAlphabet {
    pub(crate) fn new() -> Self {
        Self((0..=u8::MAX).map(|byte| (letter(byte), byte)).collect())
    }

    /// The bytes of a token. Characters outside the alphabet represent themselves.
    pub(crate) fn bytes(&self, token: &str) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(token.len());
        for char in token.chars() {
            match self.0.get(&char) {
                Some(byte) => bytes.push(*byte),
                None => bytes.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        bytes
    }
}

fn is_printable(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_a_letter_of_its_own() {
        let letters = ByteAlphabet::new();
        for byte in 0..=u8::MAX {
            assert_eq!(letters.bytes(&letter(byte).to_string()), [byte]);
        }
        assert_eq!(letters.0.len(), 256);
        assert_eq!((letter(b' '), letter(b'\n'), letter(b'a')), ('Ġ', 'Ċ', 'a'));
        assert_eq!((letter(0x7f), letter(0xad), letter(0)), ('ġ', 'Ń', 'Ā'));
        assert_eq!(letters.bytes("Ġ日"), " 日".as_bytes());
    }
}
