//! Text from bytes that arrive in pieces; an incomplete character waits for the rest of it.

/// Decodes the bytes of tokens incrementally.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    /// The start of an incomplete character.
    pending: Vec<u8>,
}

impl Decoder {
    /// Adds bytes and returns the text that is complete. Invalid UTF-8 is replaced.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        let mut text = String::new();
        let mut at = 0;
        while let Some(rest) = self.pending.get(at..) {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    at = self.pending.len();
                    break;
                }
                Err(error) => {
                    let (valid, _) = rest.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    at += valid.len();
                    let Some(length) = error.error_len() else { break };
                    text.push(char::REPLACEMENT_CHARACTER);
                    at += length;
                }
            }
        }
        self.pending.drain(..at);
        text
    }

    /// Returns what is left: an incomplete character, replaced.
    pub fn finish(self) -> String {
        String::from_utf8_lossy(&self.pending).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn half_a_character_waits() {
        let mut decoder = Decoder::default();
        let bytes = "é😀".as_bytes();
        let pieces: Vec<String> = bytes.iter().map(|byte| decoder.push(&[*byte])).collect();
        assert_eq!(pieces, ["", "é", "", "", "", "😀"]);
        assert_eq!(decoder.push(&[b'a', 0xe2, 0x82]), "a");
        assert_eq!(decoder.finish(), "\u{fffd}");
    }

    proptest! {
        #[test]
        fn pieces_make_up_the_whole(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..6), 0..20)) {
            let mut decoder = Decoder::default();
            let mut text: String = pieces.iter().map(|piece| decoder.push(piece)).collect();
            text.push_str(&decoder.finish());
            let whole = pieces.concat();
            prop_assert_eq!(text, String::from_utf8_lossy(&whole));
        }

        #[test]
        fn characters_survive_any_cut(text in "\\PC{0,20}", cut in 0usize..60) {
            let bytes = text.as_bytes();
            let (one, two) = bytes.split_at(cut.min(bytes.len()));
            let mut decoder = Decoder::default();
            let joined = decoder.push(one) + &decoder.push(two);
            prop_assert_eq!(joined, text);
        }
    }
}
