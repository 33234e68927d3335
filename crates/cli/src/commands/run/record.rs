//! What a run writes: its directory, every event before the episode continues, and its results at the end. From time to
//! time the sandbox's files are saved as an image, so that a run whose process died can be resumed.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use agent::Journal;
use anyhow::Context;
use jiff::Timestamp;
use model::{Delta, Listener};
use sandbox::Sandbox;
use serde::{Deserialize, Serialize};
use trajectory::{Event, Line, Outcome, Trajectory, escape_hidden};

use super::{owners::Owner, resume::is_resumable, signed_events::SignedEvents};

use crate::{
    console::Console,
    exit::UsageError,
    runtime::{AnyRuntime, AnySandbox},
};

/// Characters of the directory's name that are used for the names of its images.
const MAX_NAME: usize = 40;

/// Runs that start in the same second get a number below this.
const MAX_PER_SECOND: u32 = 1000;

/// The largest event file or trajectory that is read, in bytes.
const MAX_SIZE: u64 = 256 << 20;

/// Every event of a run.
const EVENTS: &str = "events.jsonl";

/// The summary of a run, written last.
const RUN: &str = "run.json";

/// Saving files takes at most one part in this many of the time.
const SHARE: u32 = 20;

/// The time limit for saving: the model waits meanwhile.
const MAX_SAVE: Duration = Duration::from_secs(20);

/// Whether the results of a run are complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Results {
    /// All files are saved.
    Saved,
    /// The process ended before the files were saved.
    Missing,
}

/// The directory of one run.
#[derive(Debug)]
pub(crate) struct RunDir {
    path: PathBuf,
}

