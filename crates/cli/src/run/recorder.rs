//! Keeps the record of a run: every event goes to the file before the episode goes on, then to the
//! terminal; now and then the sandbox's files are saved, so that a run whose process died can go on.

use std::{
    fs::File,
    io::{self, Write},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use agent::Journal;
use model::{Delta, Listener};
use sandbox::Sandbox;
use trajectory::{Event, Line};

use crate::{
    console::Console,
    runtime::{AnyRuntime, AnySandbox},
};

/// Saving files may take at most this part of the time.
const SHARE: u32 = 20;

/// Saving that takes longer is given up: the model waits meanwhile.
const LONGEST_SAVE: Duration = Duration::from_secs(20);

/// The record of one run.
pub(crate) struct Recorder<'a> {
    file: File,
    /// How long the file is, up to the end of its last whole line.
    length: Mutex<u64>,
    console: &'a Console,
    runtime: &'a AnyRuntime,
    /// Names the images that hold the sandbox's files.
    name: String,
    saved: Mutex<Saved>,
}

/// What is saved, and when to save again.
#[derive(Default)]
struct Saved {
    image: Option<String>,
    /// What is being saved: it may be there in the end although nobody waited for it.
    pending: Option<String>,
    next: Option<Instant>,
}

impl<'a> Recorder<'a> {
    /// Writes to this file. `image` is what an earlier process saved.
    pub(crate) fn new(
        file: File,
        console: &'a Console,
        runtime: &'a AnyRuntime,
        name: String,
        image: Option<String>,
    ) -> io::Result<Self> {
        let length = Mutex::new(file.metadata()?.len());
        let saved = Mutex::new(Saved { image, ..Saved::default() });
        Ok(Self { file, length, console, runtime, name, saved })
    }

    /// Leaves the saved files for another process.
    pub(crate) fn leave(&self) {
        *lock(&self.saved) = Saved::default();
    }

    /// Removes the saved files: nobody will need them. Those a sandbox still runs on could not be removed.
    pub(crate) async fn forget(&self) {
        let Saved { image, pending, .. } = std::mem::take(&mut *lock(&self.saved));
        for image in image.into_iter().chain(pending) {
            self.runtime.forget(&image).await;
        }
    }

    /// Whether it is time to save again.
    fn is_due(&self) -> bool {
        lock(&self.saved).next.is_none_or(|next| Instant::now() >= next)
    }

    /// Adds a line to the file, whole or not at all: half of one would spoil all that follow.
    fn append(&self, line: &[u8]) -> io::Result<()> {
        let mut length = lock(&self.length);
        match (&self.file).write_all(line) {
            Ok(()) => {
                *length += line.len() as u64;
                Ok(())
            }
            Err(error) => {
                let _ = self.file.set_len(*length);
                Err(error)
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Listener for Recorder<'_> {
    fn hear(&self, delta: Delta<'_>) {
        self.console.hear(delta);
    }
}

impl Journal<AnySandbox> for Recorder<'_> {
    fn record(&self, event: Event) -> io::Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let line = Line::new(u64::try_from(now).unwrap_or(u64::MAX), event);
        let mut text = serde_json::to_vec(&line)?;
        text.push(b'\n');
        self.append(&text)?;
        self.console.event(&line.event);
        Ok(())
    }

    async fn turn_over(&self, turn: u32, sandbox: &AnySandbox) {
        if !self.is_due() {
            return;
        }
        let began = Instant::now();
        let image = format!("{}-{turn}", self.name);
        lock(&self.saved).pending = Some(image.clone());
        let kept = tokio::time::timeout(LONGEST_SAVE, sandbox.snapshot(&image)).await;
        let mut next = began.elapsed() * SHARE;
        if matches!(kept, Ok(Ok(())))
            && self.record(Event::Saved { turn, image: image.clone() }).is_ok()
        {
            let former = lock(&self.saved).image.replace(image);
            lock(&self.saved).pending.clone_from(&former);
            if let Some(former) = former {
                self.runtime.forget(&former).await;
            }
        } else {
            // The episode does not need it; it will show in the record as missing.
            next = next.max(Duration::from_secs(60));
        }
        lock(&self.saved).next = Some(Instant::now() + next);
    }
}
