//! The events of one attempt: written to its file before the episode continues, and kept in memory for what follows.

use std::{
    fmt,
    fs::File,
    io::{self, Seek, SeekFrom, Write},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use agent::Journal;
use model::{Delta, Listener};
use trajectory::{Event, Line};

/// Receives the events of an attempt as they happen, after they are recorded.
pub trait EventListener: Send + Sync {
    /// Receives one event.
    fn on_event(&self, line: &Line);

    /// Receives a piece of the model's response while it is being streamed.
    fn on_delta(&self, _delta: Delta<'_>) {}
}

/// Records the events of one attempt.
#[derive(Default)]
pub struct EventLog {
    file: Option<File>,
    /// The lines, and the length of the file up to the end of its last whole line.
    state: Mutex<(Vec<Line>, u64)>,
    listener: Option<Arc<dyn EventListener>>,
}

impl EventLog {
    /// A log in memory alone.
    pub fn in_memory() -> Self {
        Self::default()
    }

    /// A log that also appends each event to a file, as one line of JSON.
    pub fn to_file(file: File) -> io::Result<Self> {
        let length = file.metadata()?.len();
        Ok(Self { file: Some(file), state: Mutex::new((Vec::new(), length)), listener: None })
    }

    /// The same log, with a listener.
    #[must_use]
    pub fn with_listener(self, listener: Arc<dyn EventListener>) -> Self {
        Self { listener: Some(listener), ..self }
    }

    /// Records an event. A line that cannot be written whole is cut off again: half of one would spoil all that follow.
    pub fn append(&self, event: Event) -> io::Result<()> {
        let line = Line::new(now_ms(), event);
        let mut text = serde_json::to_vec(&line)?;
        text.push(b'\n');
        let mut state = self.state();
        if let Some(mut file) = self.file.as_ref() {
            if let Err(error) = file.write_all(&text) {
                // The write that failed says more than that the file cannot be cut either.
                let _ = file.set_len(state.1).and_then(|()| file.seek(SeekFrom::Start(state.1)));
                return Err(error);
            }
            state.1 += text.len() as u64;
        }
        if let Some(listener) = &self.listener {
            listener.on_event(&line);
        }
        state.0.push(line);
        Ok(())
    }

    /// The answer the model passed to `submit`, if it did.
    pub(crate) fn submitted_answer(&self) -> Option<String> {
        agent::tools::submitted_answer(&self.state().0)
    }

    /// The recorded events.
    pub fn into_lines(self) -> Vec<Line> {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner).0
    }

    fn state(&self) -> MutexGuard<'_, (Vec<Line>, u64)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for EventLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventLog").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Listener for EventLog {
    fn on_delta(&self, delta: Delta<'_>) {
        if let Some(listener) = &self.listener {
            listener.on_delta(delta);
        }
    }
}

impl<S> Journal<S> for EventLog {
    fn record(&self, event: Event) -> io::Result<()> {
        self.append(event)
    }
}

/// The time, in milliseconds since 1970.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_in_the_file_as_in_memory() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let log = EventLog::to_file(file.reopen().unwrap()).unwrap();
        log.append(Event::Resumed { turn: 1 }).unwrap();
        log.append(Event::Resumed { turn: 2 }).unwrap();
        let text = std::fs::read_to_string(file.path()).unwrap();
        assert_eq!(trajectory::read(&text).unwrap(), log.into_lines());
    }
}
