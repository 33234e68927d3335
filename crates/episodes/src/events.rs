//! [`EventReader`]: follows the events of an episode in its file, so that a slow reader costs one line of memory.

use std::io;

use tokio::{
    fs::File,
    io::{AsyncBufReadExt, BufReader},
    sync::watch,
};
use trajectory::Line;

use crate::live::Progress;

/// Reads the events of an episode in order, and waits for those to come.
#[derive(Debug)]
pub struct EventReader {
    file: BufReader<File>,
    number: u64,
    /// Events up to this number are skipped.
    after: u64,
    /// Bytes read so far.
    at: u64,
    /// Absent where nothing is written any more.
    progress: Option<watch::Receiver<Progress>>,
}

/// An event with its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberedEvent {
    /// Its number, from 1, without gaps.
    pub number: u64,
    /// The event as it is stored: one line of JSON without its end.
    pub json: String,
}

/// What a reader found without waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ready {
    /// An event.
    Event(NumberedEvent),
    /// An event up to the number after which it reads.
    Skipped,
    /// Nothing follows.
    End,
}

impl NumberedEvent {
    /// The event.
    pub fn line(&self) -> Result<Line, serde_json::Error> {
        serde_json::from_str(&self.json)
    }
}

impl EventReader {
    pub(crate) fn new(file: File, progress: Option<watch::Receiver<Progress>>, after: u64) -> Self {
        Self { file: BufReader::new(file), number: 0, at: 0, after, progress }
    }

    /// The next event; `None` after the last one, once the episode is not running. Not to be cancelled: see [`Self::ready`].
    pub async fn next(&mut self) -> io::Result<Option<NumberedEvent>> {
        loop {
            match self.read().await? {
                Some(event) if event.number <= self.after => {}
                event => return Ok(event),
            }
        }
    }

    /// Reads one event where there is one already, after [`Self::ready`]. Not to be cancelled.
    pub async fn read_ready(&mut self) -> io::Result<Ready> {
        Ok(match self.read().await? {
            Some(event) if event.number <= self.after => Ready::Skipped,
            Some(event) => Ready::Event(event),
            None => Ready::End,
        })
    }

    /// Waits until [`Self::next`] has something to read. Can be cancelled.
    pub async fn ready(&mut self) {
        self.wait().await;
    }

    async fn read(&mut self) -> io::Result<Option<NumberedEvent>> {
        if !self.wait().await {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        self.file.read_until(b'\n', &mut bytes).await?;
        // A process that was killed may have left a part of a line.
        if bytes.pop() != Some(b'\n') {
            return Ok(None);
        }
        self.at += bytes.len() as u64 + 1;
        self.number += 1;
        let json = String::from_utf8_lossy(&bytes).into_owned();
        Ok(Some(NumberedEvent { number: self.number, json }))
    }

    /// Waits for a whole line; whether there may be one.
    async fn wait(&mut self) -> bool {
        let Some(progress) = &mut self.progress else { return true };
        let at = self.at;
        let reached = progress.wait_for(|progress| progress.bytes > at || progress.over).await;
        reached.is_ok_and(|progress| progress.bytes > at)
    }
}
