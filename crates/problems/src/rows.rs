//! Rows from files: JSON lines, JSON, Parquet. A bad row is reported and the rest goes on.
//!
//! Files are read as a stream and sizes are bounded; what a row means is not known here beyond its id.

mod json;
mod lines;
mod parquet;

#[cfg(test)]
#[path = "rows/rows_tests.rs"]
mod tests;

use std::{
    collections::HashMap,
    fmt, fs, io,
    path::{Path, PathBuf},
};

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{Problem, problem::shown};

/// A row may have this many bytes as JSON.
pub(crate) const LARGEST_ROW: usize = 64 << 20;
/// A file may have this many bytes.
pub(crate) const LARGEST_FILE: u64 = 8 << 30;
/// Only so many bad rows are described; the rest is counted in the last one.
const DESCRIBED: usize = 1000;

/// Why rows cannot be read at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RowsError {
    /// The disk or its rights.
    #[error("cannot read {path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// A file of some other kind.
    #[error("{path} is no data file: its name has to end in .jsonl, .json or .parquet")]
    Kind {
        /// The file.
        path: PathBuf,
    },
    /// A file beyond the bound.
    #[error("{path} has {size} bytes, more than the {LARGEST_FILE} that are read")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        size: u64,
    },
    /// JSON that breaks off or is none.
    #[error("{path} is not valid JSON")]
    Json {
        /// The file.
        path: PathBuf,
        /// Where and why.
        #[source]
        source: serde_json::Error,
    },
    /// Parquet that breaks off, is none, or is compressed in a way not known here.
    #[error("{path} is damaged or no Parquet file: {why}")]
    Parquet {
        /// The file.
        path: PathBuf,
        /// What the reader says.
        why: String,
    },
}

/// A row that is no problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BadRow {
    /// The file it stands in.
    pub file: PathBuf,
    /// Its line in JSON lines, otherwise its place among the rows; from 1.
    pub row: u64,
    /// What is wrong with it.
    pub why: String,
}

impl fmt::Display for BadRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, row, why } = self;
        write!(f, "{}, row {row}: {why}", file.display())
    }
}

/// The rows of one or several files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    /// The problems, in their order. A row that repeats another exactly is counted in `Problem::repeats`.
    pub problems: Vec<Problem>,
    /// What had to be left out.
    pub bad: Vec<BadRow>,
    /// A digest of the files' bytes.
    pub sha256: String,
}

/// Reads several files as if they were one; the kind of each is told by its ending. Problems that do not fit are bad rows.
pub(crate) fn read_files(
    paths: &[impl AsRef<Path>],
    fits: &dyn Fn(&Problem) -> Result<(), String>,
) -> Result<Rows, RowsError> {
    let mut reading = Reading::new(fits);
    for path in paths {
        read_file(path.as_ref(), &mut reading)?;
    }
    Ok(reading.finish())
}

fn read_file(path: &Path, reading: &mut Reading<'_>) -> Result<(), RowsError> {
    let failed = |source| RowsError::Io { path: path.to_owned(), source };
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let read = match extension.to_ascii_lowercase().as_str() {
        "jsonl" | "ndjson" => lines::read,
        "json" => json::read,
        "parquet" => parquet::read,
        _ => return Err(RowsError::Kind { path: path.to_owned() }),
    };
    let size = fs::metadata(path).map_err(failed)?.len();
    if size > LARGEST_FILE {
        return Err(RowsError::TooLarge { path: path.to_owned(), size });
    }
    reading.file = path.to_owned();
    read(path, reading)
}

/// Rows as they come in, whatever the file is.
struct Reading<'a> {
    /// What is wanted of a problem besides being one.
    fits: &'a dyn Fn(&Problem) -> Result<(), String>,
    file: PathBuf,
    problems: Vec<Problem>,
    /// Where each id was first seen: its problem, file and row.
    seen: HashMap<String, (usize, PathBuf, u64)>,
    bad: Vec<BadRow>,
    undescribed: u64,
    digest: Sha256,
}

impl<'a> Reading<'a> {
    fn new(fits: &'a dyn Fn(&Problem) -> Result<(), String>) -> Self {
        Self {
            fits,
            file: PathBuf::new(),
            problems: Vec::new(),
            seen: HashMap::new(),
            bad: Vec::new(),
            undescribed: 0,
            digest: Sha256::default(),
        }
    }

    /// Bytes of the file, in their order.
    fn bytes(&mut self, bytes: &[u8]) {
        self.digest.update(bytes);
    }

    /// A row that could be read.
    fn row(&mut self, row: u64, value: Value) {
        let problem = Problem::from_row(value);
        match problem.and_then(|problem| (self.fits)(&problem).map(|()| problem)) {
            Ok(problem) => self.problem(row, problem),
            Err(why) => self.bad(row, why),
        }
    }

    fn problem(&mut self, row: u64, problem: Problem) {
        let Some((at, file, first)) = self.seen.get(&problem.id) else {
            let place = (self.problems.len(), self.file.clone(), row);
            self.seen.insert(problem.id.clone(), place);
            self.problems.push(problem);
            return;
        };
        let known = &mut self.problems[*at];
        if problem.is_repeat_of(known) {
            known.repeats = known.repeats.saturating_add(1);
            return;
        }
        let elsewhere =
            if *file == self.file { String::new() } else { format!("{}, ", file.display()) };
        let why = format!(
            "id {} stands for another problem in {elsewhere}row {first}",
            shown(&problem.id)
        );
        self.bad(row, why);
    }

    /// A row that could not be read.
    fn bad(&mut self, row: u64, why: String) {
        if self.bad.len() < DESCRIBED {
            self.bad.push(BadRow { file: self.file.clone(), row, why });
        } else {
            self.undescribed += 1;
        }
    }

    fn finish(mut self) -> Rows {
        if let (Some(last), more @ 1..) = (self.bad.last_mut(), self.undescribed) {
            last.why = format!("{}; {more} more bad rows follow", last.why);
        }
        let digest = self.digest.finalize();
        let sha256 = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        Rows { problems: self.problems, bad: self.bad, sha256 }
    }
}

/// Passes bytes through and adds them to the digest.
struct Digested<'a, R> {
    inner: R,
    digest: &'a mut Sha256,
}

impl<R: io::Read> io::Read for Digested<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.digest.update(&buffer[..read]);
        Ok(read)
    }
}
