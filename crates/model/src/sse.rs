//! Server-sent events, decoded as their bytes arrive.
//!
//! Chunk boundaries are irrelevant, even inside a character or a line break. Knows no vendor and no JSON.

/// Maximum bytes of an event; longer ones are an attack or a mistake.
const MAX_EVENT: usize = 16 << 20;

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Event {
    /// The event's name; empty where the server sent none.
    pub(crate) name: String,
    /// The data lines, joined.
    pub(crate) data: String,
}

impl Event {
    /// Whether it is more than a keep-alive.
    pub(crate) fn has_content(&self) -> bool {
        self.name != "ping" && !self.data.trim().is_empty()
    }
}

/// An event exceeds the limit.
#[derive(Debug, thiserror::Error)]
#[error("an event is longer than {MAX_EVENT} bytes")]
pub(crate) struct TooLong;

/// The state of the stream so far.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    line: Vec<u8>,
    name: String,
    data: Option<String>,
    /// The last byte was a carriage return: a line feed that follows belongs to it.
    after_return: bool,
    /// The first line was read, which may begin with a byte order mark.
    begun: bool,
}

impl Decoder {
    /// Takes the next bytes and adds the events they complete.
    pub(crate) fn push(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> Result<(), TooLong> {
        let mut rest = bytes;
        if self.after_return && !rest.is_empty() {
            self.after_return = false;
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
        }
        while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')) {
            self.grow(&rest[..end])?;
            let returned = rest[end] == b'\r';
            rest = &rest[end + 1..];
            if returned {
                match rest.first() {
                    Some(b'\n') => rest = &rest[1..],
                    Some(_) => {}
                    None => self.after_return = true,
                }
            }
            events.extend(self.end_line());
        }
        self.grow(rest)
    }

    /// The last event, where the server omitted the empty line that ends it.
    pub(crate) fn finish(mut self) -> Option<Event> {
        let last = self.end_line();
        last.or_else(|| self.end_line())
    }

    fn grow(&mut self, piece: &[u8]) -> Result<(), TooLong> {
        let held = self.line.len() + self.data.as_ref().map_or(0, String::len);
        if held + piece.len() > MAX_EVENT {
            return Err(TooLong);
        }
        self.line.extend_from_slice(piece);
        Ok(())
    }

    fn end_line(&mut self) -> Option<Event> {
        let bytes = std::mem::take(&mut self.line);
        let text = String::from_utf8_lossy(&bytes);
        let text = if self.begun { &text } else { text.strip_prefix('\u{feff}').unwrap_or(&text) };
        self.begun = true;
        if text.is_empty() {
            let name = std::mem::take(&mut self.name);
            return self.data.take().map(|data| Event { name, data });
        }
        let (field, value) = text.split_once(':').unwrap_or((text, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            },
            "event" => value.clone_into(&mut self.name),
            // Older llama.cpp servers report a failure in a field of this name.
            "error" => {
                "error".clone_into(&mut self.name);
                self.data = Some(value.to_owned());
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<Event> {
        let mut decoder = Decoder::default();
        let mut events = Vec::new();
        for chunk in chunks {
            decoder.push(chunk, &mut events).unwrap();
        }
        events.extend(decoder.finish());
        events
    }

    fn event(name: &str, data: &str) -> Event {
        Event { name: name.into(), data: data.into() }
    }

    #[test]
    fn all_line_ends_comments_and_unknown_fields() {
        for end in ["\n", "\r\n", "\r"] {
            let text =
                ": hi\nevent: ping\ndata: {}\n\nid: 7\ndata:a\ndata: b\nretry: 3\n\n\ndata\n\n";
            let text = text.replace('\n', end);
            let expected = [event("ping", "{}"), event("", "a\nb"), event("", "")];
            assert_eq!(decode([text.as_bytes()]), expected, "{end:?}");
        }
    }

    #[test]
    fn a_byte_order_mark_and_a_missing_last_line_do_no_harm() {
        assert_eq!(decode(["\u{feff}data: x".as_bytes()]), [event("", "x")]);
        assert_eq!(decode(["data: x\n".as_bytes()]), [event("", "x")]);
        assert_eq!(decode(["event: only\n\n".as_bytes()]), []);
    }

    #[test]
    fn the_error_field_of_old_servers_is_an_event() {
        assert_eq!(decode([&b"error: {\"code\":500}\n\n"[..]]), [event("error", "{\"code\":500}")]);
    }

    #[test]
    fn an_endless_event_is_refused() {
        let mut decoder = Decoder::default();
        let mut events = Vec::new();
        let piece = vec![b'x'; 1 << 20];
        let refused = (0..17).any(|_| decoder.push(&piece, &mut events).is_err());
        assert!(refused && events.is_empty());
        let mut decoder = Decoder::default();
        let line = [b"data: ".as_slice(), &piece, b"\n"].concat();
        assert!((0..17).any(|_| decoder.push(&line, &mut events).is_err()));
    }

    proptest! {
        #[test]
        fn chunk_boundaries_mean_nothing(
            lines in prop::collection::vec("(data: ?[a-zäß日🦀]{0,9}|event: [a-z]{0,3}|:c|)", 0..20),
            ends in prop::collection::vec(0_usize..3, 20),
            cuts in prop::collection::vec(0_usize..400, 0..12),
        ) {
            let text: String =
                lines.iter().zip(&ends).map(|(line, end)| format!("{line}{}", ["\n", "\r\n", "\r"][*end])).collect();
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]);
            prop_assert_eq!(decode(pieces), decode([bytes]));
        }
    }
}