impl RunDir {
    /// Creates a new one below `parent`, named after the time.
    pub(crate) fn create(parent: &Path) -> anyhow::Result<Self> {
        let failed = || format!("cannot write results to {}", parent.display());
        fs::create_dir_all(parent).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => UsageError(format!(
                "--output: {} is not a directory; choose another",
                parent.display()
            ))
            .into(),
            _ => anyhow::Error::new(error).context(failed()),
        })?;
        let name = directory_name(Timestamp::now());
        for number in 1..MAX_PER_SECOND {
            let path = parent.join(match number {
                1 => name.clone(),
                _ => format!("{name}-{number}"),
            });
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Self { path: fs::canonicalize(path)? }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(anyhow::Error::new(error).context(failed())),
            }
        }
        anyhow::bail!("too many runs in one second in {}", parent.display())
    }

    /// Opens an existing one.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let folder = Self { path: fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()) };
        if !folder.events().is_file() {
            let text = format!(
                "{} is not a run directory: it has no events.jsonl; give one such as output/20260101_120000",
                path.display()
            );
            return Err(UsageError(text).into());
        }
        Ok(folder)
    }

    /// Removes it, if nothing was recorded.
    pub(crate) fn discard(&self) {
        if fs::metadata(self.events()).is_ok_and(|events| events.len() == 0) {
            let _ = fs::remove_file(self.events());
        }
        // Fails if it is not empty.
        let _ = fs::remove_dir(&self.path);
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A unique part for the names of the images of this process.
    pub(crate) fn image_name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        // Users may have renamed the directory to something that is not a valid image name.
        let name: String = name.to_ascii_lowercase().chars().take(MAX_NAME).collect();
        let words =
            name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        let pid = std::process::id().to_string();
        let parts: Vec<&str> = words.chain([pid.as_str()]).collect();
        parts.join("-")
    }

    /// The directory with the files of the sandbox's output directory.
    pub(crate) fn files(&self) -> PathBuf {
        self.path.join("files")
    }

    fn events(&self) -> PathBuf {
        self.path.join(EVENTS)
    }

    /// Reads a file of the directory, which may come from a stranger: links in it are not followed.
    fn text(&self, name: &str) -> io::Result<String> {
        text_of(results::open_below(&self.path, Path::new(name))?)
    }

    /// Whether the results are complete. `run.json` is written last, and its outcome says if they are lost.
    pub(crate) fn results(&self) -> Results {
        /// Nothing else is kept: the file may come from a stranger.
        #[derive(Deserialize)]
        struct Ended {
            outcome: Option<String>,
        }
        let text = self.text(RUN).unwrap_or_default();
        match serde_json::from_str::<Ended>(&text) {
            Ok(run) if run.outcome.as_deref() != Some("infrastructure") => Results::Saved,
            _ => Results::Missing,
        }
    }

    /// Marks the results as incomplete again.
    pub(crate) fn mark_unfinished(&self) -> anyhow::Result<()> {
        match fs::remove_file(self.path.join(RUN)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot change {}", self.path.display()))
            }
            _ => Ok(()),
        }
    }

    /// Opens the event file and locks it for this process.
    pub(crate) fn open_events(&self) -> anyhow::Result<File> {
        let path = self.events();
        let mut options = OpenOptions::new();
        options.create(true).append(true).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32);
        let file = options.open(&path);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        let locked = rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive);
        match locked.map_err(io::Error::from) {
            Ok(()) => atomic_file::remove_leftovers(&self.path, Duration::ZERO),
            // That no other process uses the directory is then up to the user.
            Err(error) if results::has_no_locks(&error) => {}
            Err(_) => {
                let text = format!("another process is using {}", self.path.display());
                return Err(UsageError(text).into());
            }
        }
        Ok(file)
    }

    /// Reads the events. A partial last line of a killed process is ignored.
    pub(crate) fn read_events(&self) -> anyhow::Result<Vec<Line>> {
        self.read_events_with_text().map(|(lines, _)| lines)
    }

    /// Reads the events, and the text they were read from.
    pub(crate) fn read_events_with_text(&self) -> anyhow::Result<(Vec<Line>, String)> {
        let path = self.events();
        let refuse = |why: String| UsageError(format!("{}: {why}", path.display()));
        let text = self.text(EVENTS).map_err(|error| refuse(error.to_string()))?;
        let lines = trajectory::read(&text).map_err(|error| refuse(error.to_string()))?;
        Ok((lines, text))
    }

    /// Removes a partial last line of a killed process.
    pub(crate) fn drop_partial_event(&self, file: &File) -> anyhow::Result<()> {
        let bytes = fs::read(self.events())?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64).context("cannot repair events.jsonl")
    }

    /// Writes the trajectory, from the events.
    pub(crate) fn write_trajectory(&self) -> anyhow::Result<()> {
        let record = Trajectory::from_events(&self.read_events()?);
        self.write("trajectory.json", &record)
    }

    /// Writes the summary of the run.
    pub(crate) fn write_run(&self, run: &impl Serialize) -> anyhow::Result<()> {
        self.write(RUN, run)
    }

    /// Writes a file completely or not at all.
    fn write(&self, name: &str, value: &impl Serialize) -> anyhow::Result<()> {
        let path = self.path.join(name);
        let text = serde_json::to_string_pretty(value).map_err(io::Error::other);
        let written = text
            .and_then(|text| atomic_file::write(&path, escape_hidden(&text).into_owned() + "\n"));
        written.with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Reads a trajectory or event file. A killed process may leave half a character at its end.
pub(crate) fn text_of(file: File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.take(MAX_SIZE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_SIZE {
        return Err(io::Error::other("it is too large"));
    }
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// A time as the name of a run directory, in UTC: `20260131_235959`.
fn directory_name(time: Timestamp) -> String {
    time.strftime("%Y%m%d_%H%M%S").to_string()
}

/// The journal of one run.
pub(crate) struct Recorder<'a> {
    events: &'a SignedEvents,
    console: &'a Console,
    runtime: &'a AnyRuntime,
    /// The prefix of the images with the sandbox's files.
    name: String,
    owner: Owner,
    saved: Mutex<Saved>,
}

/// What is saved, and when to save again.
#[derive(Default)]
struct Saved {
    /// The image that a resumed run would start from.
    image: Option<String>,
    /// The turn after which this process saved it.
    turn: Option<u32>,
    /// The image that the sandbox was restored from. Files can be saved only on top of it.
    base: Option<String>,
    /// Images that are of no use, but may exist: replaced ones, and ones whose saving was interrupted.
    stale: Vec<String>,
    next: Option<Instant>,
}

impl<'a> Recorder<'a> {
    /// Appends to these events. `image` was saved by an earlier process.
    pub(crate) fn new(
        events: &'a SignedEvents,
        console: &'a Console,
        runtime: &'a AnyRuntime,
        name: String,
        owner: Owner,
        image: Option<String>,
    ) -> Self {
        // That process may have died before it removed or recorded others.
        let mut stale = owner.images();
        stale.retain(|noted| Some(noted) != image.as_ref());
        // The directory may have been moved or copied since.
        if let Some(image) = &image {
            owner.note(image);
        }
        let base = image.clone();
        let saved = Mutex::new(Saved { image, base, stale, ..Saved::default() });
        Self { events, console, runtime, name, owner, saved }
    }

    /// Keeps the saved files for another process.
    pub(crate) fn keep_image(&self) {
        self.saved().image = None;
    }

    /// Removes saved files that are not needed. Images that a sandbox still uses cannot be removed.
    pub(crate) async fn remove_images(&self) {
        let Saved { image, stale, .. } = std::mem::take(&mut *self.saved());
        for image in image.into_iter().chain(stale) {
            self.forget(&image).await;
        }
    }

    /// Removes an image, unless a copy of the run directory needs it; returns whether this run is done with it.
    async fn forget(&self, image: &str) -> bool {
        let is_done = self.owner.shares(image) || self.runtime.forget(image).await;
        if is_done {
            self.owner.forget(image);
        }
        is_done
    }

    /// Saves the sandbox's files after this turn, in place of those saved before; returns whether that worked.
    async fn save(&self, turn: u32, image: String, sandbox: &AnySandbox) -> bool {
        self.owner.note(&image);
        self.saved().stale.push(image.clone());
        let kept = tokio::time::timeout(MAX_SAVE, sandbox.snapshot(&image)).await;
        if !matches!(kept, Ok(Ok(())))
            || self.record(Event::Saved { turn, image: image.clone() }).is_err()
        {
            return false;
        }
        let former = {
            let mut saved = self.saved();
            saved.stale.retain(|stale| *stale != image);
            saved.turn = Some(turn);
            let former = saved.image.replace(image);
            saved.stale.extend(former.clone());
            former.filter(|former| Some(former) != saved.base.as_ref())
        };
        if let Some(former) = former
            && self.forget(&former).await
        {
            self.saved().stale.retain(|stale| *stale != former);
        }
        true
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
        let line = self.events.append(event)?;
        self.console.event(&line.event);
        Ok(())
    }

    async fn on_turn_end(&self, turn: u32, sandbox: &AnySandbox) {
        if !self.is_due() {
            return;
        }
        let began = Instant::now();
        let is_saved = self.save(turn, format!("{}-{turn}", self.name), sandbox).await;
        let mut next = began.elapsed() * SHARE;
        if !is_saved {
            // The episode does not need it; a resumed run repeats its commands instead.
            next = next.max(Duration::from_secs(60));
        }
        self.saved().next = Some(Instant::now() + next);
    }

    /// Saves the files of the last turn, so that a resumed run plays no turn again.
    async fn on_end(&self, turn: u32, outcome: &Outcome, sandbox: &AnySandbox) {
        if is_resumable(outcome) && self.saved().turn != Some(turn) {
            // Saving under the usual name may have been cancelled, and may go on.
            self.save(turn, format!("{}-{turn}-end", self.name), sandbox).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn directories_are_named_after_the_time() {
        let name = |seconds| directory_name(Timestamp::from_second(seconds).unwrap());
        assert_eq!(name(0), "19700101_000000");
        assert_eq!(name(951_827_696), "20000229_123456");
        assert_eq!(name(1_767_225_599), "20251231_235959");
        assert_eq!(name(4_102_444_800), "21000101_000000");
    }

    #[test]
    fn runs_of_the_same_second_have_different_directories() {
        let dir = tempfile::tempdir().unwrap();
        let made: Vec<_> =
            (0..3).map(|_| RunDir::create(&dir.path().join("a/b")).unwrap().path).collect();
        assert!(made[0] != made[1] && made[1] != made[2] && made[0] != made[2]);
    }

    #[test]
    fn a_partial_last_line_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunDir::create(dir.path()).unwrap();
        let file = folder.open_events().unwrap();
        let whole = "{\"v\":1,\"at\":1,\"kind\":\"resumed\",\"turn\":1}\n";
        (&file).write_all(format!("{whole}{{\"v\":1,\"at").as_bytes()).unwrap();
        assert_eq!(folder.read_events().unwrap().len(), 1);
        folder.drop_partial_event(&file).unwrap();
        assert_eq!(fs::read_to_string(folder.events()).unwrap(), whole);
        // The file is locked.
        assert!(folder.open_events().is_err());
    }
}
