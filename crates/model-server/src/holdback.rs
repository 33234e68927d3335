//! Decides how much of a text may be streamed while it is generated.
//!
//! Models write tool calls into their text, and they are recognized at the end only. Where tools are offered, text is
//! held back from the first position at which a call might begin: what was sent cannot be taken back.

/// Whether the text may contain calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Calls {
    Possible,
    Impossible,
}

/// A text that is streamed to a client.
#[derive(Debug)]
pub(crate) struct Holdback {
    calls: Calls,
    received: String,
    /// No call begins before this position.
    clear: usize,
    /// `clear` without trailing blanks, which are not part of the text if a call follows.
    solid: usize,
    suspicion: bool,
    /// The range that was sent, without leading blanks.
    from: usize,
    sent: usize,
}

impl Holdback {
    pub(crate) fn new(calls: Calls) -> Self {
        let received = String::new();
        Self { calls, received, clear: 0, solid: 0, suspicion: false, from: 0, sent: 0 }
    }

    /// Takes the next piece and returns what may be sent now, possibly nothing.
    pub(crate) fn push(&mut self, piece: &str) -> &str {
        self.received.push_str(piece);
        let end = match self.calls {
            Calls::Impossible => self.received.len(),
            Calls::Possible => self.certain(),
        };
        let begin = self.sent;
        self.sent = end.max(begin);
        self.received.get(begin..self.sent).unwrap_or_default()
    }

    /// Discards everything, if nothing of it was sent.
    pub(crate) fn void(&mut self) -> Result<(), AlreadySent> {
        if self.sent > self.from {
            return Err(AlreadySent);
        }
        *self = Self::new(self.calls);
        Ok(())
    }

    /// The part of the final text that remains to be sent.
    pub(crate) fn rest<'a>(&'a self, text: &'a str) -> &'a str {
        let sent = self.received.get(self.from..self.sent).unwrap_or_default();
        let wanted = match self.calls {
            Calls::Possible => text.trim_start(),
            Calls::Impossible => text,
        };
        if let Some(rest) = wanted.strip_prefix(sent) {
            return rest;
        }
        if sent.starts_with(wanted.trim_end()) {
            return "";
        }
        // The first part turned out to be thinking: the text is a part of what was received.
        match self.received.rfind(wanted) {
            Some(at) => self.received.get(self.sent.max(at)..at + wanted.len()).unwrap_or_default(),
            None => wanted,
        }
    }

    /// The end of what cannot be part of a call. Each byte is scanned once, however small the pieces.
    fn certain(&mut self) -> usize {
        self.scan();
        if self.sent > self.from {
            return self.solid;
        }
        let rest = self.received.get(self.from..).unwrap_or_default();
        let begun = rest.trim_start();
        self.from = self.received.len() - begun.len();
        self.sent = self.from;
        // Small models end an episode with this word alone.
        if "submit".starts_with(begun.trim_end()) { self.from } else { self.solid }
    }

    fn scan(&mut self) {
        let begin = self.clear;
        while !self.suspicion {
            let rest = self.received.get(self.clear..).unwrap_or_default();
            let Some(step) = rest.find(['<', '[', '{', '`']) else {
                self.clear = self.received.len();
                break;
            };
            self.clear += step;
            match verdict(&self.received, self.clear) {
                Verdict::Harmless(length) => self.clear += length,
                Verdict::Open => break,
                Verdict::Suspicious => self.suspicion = true,
            }
        }
        let cleared = self.received.get(begin..self.clear).unwrap_or_default().trim_end();
        if !cleared.is_empty() {
            self.solid = begin + cleared.len();
        }
    }
}

/// What was sent cannot be taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AlreadySent;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// No call begins within this many bytes.
    Harmless(usize),
    /// Undecided until more text arrives.
    Open,
    /// A call may begin here.
    Suspicious,
}

const MISTRAL: &str = "[TOOL_CALLS]";

fn verdict(text: &str, at: usize) -> Verdict {
    let (before, rest) = text.split_at(at);
    let begins_line =
        matches!(before.trim_end_matches([' ', '\t']).chars().next_back(), None | Some('\n'));
    let mut chars = rest.chars();
    match (chars.next(), chars.next()) {
        (Some('<'), None) => Verdict::Open,
        (Some('<'), Some(next)) if next.is_alphabetic() || "|｜/_".contains(next) => {
            Verdict::Suspicious
        }
        (Some('[' | '{'), _) if begins_line => Verdict::Suspicious,
        (Some('['), _) if rest.starts_with(MISTRAL) => Verdict::Suspicious,
        (Some('['), _) if MISTRAL.starts_with(rest) => Verdict::Open,
        (Some('`'), _) => {
            let ticks = rest.bytes().take_while(|byte| *byte == b'`').count();
            match ticks {
                3.. if begins_line => Verdict::Suspicious,
                _ if ticks == rest.len() => Verdict::Open,
                _ => Verdict::Harmless(ticks),
            }
        }
        _ => Verdict::Harmless(1),
    }
}

#[cfg(test)]
#[path = "holdback_tests.rs"]
mod tests;
