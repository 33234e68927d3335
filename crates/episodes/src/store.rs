//! The directory of all episodes: its lock, the directories of episodes, and their files, written whole or not at all.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::DirBuilderExt,
    path::{Component, Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use trajectory::Line;

use crate::{
    DirectoryLock, EpisodeResult, Error, InputContent, InputFile, Record, State, Summary,
    index::{ID_LENGTH, Index, PREFIX},
    live::{Entry, Standing},
    record,
};

const RECORD: &str = "episode.json";
/// What lists say about an episode. May be missing: then the record says it.
const SUMMARY: &str = "summary.json";
const RESULT: &str = "result.json";
const EVENTS: &str = "events.jsonl";
const INPUT: &str = "input";
const FILES: &str = "files";
/// The prefix of a directory that is being created or removed.
const PARTIAL: &str = ".partial-";
/// The largest file of JSON or of events that is read, in bytes.
const MAX_SIZE: u64 = 256 << 20;
/// Characters of the task in lists.
const MAX_TITLE: usize = 200;
/// Most input files of an episode.
const MAX_INPUT: usize = 10_000;

/// A directory of episodes, locked for this process.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    episodes: Mutex<Index>,
    /// The names of owners, each once.
    owners: Mutex<BTreeSet<Arc<str>>>,
    _lock: DirectoryLock,
}

impl Store {
    /// Opens a directory, creating it where necessary, and locks it until the store is dropped or the process dies. Episodes
    /// that were running when a process died are [`State::Interrupted`].
    ///
    /// # Errors
    /// [`Error::InUse`] if another process uses it.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let failed = || Error::storage(format!("cannot use {}", dir.display()));
        let lock = DirectoryLock::acquire(dir)?;
        let mut episodes = Index::default();
        let mut owners = BTreeSet::new();
        for found in fs::read_dir(dir).map_err(failed())? {
            let found = found.map_err(failed())?;
            let name = found.file_name().to_string_lossy().into_owned();
            if name.starts_with(PARTIAL) {
                let _ = fs::remove_dir_all(found.path());
            } else if is_id(&name) {
                match load(&found.path(), &name) {
                    Ok((owner, standing)) => {
                        episodes.add(&name, interned(&mut owners, &owner), standing);
                    }
                    Err(error) => tracing::warn!("skipping {}: {}", name, error.chain()),
                }
            }
        }
        let (episodes, owners) = (Mutex::new(episodes), Mutex::new(owners));
        Ok(Self { dir: dir.to_owned(), episodes, owners, _lock: lock })
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Whether this process plays an episode.
    pub fn is_running(&self, id: &str) -> bool {
        self.find(id).is_ok_and(|entry| entry.state() == State::Running)
    }

