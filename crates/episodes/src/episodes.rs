//! [`Episodes`]: everything that clients do with episodes.

use std::{
    fs::File,
    io,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use agent::Limits;
use sandbox::RemoteRuntime;
use tokio::{sync::broadcast, task::JoinHandle};
use trajectory::{Event, Line, Trajectory};

use crate::{
    EpisodeInfo, EpisodeOptions, EpisodeRequest, Error, EventReader, FileEntry, FilesFrom, Fork,
    InputContent, InputFile, OwnedDelta, Page, Parent, Record, Resume, ServedModel, State, earlier,
    files,
    images::{Hold, Images},
    live::{Entry, NotNow, Standing},
    play::Play,
    record,
    request::{check_limits, check_metadata},
    store,
};

/// Most episodes of a page.
const MAX_PAGE: usize = 1000;
/// Most bytes of input where sandboxes have no limit.
const MAX_INPUT_BYTES: u64 = 4 << 30;
/// Most turns whose saved files are looked for when an episode is removed.
const MAX_TURNS: u32 = 10_000;

/// Episodes of many clients, played in sandboxes of one runtime.
pub struct Episodes<R> {
    runtime: Arc<R>,
    images: Arc<Images<R>>,
    options: Arc<EpisodeOptions>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    closing: AtomicBool,
}

/// A handle on an episode that was started.
#[derive(Clone, Debug)]
pub struct Episode {
    id: String,
    entry: Arc<Entry>,
    options: Arc<EpisodeOptions>,
}

impl<R: RemoteRuntime> Episodes<R> {
    /// Plays episodes in sandboxes of this runtime.
    pub fn new(runtime: Arc<R>, options: EpisodeOptions) -> Self {
        let (options, tasks) = (Arc::new(options), Mutex::default());
        let images = Images::new(Arc::clone(&runtime));
        Self { runtime, images, options, tasks, closing: AtomicBool::new(false) }
    }

    /// What the operator decided.
    pub fn options(&self) -> &EpisodeOptions {
        &self.options
    }

    /// Starts an episode. It continues when the handle is dropped.
    pub async fn start(&self, request: EpisodeRequest) -> Result<Episode, Error> {
        self.check_open()?;
        self.check_room()?;
        request.task.check()?;
        check_metadata(&request.metadata)?;
        let model = self.model(request.model.as_deref())?;
        let limits = self.limits(request.limits, &model)?;
        let text = request.task.text();
        let prompts = &self.options.prompts;
        prompts
            .render(&text, &self.options.spec.network)
            .map_err(|error| Error::Invalid(error.to_string()))?;
        let (image, base) = match &request.files {
            FilesFrom::Image => (None, None),
            FilesFrom::EndOf(id) => {
                let (image, base) = self.end_image(id).await?;
                (Some(image), Some(base))
            }
        };
        let created = attempt::now_ms();
        let record = Record {
            v: record::VERSION,
            id: store::new_id(created)?,
            owner: request.owner,
            created,
            model: model.name.clone(),
            task: request.task,
            limits,
            sampling: request.sampling,
            system_prompt: request.system_prompt,
            keep: request.keep,
            metadata: request.metadata,
            image,
            parent: None,
        };
        let with =
            Resume { sandbox: request.sandbox, permit: request.permit, meter: request.meter };
        let most = self.most_input(with.sandbox.as_ref());
        let made = self.create(record, (request.input, most), Vec::new(), base).await?;
        self.play(made, model, with)
    }

    /// Resumes an episode that was interrupted, cancelled or failed, after its last complete turn.
    pub async fn resume(&self, id: &str, with: Resume) -> Result<Episode, Error> {
        self.check_open()?;
        let entry = self.options.store.find(id)?;
        if let state @ (State::Running | State::Finished) = entry.state() {
            return Err(not_resumable(id, NotNow::In(state)));
        }
        let (store, name) = (Arc::clone(&self.options.store), id.to_owned());
        let read = blocking(move || Ok((store.record(&name)?, store.events(&name)?))).await;
        let (record, lines) = match read {
            // Removed meanwhile.
            Err(_) if entry.is_removed() => return Err(Error::NotFound(id.to_owned())),
            read => read?,
        };
        let model = self.model(Some(&record.model))?;
        self.play(Made { entry, record, lines, base: None, unplayed: None }, model, with)
    }

    /// Starts a new episode that continues another one after a turn: with its conversation up to there, and with the files as
    /// they were then.
    ///
    /// # Errors
    /// [`Error::NotKept`] if these files were not kept. They are never computed by running commands again: what a command
    /// does may depend on the time, the network or chance.
    pub async fn fork(&self, id: &str, fork: Fork) -> Result<Episode, Error> {
        self.check_open()?;
        self.check_room()?;
        check_metadata(&fork.metadata)?;
        self.options.store.find(id)?;
        let (store, name) = (Arc::clone(&self.options.store), id.to_owned());
        let (parent, lines, input) = blocking(move || {
            let input = store.input_dir(&name).map(|dir| {
                let host = |file: FileEntry| InputFile {
                    content: InputContent::Stored(dir.join(&file.path)),
                    path: file.path.into(),
                };
                files::list(&dir).into_iter().map(host).collect::<Vec<_>>()
            });
            Ok((store.record(&name)?, store.events(&name)?, input.unwrap_or_default()))
        })
        .await?;
        let (turn, base) = self.fork_point(&lines, fork.turn).await?;
        let name = fork.model.unwrap_or(parent.model);
        let model = self.model(Some(&name))?;
        let limits = self.limits(Some(fork.limits.unwrap_or(parent.limits)), &model)?;
        let created = attempt::now_ms();
        let mut shared: Vec<Line> = lines.into_iter().take(turn.lines).collect();
        if let Some(image) = turn.image {
            shared.push(Line::new(created, Event::Saved { turn: turn.turn, image }));
        }
        let record = Record {
            v: record::VERSION,
            id: store::new_id(created)?,
            owner: fork.owner,
            created,
            model: model.name.clone(),
            task: parent.task,
            limits,
            sampling: parent.sampling,
            system_prompt: parent.system_prompt,
            keep: fork.keep.unwrap_or(parent.keep),
            metadata: fork.metadata,
            image: parent.image,
            parent: Some(Parent { id: parent.id, turn: turn.turn }),
        };
        let with = Resume { sandbox: fork.sandbox, permit: fork.permit, meter: fork.meter };
        let most = self.most_input(with.sandbox.as_ref());
        let made = self.create(record, (input, most), shared, base).await?;
        self.play(made, model, with)
    }

    /// The turn to fork after, whose files must exist, and stay as long as they are held.
    async fn fork_point(
        &self,
        lines: &[Line],
        wanted: Option<u32>,
    ) -> Result<(earlier::CompleteTurn, Option<Hold<R>>), Error> {
        let mut kept = Vec::new();
        for turn in earlier::complete_turns(lines) {
            match &turn.image {
                Some(image) => match self.images.hold(image).await {
                    Some(hold) => kept.push((turn, Some(hold))),
                    None => continue,
                },
                // A new sandbox has these files.
                None if turn.turn == 0 => kept.push((turn, None)),
                None => continue,
            }
        }
        let names: Vec<String> = kept.iter().map(|(turn, _)| turn.turn.to_string()).collect();
        let Some(wanted) = wanted else {
            let none = "it has not begun, so there is nothing to continue";
            return kept.pop().ok_or_else(|| Error::Invalid(none.into()));
        };
        let found = kept.into_iter().find(|(turn, _)| turn.turn == wanted);
        found.ok_or_else(|| Error::NotKept {
            turn: wanted,
            kept: match names.is_empty() {
                true => "no turn".into(),
                false => format!("turn {}", names.join(", ")),
            },
        })
    }

    /// The image with the files an episode ended with. It stays as long as it is held.
    async fn end_image(&self, id: &str) -> Result<(String, Hold<R>), Error> {
        let state = self.options.store.find(id)?.state();
        if matches!(state, State::Running | State::Interrupted) {
            let why = "its files can be used once it has ended";
            return Err(Error::State { state, why });
        }
        let image = earlier::image_at_end(id);
        match self.images.hold(&image).await {
            Some(hold) => Ok((image, hold)),
            None => Err(Error::State { state, why: "the files it ended with were not kept" }),
        }
    }

    /// An episode.
    pub fn get(&self, id: &str) -> Result<EpisodeInfo, Error> {
        info(&self.options, id)
    }

    /// A handle on an episode.
    pub fn handle(&self, id: &str) -> Result<Episode, Error> {
        let entry = self.options.store.find(id)?;
        Ok(Episode { id: id.to_owned(), entry, options: Arc::clone(&self.options) })
    }

    /// Lists episodes, newest first, at most `limit` at once, those after the one named by `after`. Reads a small file of each.
    pub fn list(
        &self,
        owner: &str,
        state: Option<State>,
        after: Option<&str>,
        limit: usize,
    ) -> Page {
        let limit = limit.clamp(1, MAX_PAGE);
        let mut found = Vec::new();
        let episodes = self.options.store.lock();
        for (id, standing) in episodes.owned(owner, after) {
            if state.is_none_or(|state| state == standing.state) {
                found.push((id, standing));
            }
            if found.len() > limit {
                break;
            }
        }
        drop(episodes);
        let more = found.len() > limit;
        found.truncate(limit);
        let next = found.last().filter(|_| more).map(|(id, _)| id.clone());
        // One that was removed meanwhile is not listed.
        let summary = |(id, standing)| self.options.store.summary(id, standing).ok();
        Page { episodes: found.into_iter().filter_map(summary).collect(), next }
    }

    /// Cancels an episode. It ends within moments; wait for it with [`Episode::wait`].
    pub fn cancel(&self, id: &str) -> Result<Episode, Error> {
        let handle = self.handle(id)?;
        handle.cancel()?;
        Ok(handle)
    }

    /// Cancels all running episodes of these owners.
    pub fn cancel_where(&self, is_meant: impl Fn(&str) -> bool) {
        let entries: Vec<Arc<Entry>> = self.options.store.lock().entries().cloned().collect();
        for entry in entries {
            if let Some(live) = entry.live()
                && is_meant(&entry.owner)
            {
                live.cancel.cancel();
            }
        }
    }

    /// Follows the events of an episode after this number.
    pub async fn events_from(&self, id: &str, after: u64) -> Result<EventReader, Error> {
        self.handle(id)?.events_from(after).await
    }

    /// The size of its events, in bytes.
    pub fn events_size(&self, id: &str) -> Result<u64, Error> {
        self.options.store.find(id)?;
        let about = std::fs::metadata(self.options.store.events_path(id));
        Ok(about.map_err(Error::storage("cannot read the events"))?.len())
    }

    /// The trajectory of an episode so far.
    pub fn trajectory(&self, id: &str) -> Result<Trajectory, Error> {
        self.options.store.find(id)?;
        Ok(Trajectory::from_events(&self.options.store.events(id)?))
    }

    /// The files an episode left.
    pub fn files(&self, id: &str) -> Result<Vec<FileEntry>, Error> {
        self.options.store.find(id)?;
        Ok(files::list(&self.options.store.files_dir(id)))
    }

    /// Opens one of these files.
    pub fn file(&self, id: &str, path: &str) -> Result<File, Error> {
        self.options.store.find(id)?;
        files::open(&self.options.store.files_dir(id), path)
    }

    /// Removes an episode that is not running, with all its files.
    pub async fn remove(&self, id: &str) -> Result<(), Error> {
        let entry = self.options.store.find(id)?;
        entry.remove().map_err(|why| match why {
            NotNow::Removed => Error::NotFound(id.to_owned()),
            NotNow::In(state) => Error::State { state, why: "cancel it first" },
        })?;
        let (store, name) = (Arc::clone(&self.options.store), id.to_owned());
        let (images, marked) = (Arc::clone(&self.images), Arc::clone(&entry));
        // On a task of its own: a client that goes away must not leave half of it.
        let removing = tokio::spawn(async move {
            let id = name.clone();
            let removed = blocking(move || {
                let turns = turns(&store, &name);
                store.remove(&name)?;
                Ok(turns)
            })
            .await;
            let turns = removed.inspect_err(|_| marked.keep())?;
            let numbered = (1..=turns).map(|turn| earlier::image_after(&id, turn));
            for image in numbered.chain([earlier::image_at_end(&id)]) {
                // Most do not exist; one that a sandbox uses can be removed as an image later.
                let _ = images.remove(&image).await;
            }
            Ok(())
        });
        removing.await.map_err(io::Error::other).map_err(Error::storage("the server failed"))?
    }

    /// Forgets the files an episode ended with: no other episode can start with them from now on.
    pub async fn forget_end(&self, id: &str) {
        // Where there are none, nothing has to be done; one that cannot be removed stays as an image.
        let _ = self.images.remove(&earlier::image_at_end(id)).await;
    }

    /// Stops all episodes so that they can be resumed, starts no others, and waits up to `grace` until their sandboxes are gone.
    pub async fn close(&self, grace: Duration) {
        self.closing.store(true, Ordering::SeqCst);
        let tasks = std::mem::take(&mut *self.tasks());
        let entries: Vec<Arc<Entry>> = self.options.store.lock().entries().cloned().collect();
        for live in entries.iter().filter_map(|entry| entry.live()) {
            live.park();
        }
        let deadline = tokio::time::Instant::now() + grace;
        for mut task in tasks {
            if tokio::time::timeout_at(deadline, &mut task).await.is_err() {
                // Its sandbox is dropped, which destroys it. What it wrote can be resumed.
                task.abort();
                let _ = task.await;
            }
        }
        // Those that were aborted still have watchers.
        for entry in entries.iter().filter(|entry| entry.state() == State::Running) {
            entry.end(Standing::INTERRUPTED);
        }
    }

    fn check_open(&self) -> Result<(), Error> {
        match self.closing.load(Ordering::SeqCst) {
            true => Err(Error::Closing),
            false => Ok(()),
        }
    }

    fn check_room(&self) -> Result<(), Error> {
        let most = self.options.max_episodes;
        match self.options.store.lock().len() >= most {
            true => Err(Error::TooMany(most)),
            false => Ok(()),
        }
    }

    fn tasks(&self) -> std::sync::MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The served model of this name; the first one where it is absent.
    ///
    /// # Errors
    /// [`Error::UnknownModel`] if there is none.
    pub fn model(&self, name: Option<&str>) -> Result<ServedModel, Error> {
        let models = &self.options.models;
        let found = match name {
            None => models.first(),
            Some(name) => models.iter().find(|model| model.name == name),
        };
        found.cloned().ok_or_else(|| {
            let names: Vec<&str> = models.iter().map(|model| model.name.as_str()).collect();
            Error::UnknownModel {
                name: name.unwrap_or_default().to_owned(),
                served: if names.is_empty() { "none".into() } else { names.join(", ") },
            }
        })
    }

    fn limits(&self, limits: Option<Limits>, model: &ServedModel) -> Result<Limits, Error> {
        let limits = limits.unwrap_or_else(|| self.options.limits.clone());
        check_limits(&limits, &self.options.limits)?;
        if limits.cost.is_some() && model.price.is_none() {
            let text = format!("`cost` has no effect: the price of `{}` is not known", model.name);
            return Err(Error::Invalid(text));
        }
        Ok(limits)
    }

    /// Most bytes of input for a sandbox with these limits.
    fn most_input(&self, limits: Option<&sandbox::Limits>) -> u64 {
        let disk = limits.unwrap_or(&self.options.spec.limits).disk;
        disk.map_or(MAX_INPUT_BYTES, |disk| disk.0)
    }

    async fn create(
        &self,
        record: Record,
        (input, most): (Vec<InputFile>, u64),
        lines: Vec<Line>,
        base: Option<Hold<R>>,
    ) -> Result<Made<R>, Error> {
        let store = Arc::clone(&self.options.store);
        blocking(move || {
            let entry = store.create(&record, (&input, most), &lines)?;
            let id = record.id.clone();
            let unplayed = Unplayed { store, entry: Arc::clone(&entry), id, is_played: false };
            Ok(Made { entry, record, lines, base, unplayed: Some(unplayed) })
        })
        .await
    }

    /// Plays an episode on a task of its own.
    fn play(&self, made: Made<R>, model: ServedModel, with: Resume) -> Result<Episode, Error> {
        let Made { entry, record, lines, base, mut unplayed } = made;
        let Resume { sandbox, permit, meter } = with;
        let sampling = record.sampling.clone().unwrap_or_else(|| model.sampling.clone());
        let model = ServedModel { sampling, ..model };
        let mut tasks = self.tasks();
        // Under the lock, so that closing finds the task.
        self.check_open()?;
        let live = entry.begin().map_err(|why| not_resumable(&record.id, why))?;
        if let Err(error) = self.options.store.remove_result(&record.id) {
            entry.end(Standing::INTERRUPTED);
            return Err(error);
        }
        let id = record.id.clone();
        let (runtime, images) = (Arc::clone(&self.runtime), Arc::clone(&self.images));
        let play = Play {
            runtime,
            options: Arc::clone(&self.options),
            entry: Arc::clone(&entry),
            live,
            record,
            model,
            lines,
            meter,
            images,
            _base: base,
            sandbox,
        };
        tasks.retain(|task| !task.is_finished());
        tasks.push(tokio::spawn(play.run(permit)));
        if let Some(new) = &mut unplayed {
            new.is_played = true;
        }
        Ok(Episode { id, entry, options: Arc::clone(&self.options) })
    }
}

impl<R> std::fmt::Debug for Episodes<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Episodes").field("options", &self.options).finish_non_exhaustive()
    }
}

