//! Captures output of any length in bounded memory: its head, its tail and its size.

use std::{borrow::Cow, collections::VecDeque};

use serde::{Deserialize, Serialize};

/// How many bytes of a stream are captured. By default 512 KiB of each end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputCap {
    /// Bytes from the start.
    pub head: usize,
    /// Bytes from the end.
    pub tail: usize,
}

impl Default for OutputCap {
    fn default() -> Self {
        Self { head: 512 << 10, tail: 512 << 10 }
    }
}

/// The captured part of one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Captured {
    /// The first bytes.
    pub head: Vec<u8>,
    /// The last bytes, without those in `head`.
    pub tail: Vec<u8>,
    /// Length of the whole stream in bytes.
    pub total: u64,
}

impl Captured {
    /// Number of bytes that are missing between head and tail.
    pub fn omitted(&self) -> u64 {
        self.total.saturating_sub((self.head.len() + self.tail.len()) as u64)
    }

    /// The captured bytes as text. A line marks what is missing, and bytes that are not UTF-8 become U+FFFD.
    pub fn text(&self) -> Cow<'_, str> {
        if self.omitted() == 0 {
            if self.tail.is_empty() {
                return String::from_utf8_lossy(&self.head);
            }
            let all = [self.head.as_slice(), &self.tail].concat();
            return Cow::Owned(String::from_utf8_lossy(&all).into_owned());
        }
        let (head, tail) = (whole_start(&self.head), whole_end(&self.tail));
        let gone = self.total - (head.len() + tail.len()) as u64;
        Cow::Owned(format!(
            "{}\n[... {gone} bytes omitted ...]\n{}",
            String::from_utf8_lossy(head),
            String::from_utf8_lossy(tail)
        ))
    }
}

/// The bytes without an incomplete character at their end.
fn whole_start(bytes: &[u8]) -> &[u8] {
    match std::str::from_utf8(bytes) {
        Err(e) if e.error_len().is_none() => &bytes[..e.valid_up_to()],
        _ => bytes,
    }
}

/// The bytes without an incomplete character at their start.
fn whole_end(bytes: &[u8]) -> &[u8] {
    let rest = bytes.iter().take(3).take_while(|b| **b & 0xC0 == 0x80).count();
    &bytes[rest..]
}

/// Captures a stream piece by piece.
#[derive(Debug)]
pub struct Capture {
    cap: OutputCap,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
}

impl Capture {
    /// Creates an empty capture.
    pub fn new(cap: OutputCap) -> Self {
        Self { cap, head: Vec::new(), tail: VecDeque::new(), total: 0 }
    }

    /// Adds the next piece of the stream.
    pub fn push(&mut self, mut bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = self.cap.head - self.head.len();
        if room > 0 {
            let (first, rest) = bytes.split_at(room.min(bytes.len()));
            self.head.extend_from_slice(first);
            bytes = rest;
        }
        let keep = &bytes[bytes.len().saturating_sub(self.cap.tail)..];
        let over = (self.tail.len() + keep.len()).saturating_sub(self.cap.tail);
        self.tail.drain(..over);
        self.tail.extend(keep);
    }

    /// Returns what was captured.
    pub fn finish(self) -> Captured {
        Captured { head: self.head, tail: self.tail.into(), total: self.total }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn capture(cap: OutputCap, pieces: &[Vec<u8>]) -> Captured {
        let mut capture = Capture::new(cap);
        pieces.iter().for_each(|piece| capture.push(piece));
        capture.finish()
    }

    proptest! {
        #[test]
        fn keeps_exactly_head_and_tail(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..20),
            head in 0usize..60,
            tail in 0usize..60,
        ) {
            let all = pieces.concat();
            let kept = capture(OutputCap { head, tail }, &pieces);
            prop_assert_eq!(kept.total, all.len() as u64);
            prop_assert_eq!(&kept.head, &all[..head.min(all.len())]);
            let rest = &all[kept.head.len()..];
            prop_assert_eq!(&kept.tail, &rest[rest.len().saturating_sub(tail)..]);
        }

        #[test]
        fn a_cut_never_splits_a_character(text in "\\PC{0,80}", head in 0usize..50, tail in 0usize..50) {
            let kept = capture(OutputCap { head, tail }, &[text.clone().into_bytes()]);
            let broken = |text: &str| text.contains(char::REPLACEMENT_CHARACTER);
            prop_assert!(!broken(&kept.text()) || broken(&text));
        }
    }
}