    /// What the model of a running episode has said since its last event; empty where it is not running.
    pub fn partial(&self, id: &str) -> String {
        let live = self.find(id).ok().and_then(|entry| entry.live());
        live.map(|live| live.partial()).unwrap_or_default()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Index> {
        self.episodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn find(&self, id: &str) -> Result<Arc<Entry>, Error> {
        let found = self.lock().entry(id).filter(|entry| !entry.is_removed());
        found.ok_or_else(|| Error::NotFound(id.to_owned()))
    }

    /// Creates the directory of a new episode with everything it starts from: complete or not at all. The
    /// input may have `most` bytes.
    pub(crate) fn create(
        &self,
        record: &Record,
        (input, most): (&[InputFile], u64),
        events: &[Line],
    ) -> Result<Arc<Entry>, Error> {
        check_size(input, most)?;
        let partial = self.dir.join(format!("{PARTIAL}{}", record.id));
        let made = fill(&partial, record, input, events).and_then(|()| {
            fs::rename(&partial, self.dir.join(&record.id))
                .map_err(Error::storage("cannot store the episode"))
        });
        if let Err(error) = made {
            let _ = fs::remove_dir_all(&partial);
            return Err(error);
        }
        let owner = {
            let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
            interned(&mut owners, &record.owner)
        };
        let mut episodes = self.lock();
        episodes.add(&record.id, owner, Standing::INTERRUPTED);
        episodes.entry(&record.id).ok_or_else(|| Error::NotFound(record.id.clone()))
    }

    /// What lists say about an episode.
    pub(crate) fn summary(&self, id: String, standing: Standing) -> Result<Summary, Error> {
        let dir = self.dir.join(&id);
        // Episodes of earlier versions have a record only.
        let brief = read_json(&dir, SUMMARY)
            .or_else(|_| read_json(&dir, RECORD).map(|record| Brief::of(&record)))?;
        let Brief { owner, created, model, task, metadata } = brief;
        let (state, outcome) = (standing.state, standing.outcome.map(str::to_owned));
        Ok(Summary { id, owner, created, state, model, task, metadata, outcome })
    }

    /// Removes an episode's directory.
    pub(crate) fn remove(&self, id: &str) -> Result<(), Error> {
        let partial = self.dir.join(format!("{PARTIAL}{id}"));
        let failed = || Error::storage("cannot remove the episode");
        fs::rename(self.dir.join(id), &partial).map_err(failed())?;
        self.lock().remove(id);
        fs::remove_dir_all(&partial).map_err(failed())
    }

    pub(crate) fn record(&self, id: &str) -> Result<Record, Error> {
        read_json(&self.dir.join(id), RECORD)
    }

    pub(crate) fn result(&self, id: &str) -> Result<Option<EpisodeResult>, Error> {
        let dir = self.dir.join(id);
        match dir.join(RESULT).exists() {
            true => read_json(&dir, RESULT).map(Some),
            false => Ok(None),
        }
    }

    /// Writes the result: from now on the episode has ended.
    pub(crate) fn write_result(&self, id: &str, result: &EpisodeResult) -> Result<(), Error> {
        write_json(&self.dir.join(id).join(RESULT), result)
    }

    /// Removes the result of an episode that is resumed.
    pub(crate) fn remove_result(&self, id: &str) -> Result<(), Error> {
        match fs::remove_file(self.dir.join(id).join(RESULT)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::storage("cannot resume the episode")(error))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn events_path(&self, id: &str) -> PathBuf {
        self.dir.join(id).join(EVENTS)
    }

    pub(crate) fn files_dir(&self, id: &str) -> PathBuf {
        self.dir.join(id).join(FILES)
    }

    /// The input files; `None` where there are none.
    pub(crate) fn input_dir(&self, id: &str) -> Option<PathBuf> {
        Some(self.dir.join(id).join(INPUT)).filter(|dir| dir.exists())
    }

    /// The events. A partial last line of a killed process is ignored.
    pub(crate) fn events(&self, id: &str) -> Result<Vec<Line>, Error> {
        let bytes = read(&self.dir.join(id), EVENTS)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let text = String::from_utf8_lossy(&bytes[..whole]);
        let read = trajectory::read(&text).map_err(io::Error::other);
        read.map_err(Error::storage("the events are unreadable"))
    }

    /// Opens the events to append to them. A partial last line of a killed process is cut off.
    pub(crate) fn append_events(&self, id: &str) -> Result<File, Error> {
        let failed = || Error::storage("cannot write the events");
        let bytes = read(&self.dir.join(id), EVENTS)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let file = OpenOptions::new().append(true).open(self.events_path(id)).map_err(failed())?;
        if whole < bytes.len() {
            file.set_len(whole as u64).map_err(failed())?;
        }
        Ok(file)
    }
}

/// A new id: the time, so that ids sort by it, and random letters, so that none can be guessed.
pub(crate) fn new_id(now_ms: u64) -> Result<String, Error> {
    let random = random_id::letters(20).map_err(Error::storage("there are no random numbers"))?;
    let time = (0..9).rev().map(|digit| random_id::letter(now_ms >> (5 * digit)));
    Ok(PREFIX.chars().chain(time).chain(random.chars()).collect())
}

/// Whether a name may be the id of an episode.
pub(crate) fn is_id(name: &str) -> bool {
    let rest = name.strip_prefix(PREFIX);
    rest.is_some_and(|rest| {
        rest.len() == ID_LENGTH && rest.bytes().all(|b| b.is_ascii_alphanumeric())
    })
}

/// The owner of an episode, and where it stands.
fn load(dir: &Path, name: &str) -> Result<(String, Standing), Error> {
    atomic_file::remove_leftovers(dir, Duration::ZERO);
    let record: Record = read_json(dir, RECORD)?;
    if record.id != name || record.v > record::VERSION {
        return Err(Error::Invalid("its record is of another episode or a newer program".into()));
    }
    let standing = match dir.join(RESULT).exists() {
        true => Standing::of(&read_json(dir, RESULT)?),
        false => Standing::INTERRUPTED,
    };
    Ok((record.owner, standing))
}

/// The same name for all episodes of an owner.
fn interned(owners: &mut BTreeSet<Arc<str>>, name: &str) -> Arc<str> {
    if let Some(known) = owners.get(name) {
        return Arc::clone(known);
    }
    let new: Arc<str> = name.into();
    owners.insert(Arc::clone(&new));
    new
}

/// What lists say about an episode and never changes: so much of its record that a list need not read long tasks.
#[derive(Serialize, Deserialize)]
struct Brief {
    owner: String,
    created: u64,
    model: String,
    task: String,
    metadata: BTreeMap<String, String>,
}

impl Brief {
    fn of(record: &Record) -> Self {
        Self {
            owner: record.owner.clone(),
            created: record.created,
            model: record.model.clone(),
            task: record.task.text().chars().take(MAX_TITLE).collect(),
            metadata: record.metadata.clone(),
        }
    }
}

/// Writes the directory of an episode.
fn fill(dir: &Path, record: &Record, input: &[InputFile], events: &[Line]) -> Result<(), Error> {
    let failed = || Error::storage("cannot store the episode");
    let _ = fs::remove_dir_all(dir);
    fs::DirBuilder::new().mode(0o700).create(dir).map_err(failed())?;
    if !input.is_empty() {
        write_input(&dir.join(INPUT), input)?;
    }
    let mut file = File::create(dir.join(EVENTS)).map_err(failed())?;
    for line in events {
        let text = serde_json::to_string(line).map_err(io::Error::other).map_err(failed())?;
        let text = trajectory::escape_hidden(&text).into_owned() + "\n";
        file.write_all(text.as_bytes()).map_err(failed())?;
    }
    // Not worth waiting for the disk.
    let brief =
        serde_json::to_vec(&Brief::of(record)).map_err(io::Error::other).map_err(failed())?;
    fs::write(dir.join(SUMMARY), brief).map_err(failed())?;
    write_json(&dir.join(RECORD), record)
}

/// Refuses more input than the sandbox can hold, before any of it is copied.
fn check_size(input: &[InputFile], most: u64) -> Result<(), Error> {
    let mut size = 0u64;
    for file in input {
        let bytes = match &file.content {
            InputContent::Bytes(bytes) => bytes.len() as u64,
            InputContent::Host(path) | InputContent::Stored(path) => {
                let what = format!("cannot read the input file {}", file.path.display());
                fs::metadata(path).map_err(Error::storage(what))?.len()
            }
        };
        size = size.saturating_add(bytes);
    }
    match size > most {
        true => {
            let text =
                format!("the input files have {size} bytes; the sandbox has room for {most}");
            Err(Error::Invalid(text))
        }
        false => Ok(()),
    }
}

fn write_input(dir: &Path, input: &[InputFile]) -> Result<(), Error> {
    if input.len() > MAX_INPUT {
        let text = format!("there are {} input files; the limit is {MAX_INPUT}", input.len());
        return Err(Error::Invalid(text));
    }
    for file in input {
        let is_plain = file.path.components().all(|part| matches!(part, Component::Normal(_)));
        let shown = file.path.display();
        if !is_plain || file.path.as_os_str().is_empty() {
            let text = format!("the path of an input file must be relative, without `..`: {shown}");
            return Err(Error::Invalid(text));
        }
        let path = dir.join(&file.path);
        let failed = || Error::storage(format!("cannot store the input file {shown}"));
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(failed())?;
        }
        if let InputContent::Stored(from) = &file.content
            && fs::hard_link(from, &path).is_ok()
        {
            continue;
        }
        let mut options = OpenOptions::new();
        let mut to =
            options.write(true).create_new(true).open(&path).map_err(|error| {
                match error.kind() {
                    io::ErrorKind::AlreadyExists => {
                        Error::Invalid(format!("two input files have the path {shown}"))
                    }
                    _ => failed()(error),
                }
            })?;
        match &file.content {
            InputContent::Bytes(bytes) => to.write_all(bytes).map_err(failed())?,
            InputContent::Host(from) | InputContent::Stored(from) => {
                let from = File::open(from).map_err(failed())?;
                // One that grows meanwhile was not counted so.
                let size = from.metadata().map_err(failed())?.len();
                io::copy(&mut from.take(size), &mut to).map_err(failed())?;
            }
        }
    }
    Ok(())
}

fn read(dir: &Path, name: &str) -> Result<Vec<u8>, Error> {
    let failed = || Error::storage(format!("cannot read {name}"));
    let file = results::open_below(dir, Path::new(name)).map_err(failed())?;
    let mut bytes = Vec::new();
    file.take(MAX_SIZE + 1).read_to_end(&mut bytes).map_err(failed())?;
    match bytes.len() as u64 > MAX_SIZE {
        true => Err(failed()(io::Error::other("it is too large"))),
        false => Ok(bytes),
    }
}

fn read_json<T: DeserializeOwned>(dir: &Path, name: &str) -> Result<T, Error> {
    let value = serde_json::from_slice(&read(dir, name)?).map_err(io::Error::other);
    value.map_err(Error::storage(format!("cannot read {name}")))
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(value).map_err(io::Error::other);
    let text = text.map(|text| trajectory::escape_hidden(&text).into_owned() + "\n");
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    text.and_then(|text| atomic_file::write_durable(path, text))
        .map_err(Error::storage(format!("cannot write {name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_by_time_and_differ() {
        let ids: Vec<String> =
            [1, 2, 1 << 40, 1_700_000_000_000].map(|now| new_id(now).unwrap()).into();
        assert!(ids.is_sorted() && ids.iter().all(|id| is_id(id)), "{ids:?}");
        assert_ne!(new_id(7).unwrap(), new_id(7).unwrap());
        for name in ["", "ep_", "..", "ep_../../../../../../../../..", "lock"] {
            assert!(!is_id(name), "{name}");
        }
    }

    #[test]
    fn a_directory_has_one_user() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        assert!(matches!(Store::open(dir.path()), Err(Error::InUse(_))));
        drop(store);
        assert!(Store::open(dir.path()).is_ok());
    }

    #[test]
    fn bad_input_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let input = |path: &str| InputFile {
            path: path.into(),
            content: InputContent::Bytes(b"x".to_vec()),
        };
        for paths in [&["../x"][..], &["/etc/x"], &[""], &["a", "a"], &["a", "a/b"]] {
            let files: Vec<InputFile> = paths.iter().map(|path| input(path)).collect();
            assert!(write_input(&dir.path().join("input"), &files).is_err(), "{paths:?}");
            assert!(!dir.path().join("x").exists());
            let _ = fs::remove_dir_all(dir.path().join("input"));
        }
    }
}