/// An episode that is ready to be played.
struct Made<R: RemoteRuntime> {
    entry: Arc<Entry>,
    record: Record,
    lines: Vec<Line>,
    /// The image its sandbox is based on.
    base: Option<Hold<R>>,
    /// Present where the episode is new.
    unplayed: Option<Unplayed>,
}

/// A new episode. If it is dropped before it is played, as when its client disconnects, its directory is removed: nobody
/// knows the id.
struct Unplayed {
    store: Arc<store::Store>,
    entry: Arc<Entry>,
    id: String,
    is_played: bool,
}

impl Drop for Unplayed {
    fn drop(&mut self) {
        // One that was found in a list meanwhile may have been resumed.
        if !self.is_played
            && self.entry.remove().is_ok()
            && let Err(error) = self.store.remove(&self.id)
        {
            self.entry.keep();
            tracing::warn!("removing an episode that was not started: {}", error.chain());
        }
    }
}

impl Episode {
    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Where it stands.
    pub fn state(&self) -> State {
        self.entry.state()
    }

    /// Whose it is.
    pub fn owner(&self) -> String {
        self.entry.owner.to_string()
    }

    /// All about it.
    pub fn info(&self) -> Result<EpisodeInfo, Error> {
        info(&self.options, &self.id)
    }

