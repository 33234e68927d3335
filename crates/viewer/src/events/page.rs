//! A range of events.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use super::{cut, index::EventIndex};
use crate::{ViewError, error::Code};

/// Most events of a response.
pub(crate) const MOST_EVENTS: usize = 1000;
/// A response ends after about this many bytes.
const MOST_BYTES: usize = 4 << 20;
/// Bytes of the longest line that is parsed.
pub(super) const LONGEST_LINE: u64 = 64 << 20;

/// Some events in order.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct EventsPage {
    pub(crate) from: u64,
    pub(crate) total: u64,
    pub(crate) complete: bool,
    pub(crate) events: Vec<ShownEvent>,
}

/// An event with its number.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ShownEvent {
    pub(crate) n: u64,
    pub(crate) event: Value,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) cut: BTreeMap<String, usize>,
}

impl EventIndex {
    /// The events from a number on.
    pub(crate) fn page(&self, from: u64, limit: usize) -> Result<EventsPage, ViewError> {
        self.page_within(from, limit.clamp(1, MOST_EVENTS), MOST_BYTES)
    }

    /// The same with other bounds.
    pub(crate) fn page_within(
        &self,
        from: u64,
        limit: usize,
        most_bytes: usize,
    ) -> Result<EventsPage, ViewError> {
        let from = from.max(1);
        let mut events = Vec::new();
        let mut bytes = 0;
        for n in (from..=self.total()).take(limit) {
            let event = self.shown(n)?;
            let cut_bytes: usize = event.cut.values().sum();
            bytes += (self.length(n) as usize).saturating_sub(cut_bytes) + event.cut.len() * 33_000;
            events.push(event);
            if bytes > most_bytes {
                break;
            }
        }
        Ok(EventsPage { from, total: self.total(), complete: self.is_complete(), events })
    }

    /// An event with its long texts cut.
    pub(crate) fn shown(&self, n: u64) -> Result<ShownEvent, ViewError> {
        let mut event = self.event(n)?;
        let cut = cut::cut(&mut event);
        Ok(ShownEvent { n, event, cut })
    }

    /// An event, whole.
    pub(crate) fn event(&self, n: u64) -> Result<Value, ViewError> {
        if n == 0 || n > self.total() {
            return Err(ViewError::not_found("event", &n.to_string()));
        }
        let length = self.length(n);
        if length > LONGEST_LINE {
            let message = format!("event {n} has {length} bytes, more than can be shown");
            return Ok(unreadable("", &message));
        }
        let line = self.line(n)?;
        Ok(match serde_json::from_slice::<Value>(&line) {
            Ok(value @ Value::Object(_)) => value,
            Ok(_) => unreadable(&String::from_utf8_lossy(&line), "it is not an object"),
            Err(error) => unreadable(&String::from_utf8_lossy(&line), &error.to_string()),
        })
    }

    /// An event for a program.
    pub(crate) fn raw(&self, n: u64) -> Result<Vec<u8>, ViewError> {
        match self.length(n) > LONGEST_LINE {
            true => Err(ViewError::new(Code::TooLarge, format!("event {n} is too large"))),
            false => self.line(n),
        }
    }
}

fn unreadable(text: &str, why: &str) -> Value {
    let text = cut::cut_text(text, 32 << 10).unwrap_or_else(|| text.to_owned());
    json!({ "kind": "unreadable", "text": text, "why": why })
}
