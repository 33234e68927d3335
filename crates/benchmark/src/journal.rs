//! The record of one attempt: every event goes to its file before the episode goes on, and is kept for the
//! counting at the end.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use agent::Journal;
use model::{Delta, Listener};
use trajectory::{Event, Line};

/// Writes events to a file that gets its name when the episode is over.
#[derive(Debug)]
pub(crate) struct Record {
    path: PathBuf,
    file: File,
    lines: Mutex<Vec<Line>>,
}

impl Record {
    /// An empty record in an empty file.
    pub(crate) fn new(path: PathBuf, file: File) -> Self {
        Self { path, file, lines: Mutex::default() }
    }

    /// Adds an event.
    pub(crate) fn add(&self, event: Event) -> io::Result<()> {
        let line = Line::new(crate::now(), event);
        let mut text = serde_json::to_vec(&line)?;
        text.push(b'\n');
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        (&self.file).write_all(&text)?;
        lines.push(line);
        Ok(())
    }

    /// The answer the model gave when it submitted.
    pub(crate) fn submitted_answer(&self) -> Option<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        agent::tools::submitted_answer(&lines)
    }

    /// Gives the file its name; answers what was recorded.
    pub(crate) fn settle(self, path: &Path) -> io::Result<Vec<Line>> {
        fs::rename(&self.path, path)?;
        Ok(self.lines.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Throws the record away.
    pub(crate) fn discard(self) {
        // Where it cannot be removed, the next attempt begins it anew.
        let _ = fs::remove_file(&self.path);
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