    /// The host's directory with the files it left, once it has ended. It may contain links, which must not be followed.
    pub fn files_dir(&self) -> PathBuf {
        self.options.store.files_dir(&self.id)
    }

    /// Follows its events after this number; 0 is from the start.
    pub async fn events_from(&self, after: u64) -> Result<EventReader, Error> {
        let failed = || Error::storage("cannot read the events");
        // Before the file: an episode that ends in between has written all.
        let progress = self.entry.live().map(|live| live.progress.subscribe());
        let path = self.options.store.events_path(&self.id);
        let file = tokio::fs::File::open(path).await.map_err(failed())?;
        Ok(EventReader::new(file, progress, after))
    }

    /// The model's output while it is generated, from now on. A listener that lags behind misses pieces; the events miss none.
    /// `None` if the episode is not running.
    pub fn deltas(&self) -> Option<broadcast::Receiver<OwnedDelta>> {
        self.entry.live().map(|live| live.deltas.subscribe())
    }

    /// Cancels it. It ends within moments.
    pub fn cancel(&self) -> Result<(), Error> {
        match self.entry.live() {
            Some(live) => {
                live.cancel.cancel();
                Ok(())
            }
            None => Err(Error::State {
                state: self.state(),
                why: "only a running one can be cancelled",
            }),
        }
    }

