//! The directory of a run. Files appear whole or not at all. It may be hostile: no link below it is followed, and what is
//! read is bounded.

use std::{
    fs,
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{fs::OFlags, io::Errno};
use serde::{Serialize, de::DeserializeOwned};
use trajectory::{Line, MAX_FILE_VALUES, count_values, escape_hidden};

use crate::{AttemptKey, AttemptRecord, Judgement, Run, VERSION, name, open::open_below};

/// The largest file that is read, in bytes.
const MAX_SIZE: u64 = 256 << 20;

/// Results cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file system refused.
    #[error("cannot {operation} {path}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// Another process writes to the directory.
    #[error("another process uses {path}; wait until it ends, or choose another directory")]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// A file that is damaged, or not one of a run.
    #[error("cannot use {path}: {why}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

/// Whether an attempt to lock a file failed because its file system has no locks, as Lustre and NFS may not.
pub fn has_no_locks(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK))
}

/// The directory of a run.
#[derive(Clone, Debug)]
pub struct ResultsDir {
    path: PathBuf,
}

impl ResultsDir {
    /// Names a directory that may or may not hold a run yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates the directory and locks it against other processes until the lock is dropped or the process dies.
    pub fn lock(&self) -> Result<DirLock, Error> {
        fs::create_dir_all(&self.path).map_err(io_error("create", &self.path))?;
        let path = self.path.join("lock");
        // A prepared directory may have a link there, to a file that would be emptied, or a pipe that would block.
        let careful = flags(OFlags::NOFOLLOW | OFlags::NONBLOCK);
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(false).custom_flags(careful);
        let file = options.open(&path).map_err(io_error("write", &path))?;
        match file.try_lock() {
            Ok(()) => {
                atomic_file::remove_leftovers(&self.path, Duration::ZERO);
                Ok(DirLock { _file: file })
            }
            Err(fs::TryLockError::WouldBlock) => Err(Error::Locked { path: self.path.clone() }),
            // Storage of clusters may have no locks at all. That no other process uses the directory is then up to the user.
            Err(fs::TryLockError::Error(error)) if has_no_locks(&error) => {
                Ok(DirLock { _file: file })
            }
            Err(fs::TryLockError::Error(source)) => Err(io_error("lock", &path)(source)),
        }
    }

    /// Reads `run.json`; none where no run was started.
    pub fn run(&self) -> Result<Option<Run>, Error> {
        let path = self.path.join("run.json");
        if is_missing(&path) {
            return Ok(None);
        }
        let run: Run = self.read_json(&path)?;
        readable(&path, run.v).map(|()| Some(run))
    }

    /// Writes `run.json`.
    pub fn save_run(&self, run: &Run) -> Result<(), Error> {
        self.write_json(&self.path.join("run.json"), run)
    }

    /// Writes `results.json`.
    pub fn save_results(&self, results: &impl Serialize) -> Result<(), Error> {
        self.write_json(&self.path.join("results.json"), results)
    }

    /// Reads `results.json`; none where it is missing or unreadable.
    pub fn results<T: DeserializeOwned>(&self) -> Option<T> {
        self.read_json(&self.path.join("results.json")).ok()
    }

    /// The path of an attempt's file.
    pub fn attempt_path(&self, key: &AttemptKey) -> PathBuf {
        self.below("attempts", key, "json")
    }

    /// The path of an attempt's events.
    pub fn trajectory_path(&self, key: &AttemptKey) -> PathBuf {
        self.below("trajectories", key, "jsonl")
    }

    /// Creates the file for the events of an episode that is being played. What an earlier process left there is removed.
    pub fn begin_trajectory(&self, key: &AttemptKey) -> Result<fs::File, Error> {
        let path = self.partial_trajectory(key);
        self.create_parent(&path)?;
        new_file(&path).map_err(io_error("write", &path))
    }

    /// Gives the events of a finished episode their final name.
    pub fn save_trajectory(&self, key: &AttemptKey) -> Result<(), Error> {
        let path = self.trajectory_path(key);
        fs::rename(self.partial_trajectory(key), &path).map_err(io_error("write", &path))
    }

    /// Removes the events of an episode that was cancelled.
    pub fn discard_trajectory(&self, key: &AttemptKey) {
        // Where they cannot be removed, the next episode replaces them.
        let _ = fs::remove_file(self.partial_trajectory(key));
    }

    fn partial_trajectory(&self, key: &AttemptKey) -> PathBuf {
        self.below("trajectories", key, "jsonl.partial")
    }

    /// The votes of a judge so far; none where there are none, or they cannot be read.
    pub fn judgement(&self, key: &AttemptKey) -> Option<Judgement> {
        self.read_json(&self.below("judgements", key, "json")).ok()
    }

    /// Writes the votes of a judge.
    pub fn save_judgement(&self, key: &AttemptKey, judgement: &Judgement) -> Result<(), Error> {
        self.write_json(&self.below("judgements", key, "json"), judgement)
    }

    /// Writes an attempt. Its events have to be in place before.
    pub fn save(&self, attempt: &AttemptRecord) -> Result<(), Error> {
        self.write_json(&self.attempt_path(&attempt.key), attempt)
    }

