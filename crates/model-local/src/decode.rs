//! Decodes the bytes of tokens to text: joins characters across tokens, and finds stop sequences across them.
//!
//! Knows no model: bytes go in, text comes out.

/// What is certain after the next token.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Decoded {
    /// More text, possibly empty. No stop sequence can begin in it.
    More(String),
    /// The text before a stop sequence, which ends the response.
    Stopped(String),
}

/// Decodes one response.
#[derive(Debug, Default)]
pub(crate) struct TextDecoder {
    /// The first bytes of a character that continues in the next token.
    bytes: Vec<u8>,
    /// Text that may begin a stop sequence.
    held: String,
    stops: Vec<String>,
}

impl TextDecoder {
    /// A decoder that stops before any of these texts.
    pub(crate) fn new(stops: &[String]) -> Self {
        let stops = stops.iter().filter(|stop| !stop.is_empty()).cloned().collect();
        Self { stops, ..Self::default() }
    }

    /// Takes the bytes of the next token.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Decoded {
        self.bytes.extend_from_slice(piece);
        self.decode();
        // Searching a long text takes long even in a short one.
        let stops = self.stops.iter().filter(|stop| stop.len() <= self.held.len());
        let found = stops.filter_map(|stop| self.held.find(stop.as_str())).min();
        if let Some(at) = found {
            self.held.truncate(at);
            return Decoded::Stopped(std::mem::take(&mut self.held));
        }
        let rest = self.held.split_off(self.held.len() - self.partial_stop());
        Decoded::More(std::mem::replace(&mut self.held, rest))
    }

    /// The rest, at the end of the response.
    pub(crate) fn finish(&mut self) -> String {
        let mut text = std::mem::take(&mut self.held);
        text.push_str(&String::from_utf8_lossy(&self.bytes));
        self.bytes.clear();
        text
    }

    /// Moves complete characters into the text. Invalid bytes become replacement characters.
    fn decode(&mut self) {
        let mut cut = 0;
        for chunk in self.bytes.utf8_chunks() {
            self.held.push_str(chunk.valid());
            cut += chunk.valid().len();
            let invalid = chunk.invalid();
            let at_end = cut + invalid.len() == self.bytes.len();
            if invalid.is_empty() || at_end && unfinished(invalid) {
                break;
            }
            self.held.push(char::REPLACEMENT_CHARACTER);
            cut += invalid.len();
        }
        self.bytes.drain(..cut);
    }

    /// How many bytes at the end may begin a stop sequence.
    fn partial_stop(&self) -> usize {
        let longest = self.stops.iter().map(|stop| {
            let ends = stop.char_indices().map(|(at, _)| at).skip(1);
            let ends = ends.take_while(|end| *end <= self.held.len());
            ends.filter(|&end| stop.get(..end).is_some_and(|begin| self.held.ends_with(begin)))
                .max()
                .unwrap_or_default()
        });
        longest.max().unwrap_or_default()
    }
}

/// Whether more bytes could complete a character.
fn unfinished(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(stops: &[&str], pieces: &[&[u8]]) -> (String, Vec<String>) {
        let stops: Vec<String> = stops.iter().map(|&stop| stop.to_owned()).collect();
        let mut decoder = TextDecoder::new(&stops);
        let mut given = Vec::new();
        for piece in pieces {
            match decoder.push(piece) {
                Decoded::More(text) => given.push(text),
                Decoded::Stopped(text) => {
                    given.push(text);
                    return (given.concat(), given);
                }
            }
        }
        given.push(decoder.finish());
        (given.concat(), given)
    }

    #[test]
    fn characters_are_joined_across_tokens() {
        let (whole, given) = decode(&[], &[b"a\xe2", b"\x82", b"\xac!"]);
        assert_eq!(whole, "a€!");
        assert_eq!(given, ["a", "", "€!", ""]);
    }

    #[test]
    fn broken_characters_are_replaced() {
        assert_eq!(decode(&[], &[b"a\xff", b"b\xe2", b"c"]).0, "a\u{fffd}b\u{fffd}c");
        assert_eq!(decode(&[], &[b"a\xe2\x82"]).0, "a\u{fffd}");
    }

    #[test]
    fn a_stop_text_ends_the_reply_wherever_tokens_end() {
        let text = b"one two STOP three";
        for cut in 0..text.len() {
            let (whole, _) = decode(&["STOP", ""], &[&text[..cut], &text[cut..]]);
            assert_eq!(whole, "one two ", "cut at {cut}");
        }
    }

    #[test]
    fn what_only_looks_like_a_stop_text_is_given_on() {
        let (whole, given) = decode(&["</end>"], &[b"a </", b"en", b"try> b"]);
        assert_eq!(whole, "a </entry> b");
        assert_eq!(given, ["a ", "", "</entry> b", ""]);
        assert_eq!(decode(&["</end>"], &[b"a </en"]).0, "a </en");
    }

    #[test]
    fn a_stop_text_of_megabytes_costs_no_more_than_a_short_one() {
        let stops: Vec<String> = ["ab", "é"].iter().map(|text| text.repeat(8 << 20)).collect();
        let mut decoder = TextDecoder::new(&stops);
        let began = std::time::Instant::now();
        for _ in 0..500 {
            decoder.push(b"c");
        }
        assert!(began.elapsed().as_secs() < 5, "{:?}", began.elapsed());
    }

    #[test]
    fn the_earliest_of_several_stop_texts_counts() {
        assert_eq!(decode(&["c", "b"], &[b"abc"]).0, "a");
    }
}
