//! Keeps the record of a run: every event goes to the file before the episode goes on, then to the
//! terminal; now and then the sandbox's files are saved, so that a run whose process died can go on.

use std::{
    fs::File,
    io::{self, Write},
    sync::{Mutex, PoisonError},
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
    ) -> Self {
        Self { file, console, runtime, name, saved: Mutex::new(Saved { image, next: None }) }
    }

    /// Removes the saved files: nobody will need them.
    pub(crate) async fn forget(&self) {
        let image = self.lock().image.take();
        if let Some(image) = image {
            self.runtime.forget(&image).await;
        }
    }

    /// Whether it is time to save again.
    fn is_due(&self) -> bool {
        self.lock().next.is_none_or(|next| Instant::now() >= next)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Saved> {
        self.saved.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
        // One write, so that another process never sees half of it without a kill in between.
        (&self.file).write_all(&text)?;
        self.console.event(&line.event);
        Ok(())
    }

    async fn turn_over(&self, turn: u32, sandbox: &AnySandbox) {
        if !self.is_due() {
            return;
        }
        let began = Instant::now();
        let image = format!("{}-{turn}", self.name);
        let kept = tokio::time::timeout(LONGEST_SAVE, sandbox.snapshot(&image)).await;
        let mut next = began.elapsed() * SHARE;
        if matches!(kept, Ok(Ok(())))
            && self.record(Event::Saved { turn, image: image.clone() }).is_ok()
        {
            let former = self.lock().image.replace(image);
            if let Some(former) = former {
                self.runtime.forget(&former).await;
            }
        } else {
            // The episode does not need it; it will show in the record as missing.
            next = next.max(Duration::from_secs(60));
        }
        self.lock().next = Some(Instant::now() + next);
    }
}