    /// Reads an attempt; none where there is none.
    pub fn attempt(&self, key: &AttemptKey) -> Result<Option<AttemptRecord>, Error> {
        let path = self.attempt_path(key);
        if is_missing(&path) {
            return Ok(None);
        }
        let attempt = self.read_attempt(&path)?;
        match attempt.key == *key {
            true => Ok(Some(attempt)),
            false => Err(malformed(&path, &"it holds another attempt")),
        }
    }

    /// Reads all attempts, in the order of their names. A file that cannot be read does not hide the rest. A copy under
    /// another name is an error: the attempt would count twice, and saving the copy would replace the original.
    pub fn attempts(&self) -> Result<impl Iterator<Item = Result<AttemptRecord, Error>>, Error> {
        let mut found: Vec<Result<PathBuf, Error>> = Vec::new();
        let all = self.path.join("attempts");
        not_a_link(&all)?;
        for task in directories(&all)? {
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
        let directory = self.clone();
        Ok(found.into_iter().map(move |path| {
            let path = path?;
            let attempt = directory.read_attempt(&path)?;
            match directory.attempt_path(&attempt.key) == path {
                true => Ok(attempt),
                false => Err(malformed(
                    &path,
                    &"its attempt has another file: a duplicate of another, or renamed",
                )),
            }
        }))
    }

    /// Reads the attempt in a file of the run.
    pub fn read_attempt(&self, path: &Path) -> Result<AttemptRecord, Error> {
        let attempt: AttemptRecord = self.read_json(path)?;
        readable(path, attempt.v).map(|()| attempt)
    }

    /// Reads the events of an attempt.
    pub fn events(&self, key: &AttemptKey) -> Result<Vec<Line>, Error> {
        let path = self.trajectory_path(key);
        let text = self.read_text(&path)?;
        trajectory::read(&text).map_err(|error| malformed(&path, &error))
    }

    fn below(&self, kind: &str, key: &AttemptKey, extension: &str) -> PathBuf {
        let file = format!("{}.{}.{extension}", name::of(&key.id), key.repeat);
        self.path.join(kind).join(name::of(&key.task)).join(key.mode.name()).join(file)
    }

    /// Rejects a link on the way to a file of the run: it would lead out of it.
    fn stays_inside(&self, file: &Path) -> Result<(), Error> {
        let dir = file.parent().unwrap_or(file);
        let mut inside = dir.ancestors().take_while(|above| *above != self.path);
        inside.try_for_each(not_a_link)
    }

    fn read_json<T: DeserializeOwned>(&self, path: &Path) -> Result<T, Error> {
        let text = self.read_text(path)?;
        if count_values(text.as_bytes(), MAX_FILE_VALUES) > MAX_FILE_VALUES {
            return Err(malformed(path, &format!("it has more than {MAX_FILE_VALUES} values")));
        }
        serde_json::from_str(&text).map_err(|error| malformed(path, &error))
    }

    /// Reads a regular file of the run.
    fn read_text(&self, path: &Path) -> Result<String, Error> {
        let below = path.strip_prefix(&self.path).unwrap_or(path);
        let file = open_below(&self.path, below).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput => malformed(path, &error),
            _ => io_error("read", path)(error),
        })?;
        let mut text = String::new();
        file.take(MAX_SIZE + 1).read_to_string(&mut text).map_err(io_error("read", path))?;
        match text.len() as u64 {
            ..=MAX_SIZE => Ok(text),
            _ => Err(malformed(path, &"it is too large")),
        }
    }

    /// Creates the directory of a file of the run.
    fn create_parent(&self, file: &Path) -> Result<(), Error> {
        self.stays_inside(file)?;
        let dir = file.parent().unwrap_or(file);
        fs::create_dir_all(dir).map_err(io_error("create", dir))
    }

    fn write_json(&self, path: &Path, value: &impl Serialize) -> Result<(), Error> {
        self.create_parent(path)?;
        let text = serde_json::to_string(value).map_err(|error| malformed(path, &error))?;
        let text = escape_hidden(&text).into_owned() + "\n";
        atomic_file::write_via(&self.path, path, text).map_err(io_error("write", path))
    }
}

/// Locks the directory of a run until it is dropped.
#[derive(Debug)]
pub struct DirLock {
    _file: fs::File,
}

/// Whether there is nothing, not even a broken link.
fn is_missing(path: &Path) -> bool {
    path.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

fn not_a_link(path: &Path) -> Result<(), Error> {
    match path.is_symlink() {
        true => Err(malformed(path, &"it is a link, and links are not followed")),
        false => Ok(()),
    }
}

/// A newer version may mean something else by the same fields.
fn readable(path: &Path, version: u32) -> Result<(), Error> {
    match version {
        1..=VERSION => Ok(()),
        v => {
            Err(malformed(path, &format!("it has version {v}; this program reads up to {VERSION}")))
        }
    }
}

fn is_json(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "json")
}

/// The directories in a directory, sorted; none where it does not exist. Links are left out.
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

/// Creates a file, in place of whatever has its name; the target of a link is left alone.
fn new_file(path: &Path) -> io::Result<fs::File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => fs::File::create_new(path),
    }
}

fn flags(flags: OFlags) -> i32 {
    flags.bits().cast_signed()
}

fn io_error(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Io { operation, path, source }
}

fn malformed(path: &Path, why: &dyn std::fmt::Display) -> Error {
    Error::Malformed { path: path.to_owned(), why: why.to_string() }
}

#[cfg(test)]
#[path = "directory_tests.rs"]
mod tests;
