//! Reads rows from files: JSON lines, JSON, Parquet. A bad row is reported, and reading continues.
//!
//! Files are streamed and sizes are bounded. Knows nothing of a row but its id.

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

use crate::{Problem, RowError, problem::shown};

/// The largest row, in bytes of JSON.
pub(crate) const LARGEST_ROW: usize = 64 << 20;
/// The largest file, in bytes.
pub(crate) const LARGEST_FILE: u64 = 8 << 30;
/// The most bad rows that are reported one by one; the rest is counted in the last of them.
const MAX_REPORTED: usize = 1000;

/// Why a data file cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RowsError {
    /// The file cannot be opened or read.
    #[error("cannot read {path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The file name has another extension.
    #[error("{path} is not a data file: its name has to end in .jsonl, .json or .parquet")]
    Kind {
        /// The file.
        path: PathBuf,
    },
    /// The file is too large.
    #[error("{path} has {size} bytes; the limit is {LARGEST_FILE}")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
    },
    /// The file is truncated or not JSON.
    #[error("{path} is not valid JSON")]
    Json {
        /// The file.
        path: PathBuf,
        /// Where and why.
        #[source]
        source: serde_json::Error,
    },
    /// The file is truncated, not Parquet, or compressed with an unsupported codec.
    #[error("{path} is damaged or not a Parquet file: {why}")]
    Parquet {
        /// The file.
        path: PathBuf,
        /// The reader's message.
        why: String,
    },
}

/// A row that is not a problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BadRow {
    /// The file.
    pub file: PathBuf,
    /// Its line in JSON lines, otherwise its position among the rows; from 1.
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
    /// The problems, in the order of the rows. Equal rows are one problem, counted in [`Problem::repeats`].
    pub problems: Vec<Problem>,
    /// The rows that were left out.
    pub bad: Vec<BadRow>,
    /// SHA-256 of the files' bytes, in hexadecimal.
    pub sha256: String,
}

/// Reads several files as if they were one; the extension tells the format. Rows that fail `check` are bad rows.
pub(crate) fn read_files(
    paths: &[impl AsRef<Path>],
    check: &dyn Fn(&Problem) -> Result<(), RowError>,
) -> Result<Rows, RowsError> {
    let mut reading = Reading::new(check);
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

/// Collects the rows of all files, whatever their format.
struct Reading<'a> {
    /// Whether the grader can grade a problem.
    check: &'a dyn Fn(&Problem) -> Result<(), RowError>,
    file: PathBuf,
    problems: Vec<Problem>,
    /// Where each id was first seen: its problem, file and row.
    seen: HashMap<String, (usize, PathBuf, u64)>,
    bad: Vec<BadRow>,
    unreported: u64,
    digest: Sha256,
}

impl<'a> Reading<'a> {
    fn new(check: &'a dyn Fn(&Problem) -> Result<(), RowError>) -> Self {
        Self {
            check,
            file: PathBuf::new(),
            problems: Vec::new(),
            seen: HashMap::new(),
            bad: Vec::new(),
            unreported: 0,
            digest: Sha256::default(),
        }
    }

    /// Adds bytes of the file to the digest.
    fn bytes(&mut self, bytes: &[u8]) {
        self.digest.update(bytes);
    }

    /// Adds a row.
    fn row(&mut self, row: u64, value: Value) {
        let problem = Problem::from_row(value);
        match problem.and_then(|problem| (self.check)(&problem).map(|()| problem)) {
            Ok(problem) => self.problem(row, problem),
            Err(error) => self.bad(row, error.to_string()),
        }
    }

    fn problem(&mut self, row: u64, problem: Problem) {
        let Some((at, file, first)) = self.seen.get(&problem.id) else {
            let first = (self.problems.len(), self.file.clone(), row);
            self.seen.insert(problem.id.clone(), first);
            self.problems.push(problem);
            return;
        };
        let known = &mut self.problems[*at];
        if problem.is_repeat_of(known) {
            known.repeats = known.repeats.saturating_add(1);
            return;
        }
        let other_file =
            if *file == self.file { String::new() } else { format!("{}, ", file.display()) };
        let why = format!(
            "id {} belongs to another problem in {other_file}row {first}",
            shown(&problem.id)
        );
        self.bad(row, why);
    }

    /// Reports a row that cannot be used.
    fn bad(&mut self, row: u64, why: String) {
        if self.bad.len() < MAX_REPORTED {
            self.bad.push(BadRow { file: self.file.clone(), row, why });
        } else {
            self.unreported += 1;
        }
    }

    fn finish(mut self) -> Rows {
        if let (Some(last), more @ 1..) = (self.bad.last_mut(), self.unreported) {
            last.why = format!("{}; {more} more bad rows follow", last.why);
        }
        let digest = self.digest.finalize();
        let sha256 = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        Rows { problems: self.problems, bad: self.bad, sha256 }
    }
}

/// A reader that adds what it reads to a digest.
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
