//! llama.cpp's log: sent to `tracing`, and its first error captured to explain a failure.
//!
//! llama.cpp writes to standard error by default. It is redirected once, for the whole process.

use std::{
    fmt,
    sync::{Arc, Mutex, Once, PoisonError},
};

use llama_cpp_2::{LogOptions, send_logs_to_tracing};
use tracing::{
    Dispatch, Event, Level, Metadata, Subscriber, dispatcher,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

/// Maximum characters of a captured line, which may quote the file.
const MAX_LINE: usize = 300;

/// Runs `run` and captures the first error llama.cpp logs on this thread meanwhile: later ones only report that the
/// first happened.
pub(crate) fn capture_errors<T>(run: impl FnOnce() -> T) -> (T, Option<String>) {
    static REDIRECTED: Once = Once::new();
    REDIRECTED.call_once(|| send_logs_to_tracing(LogOptions::default()));
    let captured = Arc::new(Mutex::new(None));
    let dispatch = Dispatch::new(ErrorCapture(Arc::clone(&captured)));
    let result = dispatcher::with_default(&dispatch, run);
    let first = captured.lock().unwrap_or_else(PoisonError::into_inner).take();
    (result, first)
}

struct ErrorCapture(Arc<Mutex<Option<String>>>);

impl Subscriber for ErrorCapture {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::ERROR
    }

    fn event(&self, event: &Event<'_>) {
        let mut captured = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if captured.is_none() {
            let mut line = Line(None);
            event.record(&mut line);
            *captured = line.0.filter(|line| !line.is_empty());
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
            self.0 = Some(one_line(value));
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
}

/// One short line without llama.cpp's prefixes.
fn one_line(line: &str) -> String {
    let mut line = line.trim();
    for prefix in ["error loading model: ", "error loading model architecture: ", "error: "] {
        line = line.strip_prefix(prefix).unwrap_or(line);
    }
    line.chars().take(MAX_LINE).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_short_and_plain() {
        assert_eq!(one_line("error loading model: no\ttensor\n"), "no tensor");
        assert_eq!(one_line(&"x".repeat(1000)).len(), MAX_LINE);
    }
}
