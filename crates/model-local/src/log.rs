//! llama.cpp's messages: silent, but for the error that explains a failure.
//!
//! llama.cpp writes to standard error unless told otherwise. It is told once, for the whole process.

use std::{
    fmt,
    sync::{Arc, Mutex, Once, PoisonError},
};

use llama_cpp_2::{LogOptions, send_logs_to_tracing};
use tracing_core::{
    Dispatch, Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

/// A line may quote the file; no more than this of it is kept.
const LONGEST: usize = 300;

/// Runs something and gives with its result the first error llama.cpp spoke of on this thread: the later
/// ones only say that the former happened.
pub(crate) fn listening<T>(run: impl FnOnce() -> T) -> (T, Option<String>) {
    static SILENCED: Once = Once::new();
    SILENCED.call_once(|| send_logs_to_tracing(LogOptions::default()));
    let heard = Arc::new(Mutex::new(None));
    let dispatch = Dispatch::new(Listening(Arc::clone(&heard)));
    let result = tracing_core::dispatcher::with_default(&dispatch, run);
    let first = heard.lock().unwrap_or_else(PoisonError::into_inner).take();
    (result, first)
}

struct Listening(Arc<Mutex<Option<String>>>);

impl Subscriber for Listening {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::ERROR
    }

    fn event(&self, event: &Event<'_>) {
        let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if heard.is_none() {
            let mut line = Line(None);
            event.record(&mut line);
            *heard = line.0.filter(|line| !line.is_empty());
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Line(Option<String>);

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.0 = Some(tidy(value));
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
}

/// One short line without llama.cpp's own headings.
fn tidy(line: &str) -> String {
    let mut line = line.trim();
    for heading in ["error loading model: ", "error loading model architecture: ", "error: "] {
        line = line.strip_prefix(heading).unwrap_or(line);
    }
    line.chars().take(LONGEST).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_short_and_plain() {
        assert_eq!(tidy("error loading model: no\ttensor\n"), "no tensor");
        assert_eq!(tidy(&"x".repeat(1000)).len(), LONGEST);
    }
}
