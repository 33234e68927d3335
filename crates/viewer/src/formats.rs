//! How runs are stored: each module reads one form into a row and a table of attempts.

mod episodes;
mod inspect;
mod results;
mod single;
mod training;

use std::{
    collections::HashMap,
    fs::Metadata,
    io::Read,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use serde::de::DeserializeOwned;

use crate::{
    Scope,
    discover::Found,
    library::IsRunning,
    row::{Format, Kind, RunRow},
    table::Table,
};

pub(crate) use self::{
    episodes::{Episode, episode},
    results::{NaturalKey, scores},
    training::{all_groups, groups, steps},
};

/// Largest JSON file that is read, in bytes.
const MAX_JSON: u64 = 64 << 20;

/// A run that was read.
#[derive(Clone, Debug)]
pub(crate) struct Loaded {
    pub(crate) row: RunRow,
    pub(crate) table: Table,
    /// Which file each attempt was read from, and in which version: what has not changed is not read again.
    files: HashMap<PathBuf, (Stamp, usize)>,
}

impl Loaded {
    fn new(row: RunRow, table: Table) -> Self {
        Self { row, table, files: HashMap::new() }
    }

    /// The row as somebody sees it.
    pub(crate) fn row_for(&self, scope: &Scope) -> RunRow {
        let attempt = self.only_attempt(scope).map(str::to_owned);
        RunRow { attempts: self.table.count(scope), attempt, ..self.row.clone() }
    }

    /// The id of the only attempt of a run or of a file.
    pub(crate) fn only_attempt(&self, scope: &Scope) -> Option<&str> {
        let mut seen = self.table.attempts.iter().filter(|attempt| attempt.is_visible(scope));
        match (self.row.kind, seen.next(), seen.next()) {
            (Kind::Run | Kind::File, Some(only), None) => Some(&only.row.id),
            _ => None,
        }
    }
}

/// The version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    number: u64,
    size: u64,
    changed: (i64, i64),
}

impl From<&Metadata> for Stamp {
    fn from(about: &Metadata) -> Self {
        Self {
            number: about.ino(),
            size: about.len(),
            changed: (about.mtime(), about.mtime_nsec()),
        }
    }
}

/// Reads a run, or what has changed since.
pub(crate) fn load(
    found: &Found,
    before: Option<&Loaded>,
    is_running: Option<&IsRunning>,
) -> Loaded {
    match found.format {
        Format::Run | Format::Events | Format::Reference | Format::Atif => single::load(found),
        Format::Results => results::load(found, before),
        Format::Training => training::load(found, before),
        Format::Episodes => episodes::load(found, before, is_running),
        Format::Inspect => inspect::load(found),
    }
}

/// Milliseconds since 1970 of the last change.
fn changed_ms(about: &Metadata) -> Option<u64> {
    let since = about.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok()
}

/// What a path is, without following a link.
fn about(path: &Path) -> Option<Metadata> {
    path.symlink_metadata().ok()
}

/// Reads a JSON file below a directory; none where it is missing or malformed.
pub(crate) fn read_json<T: DeserializeOwned>(dir: &Path, file: impl AsRef<Path>) -> Option<T> {
    crate::import::parse(&read_below(dir, file.as_ref(), MAX_JSON)?).ok()
}

/// Reads a file below a directory, up to a size.
pub(crate) fn read_below(dir: &Path, file: &Path, most: u64) -> Option<Vec<u8>> {
    let opened = ::results::open_below(dir, file).ok()?;
    let mut bytes = Vec::new();
    opened.take(most + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= most).then_some(bytes)
}
