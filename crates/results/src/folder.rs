//! The directory of a run. Files appear whole or not at all.

use std::{
    fs, io,
    io::Write,
    path::{Path, PathBuf},
};

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
    #[error("{path} is damaged or none of ours: {why}; move it away to have it made again")]
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
        let file = fs::File::create(&path).map_err(io_error("write", &path))?;
        match file.try_lock() {
            Ok(()) => Ok(Lock { _file: file }),
            Err(fs::TryLockError::WouldBlock) => Err(Error::Locked { path: self.path.clone() }),
            Err(fs::TryLockError::Error(source)) => Err(io_error("lock", &path)(source)),
        }
    }

    /// What was asked; none where no run was begun.
    pub fn run(&self) -> Result<Option<Run>, Error> {
        let path = self.path.join("run.json");
        match path.try_exists() {
            Ok(false) => Ok(None),
            _ => read_json(&path).map(Some),
        }
    }

    /// Writes down what is asked.
    pub fn keep_run(&self, run: &Run) -> Result<(), Error> {
        write_json(&self.path.join("run.json"), run)
    }

    /// Sums up.
    pub fn keep_results(&self, results: &impl Serialize) -> Result<(), Error> {
        write_json(&self.path.join("results.json"), results)
    }

    /// The file of an attempt.
    pub fn attempt_path(&self, key: &Key) -> PathBuf {
        self.below("attempts", key, "json")
    }

    /// The file of its events.
    pub fn trajectory_path(&self, key: &Key) -> PathBuf {
        self.below("trajectories", key, "jsonl")
    }

    /// The file of the events of an episode that goes on.
    pub fn partial_trajectory_path(&self, key: &Key) -> PathBuf {
        self.below("trajectories", key, "jsonl.partial")
    }

    /// What a judge said so far; none where it was not asked, or nothing that can be read is left of it.
    pub fn judgement(&self, key: &Key) -> Option<Judgement> {
        read_json(&self.below("judgements", key, "json")).ok()
    }

    /// Keeps what a judge said.
    pub fn keep_judgement(&self, key: &Key, judgement: &Judgement) -> Result<(), Error> {
        write_json(&self.below("judgements", key, "json"), judgement)
    }

    /// Keeps an attempt. Its events have to be in place before.
    pub fn keep(&self, attempt: &Attempt) -> Result<(), Error> {
        write_json(&self.attempt_path(&attempt.key), attempt)
    }

    /// A kept attempt; none where there is none.
    pub fn attempt(&self, key: &Key) -> Result<Option<Attempt>, Error> {
        let path = self.attempt_path(key);
        match path.try_exists() {
            Ok(false) => Ok(None),
            _ => read_attempt(&path).map(Some),
        }
    }

    /// All kept attempts, in the order of their names; what cannot be read does not hide the rest.
    pub fn attempts(&self) -> Result<impl Iterator<Item = Result<Attempt, Error>>, Error> {
        let mut files = Vec::new();
        let top = self.path.join("attempts");
        for task in directories(&top)? {
            for mode in directories(&task)? {
                files.extend(entries(&mode)?.into_iter().filter(|path| is_json(path)));
            }
        }
        Ok(files.into_iter().map(|path| read_attempt(&path)))
    }

    /// The events of an attempt.
    pub fn events(&self, key: &Key) -> Result<Vec<Line>, Error> {
        let path = self.trajectory_path(key);
        let text = read_text(&path)?;
        trajectory::read(&text).map_err(|error| malformed(&path, &error))
    }

    fn below(&self, kind: &str, key: &Key, extension: &str) -> PathBuf {
        let file = format!("{}.{}.{extension}", name::of(&key.id), key.repeat);
        self.path.join(kind).join(name::of(&key.task)).join(key.mode.name()).join(file)
    }
}

/// Holds the directory of a run until it is dropped.
#[derive(Debug)]
pub struct Lock {
    _file: fs::File,
}

