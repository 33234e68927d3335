//! How much of a text may be sent while it is being written.
//!
//! Models write tool calls into their text, and what they are is known at the end only. Where tools are
//! offered, text is held back from the first place at which a call might begin: what was sent cannot be
//! taken back.

/// Whether the text may hold calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Calls {
    Possible,
    Impossible,
}

/// A text on its way to a client.
#[derive(Debug)]
pub(crate) struct Hold {
    calls: Calls,
    heard: String,
    /// No call begins before this place.
    clear: usize,
    /// The same without the blanks at its end: they are not a part of the text if a call follows.
    solid: usize,
    suspicion: bool,
    /// What lies between was sent; leading blanks are not.
    from: usize,
    sent: usize,
}

impl Hold {
    pub(crate) fn new(calls: Calls) -> Self {
        let heard = String::new();
        Self { calls, heard, clear: 0, solid: 0, suspicion: false, from: 0, sent: 0 }
    }

    /// Takes the next piece and gives what may be sent now; it may be empty.
    pub(crate) fn push(&mut self, piece: &str) -> &str {
        self.heard.push_str(piece);
        let end = match self.calls {
            Calls::Impossible => self.heard.len(),
            Calls::Possible => self.certain(),
        };
        let begin = self.sent;
        self.sent = end.max(begin);
        self.heard.get(begin..self.sent).unwrap_or_default()
    }

    /// Forgets everything, if nothing of it was sent.
    pub(crate) fn void(&mut self) -> Result<(), AlreadySent> {
        if self.sent > self.from {
            return Err(AlreadySent);
        }
        *self = Self::new(self.calls);
        Ok(())
    }

    /// What is left to be sent of the text as it turned out to be.
    pub(crate) fn rest<'a>(&'a self, text: &'a str) -> &'a str {
        let sent = self.heard.get(self.from..self.sent).unwrap_or_default();
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
        // What came before was thinking, as its end showed: the text itself is a part of what was heard.
        match self.heard.rfind(wanted) {
            Some(at) => self.heard.get(self.sent.max(at)..at + wanted.len()).unwrap_or_default(),
            None => wanted,
        }
    }

    /// The end of what cannot be a part of a call. Each byte is looked at once, however small the pieces.
    fn certain(&mut self) -> usize {
        self.scan();
        if self.sent > self.from {
            return self.solid;
        }
        let rest = self.heard.get(self.from..).unwrap_or_default();
        let begun = rest.trim_start();
        self.from = self.heard.len() - begun.len();
        self.sent = self.from;
        // Small models say nothing but this word to end their work.
        if "submit".starts_with(begun.trim_end()) { self.from } else { self.solid }
    }

    fn scan(&mut self) {
        let begin = self.clear;
        while !self.suspicion {
            let rest = self.heard.get(self.clear..).unwrap_or_default();
            let Some(step) = rest.find(['<', '[', '{', '`']) else {
                self.clear = self.heard.len();
                break;
            };
            self.clear += step;
            match verdict(&self.heard, self.clear) {
                Verdict::Harmless(length) => self.clear += length,
                Verdict::Open => break,
                Verdict::Suspicious => self.suspicion = true,
            }
        }
        let cleared = self.heard.get(begin..self.clear).unwrap_or_default().trim_end();
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
    /// No call begins within so many bytes.
    Harmless(usize),
    /// What follows will tell.
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
#[path = "hold_tests.rs"]
mod tests;
