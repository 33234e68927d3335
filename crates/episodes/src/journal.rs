//! Where the events of a running episode go: into its file, then to its watchers. From time to time the sandbox's files are
//! saved as an image, so that the episode can be resumed or forked.

use std::{
    fs::File,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use agent::Journal;
use attempt::EventFile;
use model::{Delta, Listener};
use sandbox::{RemoteRuntime, Sandbox};
use trajectory::{Event, Outcome};

use crate::{Keep, Meter, earlier, images::Images, live::Live};

/// Saving files for a resumption takes at most one part in this many of the time.
const SHARE: u32 = 20;
/// The time limit for saving: the model waits meanwhile.
const MAX_SAVE: Duration = Duration::from_secs(20);
/// After a failure to save, the next attempt waits this long.
const AFTER_FAILURE: Duration = Duration::from_secs(60);

/// The journal of one episode.
pub(crate) struct EpisodeJournal<R: RemoteRuntime> {
    events: EventFile,
    /// The same file, for its length.
    file: File,
    live: Arc<Live>,
    images: Arc<Images<R>>,
    id: String,
    keep: Keep,
    meter: Option<Arc<dyn Meter>>,
    order: Mutex<()>,
    saved: Mutex<Saved>,
}

/// What is saved, and when to save again.
#[derive(Debug, Default)]
struct Saved {
    /// The turn after which files were saved last, by this process.
    turn: Option<u32>,
    /// Images of this episode that only serve to resume it, or that were not finished.
    spare: Vec<String>,
    next: Option<Instant>,
}

impl<R: RemoteRuntime> EpisodeJournal<R> {
    /// Appends to this file. `spare` are images of earlier processes that only serve to resume the episode.
    pub(crate) fn new(
        file: File,
        live: Arc<Live>,
        images: Arc<Images<R>>,
        (id, keep): (&str, Keep),
        meter: Option<Arc<dyn Meter>>,
        spare: Vec<String>,
    ) -> io::Result<Self> {
        let events = EventFile::new(file.try_clone()?)?;
        let saved = Mutex::new(Saved { spare, ..Saved::default() });
        let id = id.to_owned();
        let order = Mutex::default();
        let journal = Self { events, file, live, images, id, keep, meter, order, saved };
        journal.publish()?;
        Ok(journal)
    }

    /// Lets watchers read what was written.
    fn publish(&self) -> io::Result<()> {
        let bytes = self.file.metadata()?.len();
        self.live.progress.send_modify(|progress| progress.bytes = bytes);
        Ok(())
    }

    /// Writes an event.
    pub(crate) fn append(&self, event: Event) -> io::Result<()> {
        if let Event::Ended(ended) = &event
            && ended.outcome == Outcome::Cancelled
            && self.live.parks()
        {
            // It has not ended: it is resumed as if the process had died here.
            return Ok(());
        }
        if let (Event::Responded(replied), Some(meter)) = (&event, &self.meter)
            && !replied.from_cache
        {
            meter.on_response(replied.usage.total(), replied.cost);
        }
        let _order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(event, Event::Responded(_)) {
            // Before the event, so that its readers have received every piece.
            self.live.complete();
        }
        self.events.append(event)?;
        self.live.forget_partial();
        self.publish()
    }

    fn saved(&self) -> MutexGuard<'_, Saved> {
        self.saved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Saves the files after this turn; whether that worked.
    async fn save(&self, turn: u32, sandbox: &R::Sandbox) -> bool {
        let image = earlier::image_after(&self.id, turn);
        if self.keep != Keep::EveryTurn {
            self.saved().spare.push(image.clone());
        }
        if !snapshot(sandbox, &image).await
            || self.append(Event::Saved { turn, image: image.clone() }).is_err()
        {
            return false;
        }
        self.saved().turn = Some(turn);
        self.remove_spare(Some(&image)).await;
        true
    }

    /// Saves the files at the end under their own name; whether that worked.
    pub(crate) async fn save_end(&self, sandbox: &R::Sandbox) -> bool {
        self.keep != Keep::ForResume && snapshot(sandbox, &earlier::image_at_end(&self.id)).await
    }

    /// Removes images that only serve to resume the episode, but for `needed`. One that a sandbox
    /// is based on stays until that is gone: its files can be saved only on top of it.
    pub(crate) async fn remove_spare(&self, needed: Option<&str>) {
        let spare = std::mem::take(&mut self.saved().spare);
        for image in spare {
            if Some(image.as_str()) == needed || self.images.remove(&image).await.is_err() {
                self.saved().spare.push(image);
            }
        }
    }
}

/// Saves files as an image; whether that worked.
async fn snapshot<S: Sandbox>(sandbox: &S, image: &str) -> bool {
    match tokio::time::timeout(MAX_SAVE, sandbox.snapshot(image)).await {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            tracing::warn!("saving the files of an episode: {}", error.chain());
            false
        }
        Err(_) => {
            tracing::warn!("saving the files of an episode took too long");
            false
        }
    }
}

impl<R: RemoteRuntime> Listener for EpisodeJournal<R> {
    fn on_delta(&self, delta: Delta<'_>) {
        self.live.hear(delta);
    }
}

impl<R: RemoteRuntime> Journal<R::Sandbox> for EpisodeJournal<R> {
    fn record(&self, event: Event) -> io::Result<()> {
        self.append(event)
    }

    async fn on_turn_end(&self, turn: u32, sandbox: &R::Sandbox) {
        let is_due = self.saved().next.is_none_or(|next| Instant::now() >= next);
        if self.keep != Keep::EveryTurn && !is_due {
            return;
        }
        let began = Instant::now();
        let is_saved = self.save(turn, sandbox).await;
        let mut next = began.elapsed() * SHARE;
        if !is_saved {
            // The episode does not need it; a resumed one repeats its commands instead.
            next = next.max(AFTER_FAILURE);
        }
        self.saved().next = Some(Instant::now() + next);
    }

    /// Saves the files of the last turn, so that a resumed episode plays no turn again.
    async fn on_end(&self, turn: u32, outcome: &Outcome, sandbox: &R::Sandbox) {
        let stopped = matches!(outcome, Outcome::Cancelled | Outcome::Infrastructure { .. });
        if (stopped || self.keep == Keep::EveryTurn) && self.saved().turn != Some(turn) {
            self.save(turn, sandbox).await;
        }
    }
}