fn read_attempt(path: &Path) -> Result<Attempt, Error> {
    let attempt: Attempt = read_json(path)?;
    match attempt.v {
        1..=VERSION => Ok(attempt),
        v => Err(malformed(path, &format!("it has version {v}, this program reads {VERSION}"))),
    }
}

fn is_json(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "json")
}

/// Directories below one, sorted; none where it does not exist.
fn directories(path: &Path) -> Result<Vec<PathBuf>, Error> {
    Ok(entries(path)?.into_iter().filter(|entry| entry.is_dir()).collect())
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

fn read_text(path: &Path) -> Result<String, Error> {
    let length = fs::metadata(path).map_err(io_error("read", path))?.len();
    if length > LARGEST {
        return Err(malformed(path, &"it is too large"));
    }
    fs::read_to_string(path).map_err(io_error("read", path))
}

/// Writes beside the place, then moves in: a reader sees the old or the new, a crash leaves one of them.
fn write_json(path: &Path, value: &impl Serialize) -> Result<(), Error> {
    let dir = path.parent().unwrap_or(path);
    fs::create_dir_all(dir).map_err(io_error("make", dir))?;
    let mut text = serde_json::to_vec(value).map_err(|error| malformed(path, &error))?;
    text.push(b'\n');
    let partial = path.with_extension(format!("{}.partial", std::process::id()));
    let written = fs::File::create(&partial).and_then(|mut file| {
        file.write_all(&text)?;
        fs::rename(&partial, path)
    });
    written.map_err(|error| {
        let _ = fs::remove_file(&partial);
        io_error("write", path)(error)
    })
}

fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Io { doing, path, source }
}

fn malformed(path: &Path, why: &dyn std::fmt::Display) -> Error {
    Error::Malformed { path: path.to_owned(), why: why.to_string() }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use trajectory::{Outcome, Spent};

    use super::*;
    use crate::{Mode, Tokens};

    fn attempt(id: &str, repeat: u32) -> Attempt {
        let key = Key { task: "math".into(), mode: Mode::Sandbox, id: id.into(), repeat };
        Attempt {
            v: VERSION,
            key,
            domain: "math".into(),
            subject: None,
            problem_statement: "1+1".into(),
            ground_truth: "2".into(),
            answer: "2".into(),
            score: Some(1.0),
            grade: Value::Null,
            outcome: Outcome::Infrastructure { cause: "no disk".into() },
            spent: Spent::default(),
            tokens: Tokens::default(),
            started: 1,
            wall_ms: 2,
            peak_memory: None,
            tries: 1,
        }
    }

    #[test]
    fn attempts_come_back_as_they_were() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path());
        assert_eq!(folder.attempts().unwrap().count(), 0);
        let all = [attempt("../../etc/x", 0), attempt("a", 0), attempt("a", 1)];
        for attempt in &all {
            assert_eq!(folder.attempt(&attempt.key).unwrap(), None);
            folder.keep(attempt).unwrap();
            assert_eq!(folder.attempt(&attempt.key).unwrap().as_ref(), Some(attempt));
        }
        let read: Vec<_> = folder.attempts().unwrap().map(Result::unwrap).collect();
        assert_eq!(read, all);
    }

    #[test]
    fn one_process_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path().join("new"));
        let lock = folder.lock().unwrap();
        let error = folder.lock().unwrap_err();
        assert!(matches!(error, Error::Locked { .. }), "{error}");
        drop(lock);
        folder.lock().unwrap();
    }

    #[test]
    fn a_damaged_file_is_named_and_hides_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path());
        folder.keep(&attempt("a", 0)).unwrap();
        fs::write(folder.attempt_path(&attempt("b", 0).key), "{").unwrap();
        let read: Vec<_> = folder.attempts().unwrap().collect();
        let [Ok(_), Err(error)] = &read[..] else { panic!("{read:?}") };
        assert!(error.to_string().contains("b.0.json"), "{error}");
    }
}
