//! The record of one episode: every event goes to its file before the episode goes on, and is kept besides.

use std::{
    fs::File,
    io::{self, Write},
    path::Path,
    sync::{Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use agent::Journal;
use model::{Delta, Listener};
use trajectory::{Event, Line};

/// Takes down the events of an episode.
#[derive(Debug)]
pub(crate) struct Record {
    file: Option<File>,
    lines: Mutex<Vec<Line>>,
}

impl Record {
    /// An empty record, in a file where one is wanted. What a former try left there is gone.
    pub(crate) fn new(path: Option<&Path>) -> io::Result<Self> {
        let file = path.map(File::create).transpose()?;
        Ok(Self { file, lines: Mutex::default() })
    }

    /// Adds an event.
    pub(crate) fn add(&self, event: Event) -> io::Result<()> {
        let line = Line::new(now(), event);
        let mut text = serde_json::to_vec(&line)?;
        text.push(b'\n');
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mut file) = self.file.as_ref() {
            file.write_all(&text)?;
        }
        lines.push(line);
        Ok(())
    }

    /// What was recorded.
    pub(crate) fn lines(self) -> Vec<Line> {
        self.lines.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listener for Record {
    fn hear(&self, _: Delta<'_>) {}
}

impl<S> Journal<S> for Record {
    fn record(&self, event: Event) -> io::Result<()> {
        self.add(event)
    }
}

/// Milliseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
