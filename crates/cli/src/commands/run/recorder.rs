//! Records a run: every event goes to the event log before the episode continues, then to the console. From time to time the
//! sandbox's files are saved as an image, so that a run whose process died can be resumed.

use std::{
    fs::File,
    io,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use agent::Journal;
use attempt::EventLog;
use model::{Delta, Listener};
use sandbox::Sandbox;
use trajectory::Event;

use crate::{
    console::Console,
    runtime::{AnyRuntime, AnySandbox},
};

/// Saving files takes at most one part in this many of the time.
const SHARE: u32 = 20;

/// The time limit for saving: the model waits meanwhile.
const MAX_SAVE: Duration = Duration::from_secs(20);

/// The journal of one run.
pub(crate) struct Recorder<'a> {
    events: EventLog,
    console: &'a Console,
    runtime: &'a AnyRuntime,
    /// The prefix of the images with the sandbox's files.
    name: String,
    saved: Mutex<Saved>,
}

/// What is saved, and when to save again.
#[derive(Default)]
struct Saved {
    image: Option<String>,
    /// An image that is being saved: it may exist in the end although saving timed out.
    pending: Option<String>,
    next: Option<Instant>,
}

impl<'a> Recorder<'a> {
    /// Appends to this file. `image` was saved by an earlier process.
    pub(crate) fn new(
        file: File,
        console: &'a Console,
        runtime: &'a AnyRuntime,
        name: String,
        image: Option<String>,
    ) -> io::Result<Self> {
        let events = EventLog::to_file(file)?;
        let saved = Mutex::new(Saved { image, ..Saved::default() });
        Ok(Self { events, console, runtime, name, saved })
    }

    /// Keeps the saved files for another process.
    pub(crate) fn keep_images(&self) {
        *self.saved() = Saved::default();
    }

    /// Removes the saved files once they are not needed. Images that a sandbox still uses cannot be removed.
    pub(crate) async fn remove_images(&self) {
        let Saved { image, pending, .. } = std::mem::take(&mut *self.saved());
        for image in image.into_iter().chain(pending) {
            self.runtime.forget(&image).await;
        }
    }

    /// Whether it is time to save again.
    fn is_due(&self) -> bool {
        self.saved().next.is_none_or(|next| Instant::now() >= next)
    }

    fn saved(&self) -> MutexGuard<'_, Saved> {
        self.saved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listener for Recorder<'_> {
    fn on_delta(&self, delta: Delta<'_>) {
        self.console.on_delta(delta);
    }
}

impl Journal<AnySandbox> for Recorder<'_> {
    fn record(&self, event: Event) -> io::Result<()> {
        let shown = event.clone();
        self.events.append(event)?;
        self.console.event(&shown);
        Ok(())
    }

    async fn on_turn_end(&self, turn: u32, sandbox: &AnySandbox) {
        if !self.is_due() {
            return;
        }
        let began = Instant::now();
        let image = format!("{}-{turn}", self.name);
        self.saved().pending = Some(image.clone());
        let kept = tokio::time::timeout(MAX_SAVE, sandbox.snapshot(&image)).await;
        let mut next = began.elapsed() * SHARE;
        if matches!(kept, Ok(Ok(())))
            && self.record(Event::Saved { turn, image: image.clone() }).is_ok()
        {
            let former = self.saved().image.replace(image);
            self.saved().pending.clone_from(&former);
            if let Some(former) = former {
                self.runtime.forget(&former).await;
            }
        } else {
            // The episode does not need it; a resumed run repeats its commands instead.
            next = next.max(Duration::from_secs(60));
        }
        self.saved().next = Some(Instant::now() + next);
    }
}
