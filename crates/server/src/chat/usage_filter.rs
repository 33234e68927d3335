//! Takes the event with the usage out of a stream whose client did not ask for it.

use serde_json::Value;

/// An event with the usage is shorter.
const MAX_USAGE: usize = 16 << 10;
/// A line that is longer is passed on as it arrives.
const MAX_LINE: usize = 1 << 20;

/// A stream of events without its usage.
#[derive(Debug, Default)]
pub(super) struct UsageFilter {
    /// The beginning of a line.
    held: Vec<u8>,
    /// The blank line after an event that was taken out.
    skips_blank: bool,
    /// In a line whose beginning was passed on.
    in_long_line: bool,
}

impl UsageFilter {
    /// What of the stream can be passed on after this piece.
    pub(super) fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(piece.len());
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            self.held.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.end_line(&mut out);
            } else if self.held.len() > MAX_LINE {
                self.in_long_line = true;
                out.append(&mut self.held);
            }
        }
        out
    }

    fn end_line(&mut self, out: &mut Vec<u8>) {
        let line = std::mem::take(&mut self.held);
        if std::mem::take(&mut self.in_long_line) {
            out.extend(line);
            return;
        }
        let skips = std::mem::take(&mut self.skips_blank);
        if is_usage(&line) {
            self.skips_blank = true;
        } else if !(skips && line.trim_ascii().is_empty()) {
            out.extend(line);
        }
    }

    /// What is left at the end.
    pub(super) fn rest(&mut self) -> Vec<u8> {
        let rest = std::mem::take(&mut self.held);
        if is_usage(&rest) { Vec::new() } else { rest }
    }
}

fn is_usage(line: &[u8]) -> bool {
    let Some(data) = line.strip_prefix(b"data:") else { return false };
    if data.len() > MAX_USAGE {
        return false;
    }
    let Ok(event) = serde_json::from_slice::<Value>(data.trim_ascii()) else { return false };
    event["usage"].is_object() && event["choices"].as_array().is_some_and(Vec::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usage_is_taken_out_however_the_stream_is_cut() {
        let first = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}],\"usage\":null}\n\n";
        let usage = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1}}\r\n\r\n";
        let long = format!("data: {}\n\n", "x".repeat(MAX_LINE + 10));
        let last = "data: [DONE]\n\nend";
        let all = [first, usage, &long, last].concat();
        for size in [1, 7, all.len()] {
            let mut filter = UsageFilter::default();
            let mut out = Vec::new();
            all.as_bytes().chunks(size).for_each(|piece| out.extend(filter.push(piece)));
            out.extend(filter.rest());
            assert!(out == [first, &long, last].concat().as_bytes(), "{size}");
        }
    }
}
