//! Finds the trailer that the shell script writes after a command's output, in a stream that arrives in arbitrary pieces.
//!
//! What precedes the trailer is captured; what follows it is from background processes.

use sandbox::{Capture, Captured, OutputCap};

/// The shell script's report on a command that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trailer {
    pub(crate) code: i32,
    pub(crate) state: State,
}

/// What happened to the shell's variables and functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// They are saved.
    Saved,
    /// Those of the previous command were lost; the new ones are saved.
    Lost,
    /// They could not be saved.
    Unsaved,
}

/// Longest trailer in bytes.
const MAX_TRAILER: usize = 64;

/// Captures one stream of a command up to the trailer.
pub(crate) struct Sentinel {
    needle: Vec<u8>,
    /// How far the search advances at each byte value.
    skip: [usize; 256],
    /// Bytes that may be the start of the trailer.
    held: Vec<u8>,
    capture: Capture,
    trailer: Option<Trailer>,
}

impl Sentinel {
    /// Searches for the trailer with this name.
    pub(crate) fn new(name: &str, cap: OutputCap) -> Self {
        let needle = format!("\0\0{name} ").into_bytes();
        let mut skip = [needle.len(); 256];
        for (at, byte) in needle[..needle.len() - 1].iter().enumerate() {
            skip[usize::from(*byte)] = needle.len() - 1 - at;
        }
        Self { needle, skip, held: Vec::new(), capture: Capture::new(cap), trailer: None }
    }

    /// Adds the next piece of the stream.
    pub(crate) fn push(&mut self, piece: &[u8]) {
        if self.trailer.is_some() {
            return;
        }
        self.held.extend_from_slice(piece);
        while let Some(at) = self.find() {
            self.capture.push(&self.held[..at]);
            self.held.drain(..at);
            let rest = &self.held[self.needle.len()..];
            match rest.windows(2).position(|pair| pair == b"\0\0") {
                Some(end) => self.trailer = parse(&rest[..end]),
                None if rest.len() < MAX_TRAILER => return,
                None => {}
            }
            if self.trailer.is_some() {
                self.held.clear();
                return;
            }
            // Not a valid trailer, so it is output.
            self.capture.push(&self.needle);
            self.held.drain(..self.needle.len());
        }
        let sure = self.held.len().saturating_sub(self.needle.len() - 1);
        self.capture.push(&self.held[..sure]);
        self.held.drain(..sure);
    }

    /// The trailer, once it has arrived.
    pub(crate) fn trailer(&self) -> Option<&Trailer> {
        self.trailer.as_ref()
    }

    /// Returns what was captured.
    pub(crate) fn finish(mut self) -> Captured {
        self.capture.push(&self.held);
        self.capture.finish()
    }

    /// Horspool's algorithm, which inspects few of the bytes: output may have gigabytes.
    fn find(&self) -> Option<usize> {
        let last = self.needle.len() - 1;
        let mut at = 0;
        while at + last < self.held.len() {
            let end = self.held[at + last];
            if end == self.needle[last] && self.held[at..].starts_with(&self.needle) {
                return Some(at);
            }
            at += self.skip[usize::from(end)];
        }
        None
    }
}

fn parse(text: &[u8]) -> Option<Trailer> {
    let (code, state) = std::str::from_utf8(text).ok()?.split_once(' ')?;
    let state = match state {
        "kept" => State::Saved,
        "lost" => State::Lost,
        "unsaved" => State::Unsaved,
        _ => return None,
    };
    Some(Trailer { code: code.parse().ok()?, state })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn finds_the_trailer_wherever_the_stream_is_cut(
            before in prop::collection::vec(prop_oneof![Just(0u8), Just(b'n'), any::<u8>()], 0..300),
            after in prop::collection::vec(any::<u8>(), 0..20),
            cuts in prop::collection::vec(1usize..50, 1..20),
        ) {
            let mut stream = before.clone();
            stream.extend_from_slice(b"\0\0name 42 kept\0\0");
            stream.extend_from_slice(&after);
            let mut sentinel = Sentinel::new("name", OutputCap::default());
            let mut rest = stream.as_slice();
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (piece, next) = rest.split_at((*cut).min(rest.len()));
                sentinel.push(piece);
                rest = next;
            }
            prop_assert_eq!(sentinel.trailer(), Some(&Trailer { code: 42, state: State::Saved }));
            prop_assert_eq!(sentinel.finish().head, before);
        }

        #[test]
        fn without_a_trailer_every_byte_is_captured(bytes in prop::collection::vec(0u8..3, 0..300)) {
            let mut sentinel = Sentinel::new("name", OutputCap::default());
            bytes.chunks(7).for_each(|piece| sentinel.push(piece));
            prop_assert_eq!(sentinel.trailer(), None);
            prop_assert_eq!(sentinel.finish().head, bytes);
        }
    }

    #[test]
    fn an_imitation_is_output() {
        let mut sentinel = Sentinel::new("name", OutputCap::default());
        let fake = [&b"\0\0name "[..], &[b'x'; 100], b"\0\0name 1 wrong\0\0"].concat();
        sentinel.push(&fake);
        sentinel.push(b"\0\0name 7 lost\0\0");
        assert_eq!(sentinel.trailer(), Some(&Trailer { code: 7, state: State::Lost }));
        assert_eq!(sentinel.finish().head, fake);
    }

    #[test]
    fn the_name_alone_is_not_a_trailer() {
        let mut sentinel = Sentinel::new("name", OutputCap::default());
        sentinel.push(b"name 1 kept\0\0 \0name 1 kept\0\0");
        assert_eq!(sentinel.trailer(), None);
    }
}
