//! The directory of a run. Files appear whole or not at all. It may come from a stranger: no link below it is
//! written through, and what is read is bounded.

use std::{
    fs, io,
    io::{Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;
use serde::{Serialize, de::DeserializeOwned};
use trajectory::Line;

use crate::{Attempt, Judgement, Key, Run, VERSION, name};

/// A record larger than this is none of ours.
const LARGEST: u64 = 256 << 20;

/// Why results cannot be read or kept.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The disk or its rights.
    #[error("cannot {doing} {path}: {source}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Another process writes there.
    #[error("another process works in {path}; wait for its end, or choose another directory")]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// A file that holds something else.
    #[error("{path} is damaged or none of ours: {why}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

/// The directory of a run.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// A directory that may or may not hold a run yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the directory and keeps other processes from writing there, for as long as the lock lives. The
    /// kernel takes it back from a process that dies.
    pub fn lock(&self) -> Result<Lock, Error> {
        fs::create_dir_all(&self.path).map_err(io_error("make", &self.path))?;
        let path = self.path.join("lock");
        // A prepared directory may have a link there, to a file that would be emptied, or a pipe that would block.
        let careful = flags(OFlags::NOFOLLOW | OFlags::NONBLOCK);
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(false).custom_flags(careful);
        let file = options.open(&path).map_err(io_error("write", &path))?;
        match file.try_lock() {
            Ok(()) => Ok(Lock { _file: file }),
            Err(fs::TryLockError::WouldBlock) => Err(Error::Locked { path: self.path.clone() }),
            Err(fs::TryLockError::Error(source)) => Err(io_error("lock", &path)(source)),
        }
    }

    /// What was asked; none where no run was begun.
    pub fn run(&self) -> Result<Option<Run>, Error> {
        let path = self.path.join("run.json");
        if matches!(path.try_exists(), Ok(false)) {
            return Ok(None);
        }
        let run: Run = read_json(&path)?;
        readable(&path, run.v).map(|()| Some(run))
    }

    /// Writes down what is asked.
    pub fn keep_run(&self, run: &Run) -> Result<(), Error> {
        self.write_json(&self.path.join("run.json"), run)
    }

    /// Sums up.
    pub fn keep_results(&self, results: &impl Serialize) -> Result<(), Error> {
        self.write_json(&self.path.join("results.json"), results)
    }

    /// What it came to so far; none where that was never summed up, or nothing that can be read is left of it.
    pub fn results<T: DeserializeOwned>(&self) -> Option<T> {
        read_json(&self.path.join("results.json")).ok()
    }

    /// The file of an attempt.
    pub fn attempt_path(&self, key: &Key) -> PathBuf {
        self.below("attempts", key, "json")
    }

    /// The file of its events.
    pub fn trajectory_path(&self, key: &Key) -> PathBuf {
        self.below("trajectories", key, "jsonl")
    }

    /// A new file for the events of an episode that goes on, and where it is. What an earlier process left there is
    /// gone.
    pub fn begin_trajectory(&self, key: &Key) -> Result<(PathBuf, fs::File), Error> {
        let path = self.below("trajectories", key, "jsonl.partial");
        self.make_parent(&path)?;
        let file = new_file(&path).map_err(io_error("write", &path))?;
        Ok((path, file))
    }

    /// What a judge said so far; none where it was not asked, or nothing that can be read is left of it.
    pub fn judgement(&self, key: &Key) -> Option<Judgement> {
        read_json(&self.below("judgements", key, "json")).ok()
    }

    /// Keeps what a judge said.
    pub fn keep_judgement(&self, key: &Key, judgement: &Judgement) -> Result<(), Error> {
        self.write_json(&self.below("judgements", key, "json"), judgement)
    }

    /// Keeps an attempt. Its events have to be in place before.
    pub fn keep(&self, attempt: &Attempt) -> Result<(), Error> {
        self.write_json(&self.attempt_path(&attempt.key), attempt)
    }

    /// A kept attempt; none where there is none.
    pub fn attempt(&self, key: &Key) -> Result<Option<Attempt>, Error> {
        let path = self.attempt_path(key);
        if matches!(path.try_exists(), Ok(false)) {
            return Ok(None);
        }
        let attempt = read_attempt(&path)?;
        match attempt.key == *key {
            true => Ok(Some(attempt)),
            false => Err(malformed(&path, &"it is about another attempt")),
        }
    }

    /// All kept attempts, in the order of their names; what cannot be read does not hide the rest.
    pub fn attempts(&self) -> Result<impl Iterator<Item = Result<Attempt, Error>>, Error> {
        // What cannot be read does not hide the rest.
        let mut found: Vec<Result<PathBuf, Error>> = Vec::new();
        for task in directories(&self.path.join("attempts"))? {
            let modes = directories(&task).unwrap_or_else(|error| {
                found.push(Err(error));
                Vec::new()
            });
            for mode in modes {
                match entries(&mode) {
                    Ok(files) => {
                        found.extend(files.into_iter().filter(|path| is_json(path)).map(Ok))
                    }
                    Err(error) => found.push(Err(error)),
                }
            }
        }
        Ok(found.into_iter().map(|path| read_attempt(&path?)))
    }

    /// The events of an attempt.
    pub fn events(&self, key: &Key) -> Result<Vec<Line>, Error> {
        let path = self.trajectory_path(key);
        self.stays_inside(&path)?;
        let text = read_text(&path)?;
        trajectory::read(&text).map_err(|error| malformed(&path, &error))
    }

    fn below(&self, kind: &str, key: &Key, extension: &str) -> PathBuf {
        let file = format!("{}.{}.{extension}", name::of(&key.id), key.repeat);
        self.path.join(kind).join(name::of(&key.task)).join(key.mode.name()).join(file)
    }

    /// Refuses a link on the way to a file of the run: it would lead out of it.
    fn stays_inside(&self, file: &Path) -> Result<(), Error> {
        let dir = file.parent().unwrap_or(file);
        let mut inside = dir.ancestors().take_while(|above| *above != self.path);
        match inside.find(|above| above.is_symlink()) {
            Some(link) => Err(malformed(link, &"it is a link, and none is followed")),
            None => Ok(()),
        }
    }

    /// Makes the directory of a file of the run.
    fn make_parent(&self, file: &Path) -> Result<(), Error> {
        self.stays_inside(file)?;
        let dir = file.parent().unwrap_or(file);
        fs::create_dir_all(dir).map_err(io_error("make", dir))
    }

    fn write_json(&self, path: &Path, value: &impl Serialize) -> Result<(), Error> {
        self.make_parent(path)?;
        let mut text = serde_json::to_vec(value).map_err(|error| malformed(path, &error))?;
        text.push(b'\n');
        write_whole(path, &text).map_err(io_error("write", path))
    }
}

/// Holds the directory of a run until it is dropped.
#[derive(Debug)]
pub struct Lock {
    _file: fs::File,
}

fn read_attempt(path: &Path) -> Result<Attempt, Error> {
    let attempt: Attempt = read_json(path)?;
    readable(path, attempt.v).map(|()| attempt)
}

/// A newer program may mean something else by the same words.
fn readable(path: &Path, version: u32) -> Result<(), Error> {
    match version {
        1..=VERSION => Ok(()),
        v => Err(malformed(path, &format!("it has version {v}, this program reads {VERSION}"))),
    }
}

fn is_json(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "json")
}

