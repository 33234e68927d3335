//! The events of one attempt: written to its file before the episode continues, and kept in memory for what follows.

use std::{
    fs::File,
    io::{self, Seek, SeekFrom, Write},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use agent::Journal;
use model::{Delta, Listener};
use trajectory::{Event, Line, escape_hidden};

/// Appends events to a file, as one line of JSON each.
#[derive(Debug)]
pub struct EventFile {
    file: File,
    /// The length of the file up to the end of its last whole line.
    length: Mutex<u64>,
}

impl EventFile {
    /// Appends to this file.
    pub fn new(file: File) -> io::Result<Self> {
        let length = Mutex::new(file.metadata()?.len());
        Ok(Self { file, length })
    }

    /// Writes an event and returns its line. A line that cannot be written whole is cut off again: half of one would spoil all
    /// that follow.
    pub fn append(&self, event: Event) -> io::Result<Line> {
        let line = Line::new(now_ms(), event);
        let text = escape_hidden(&serde_json::to_string(&line)?).into_owned() + "\n";
        let mut length = self.length.lock().unwrap_or_else(PoisonError::into_inner);
        let mut file = &self.file;
        if let Err(error) = file.write_all(text.as_bytes()) {
            // The write that failed says more than that the file cannot be cut either.
            let _ = file.set_len(*length).and_then(|()| file.seek(SeekFrom::Start(*length)));
            return Err(error);
        }
        *length += text.len() as u64;
        Ok(line)
    }
}

/// Records the events of one attempt.
#[derive(Debug, Default)]
pub struct EventLog {
    file: Option<EventFile>,
    lines: Mutex<Vec<Line>>,
}

impl EventLog {
    /// A log in memory alone.
    pub fn in_memory() -> Self {
        Self::default()
    }

    /// A log that also appends each event to a file.
    pub fn to_file(file: File) -> io::Result<Self> {
        Ok(Self { file: Some(EventFile::new(file)?), lines: Mutex::default() })
    }

    /// Records an event.
    pub fn append(&self, event: Event) -> io::Result<()> {
        // Held while writing, so that lines are in the same order in memory as in the file.
        let mut lines = self.lines();
        lines.push(match &self.file {
            Some(file) => file.append(event)?,
            None => Line::new(now_ms(), event),
        });
        Ok(())
    }

    /// The answer the model passed to `submit`, if it did.
    pub(crate) fn submitted_answer(&self) -> Option<String> {
        agent::tools::submitted_answer(&self.lines())
    }

    /// The recorded events.
    pub fn into_lines(self) -> Vec<Line> {
        self.lines.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn lines(&self) -> MutexGuard<'_, Vec<Line>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listener for EventLog {
    fn on_delta(&self, _delta: Delta<'_>) {}
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