    /// Waits until it is not running.
    pub async fn wait(&self) -> Result<EpisodeInfo, Error> {
        if let Some(live) = self.entry.live() {
            let mut progress = live.progress.subscribe();
            drop(live);
            let _ = progress.wait_for(|progress| progress.over).await;
        }
        self.info()
    }
}

fn info(options: &EpisodeOptions, id: &str) -> Result<EpisodeInfo, Error> {
    let entry = options.store.find(id)?;
    let state = entry.state();
    let record = options.store.record(id)?;
    let result = match (state, entry.unstored()) {
        (State::Running | State::Interrupted, _) => None,
        (_, Some(unstored)) => Some(unstored),
        (State::Finished | State::Cancelled | State::Failed, None) => options.store.result(id)?,
    };
    Ok(EpisodeInfo { record, state, result })
}

/// The turns whose files may be saved. Events that cannot be read say nothing about them; the limits do.
fn turns(store: &store::Store, id: &str) -> u32 {
    let played = store.events(id).map(|lines| trajectory::history(&lines).1);
    let most = || store.record(id).map_or(0, |record| record.limits.turns);
    played.unwrap_or_else(|_| most()).min(MAX_TURNS).saturating_add(1)
}

fn not_resumable(id: &str, why: NotNow) -> Error {
    let state = match why {
        NotNow::In(state) => state,
        NotNow::Removed => return Error::NotFound(id.to_owned()),
    };
    let why = match state {
        State::Running => "it can be resumed once it has stopped",
        _ => "it can be continued as a fork",
    };
    Error::State { state, why }
}

/// Runs work on files on a thread of its own.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let done = tokio::task::spawn_blocking(work).await.map_err(io::Error::other);
    done.map_err(Error::storage("the server failed"))?
}