/// Directories below one, sorted; none where it does not exist. Links lead elsewhere.
fn directories(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let inside = |entry: &PathBuf| entry.is_dir() && !entry.is_symlink();
    Ok(entries(path)?.into_iter().filter(inside).collect())
}

fn entries(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let read = match fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read,
    };
    let paths = read.and_then(|read| read.map(|entry| Ok(entry?.path())).collect());
    let mut paths: Vec<PathBuf> = paths.map_err(io_error("read", path))?;
    paths.sort();
    Ok(paths)
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, Error> {
    serde_json::from_str(&read_text(path)?).map_err(|error| malformed(path, &error))
}

/// Reads a file that may be anything: a pipe would block for ever, a device never end, a link lead out of the run.
fn read_text(path: &Path) -> Result<String, Error> {
    if path.is_symlink() {
        return Err(malformed(path, &"it is a link, and none is followed"));
    }
    let mut options = fs::OpenOptions::new();
    options.read(true).custom_flags(flags(OFlags::NONBLOCK | OFlags::NOFOLLOW));
    let file = options.open(path).map_err(io_error("read", path))?;
    if !file.metadata().map_err(io_error("read", path))?.is_file() {
        return Err(malformed(path, &"it is no file"));
    }
    let mut text = String::new();
    file.take(LARGEST + 1).read_to_string(&mut text).map_err(io_error("read", path))?;
    match text.len() as u64 {
        ..=LARGEST => Ok(text),
        _ => Err(malformed(path, &"it is too large")),
    }
}

/// Writes beside the place, then moves in: a reader sees the old or the new, a crash leaves one of them. Nothing is
/// written through a link that lies in the way, and what a killed process left is replaced.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let partial = path.with_added_extension("partial");
    let written = new_file(&partial).and_then(|mut file| {
        file.write_all(bytes)?;
        fs::rename(&partial, path)
    });
    written.inspect_err(|_| drop(fs::remove_file(&partial)))
}

/// A file that was not there before. Whatever has its name goes, a link without what it leads to.
fn new_file(path: &Path) -> io::Result<fs::File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => fs::File::create_new(path),
    }
}

fn flags(flags: OFlags) -> i32 {
    flags.bits().cast_signed()
}

fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Io { doing, path, source }
}

fn malformed(path: &Path, why: &dyn std::fmt::Display) -> Error {
    Error::Malformed { path: path.to_owned(), why: why.to_string() }
}

#[cfg(test)]
#[path = "folder_tests.rs"]
mod tests;
