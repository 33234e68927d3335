//! The directory that holds model files: what is stored, whether it is verified, and its removal.
//!
//! `DIR/NAME/FILE` is a complete file, `FILE.partial` beside it the start of one. `verified.json` records which content
//! was verified, and `wheels/` holds packages while they are downloaded. Downloading is in `pull.rs`, adapters are in
//! `adapter.rs`.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use hub::Sha256Hex;
use serde::{Deserialize, Serialize};

use crate::{
    adapter::AdapterContent,
    entry::{Catalogue, Model},
    error::Error,
    lock::DirLock,
};

const VERIFIED: &str = "verified.json";
/// The longest `verified.json` that is read, in bytes.
const MAX_RECORD: u64 = 4096;

/// Model files on this machine.
#[derive(Clone, Debug)]
pub struct Store {
    dir: PathBuf,
    catalogue: Catalogue,
    pub(crate) adapters: &'static [AdapterContent],
}

/// A model of the list and how much of it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed<'a> {
    /// The model.
    pub model: &'a Model,
    /// How much of it is stored.
    pub state: State,
}

/// How much of a model is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing.
    Absent,
    /// The start of the file.
    Partial {
        /// Its bytes.
        have: u64,
    },
    /// A file of the right size; [`Store::path`] verifies its content.
    Present {
        /// The file.
        path: PathBuf,
    },
    /// A file of the wrong size, or something that is not a file.
    Damaged {
        /// The file.
        path: PathBuf,
    },
}

/// The content that was verified, with what shows that the file has not changed since.
#[derive(PartialEq, Eq, Serialize, Deserialize)]
struct VerifiedRecord {
    sha256: Sha256Hex,
    size: u64,
    modified_ns: u64,
}

impl Store {
    /// A store of the built-in models below a directory, which need not exist yet.
    pub fn open(dir: impl Into<PathBuf>) -> Result<Self, Error> {
        Ok(Self::with(dir, Catalogue::built_in()?))
    }

    /// A store of the models of another list.
    pub fn with(dir: impl Into<PathBuf>, catalogue: Catalogue) -> Self {
        Self { dir: dir.into(), catalogue, adapters: &[] }
    }

    /// Adds the contents of adapters that the list names. The store writes them to files when they are used.
    pub fn with_adapters(self, adapters: &'static [AdapterContent]) -> Self {
        Self { adapters, ..self }
    }

    /// The list of models.
    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// Every model of the list and how much of it is stored. Reads no file content.
    pub fn list(&self) -> Result<Vec<Listed<'_>>, Error> {
        let listed = |model| Ok(Listed { model, state: self.state(model)? });
        self.catalogue.models().iter().map(listed).collect()
    }

    /// The path of a model's file, which is stored and verified.
    ///
    /// The content is hashed once; afterwards size and modification time show that it is unchanged.
    pub fn path(&self, name: &str) -> Result<PathBuf, Error> {
        let model = self.model(name)?;
        let path = self.file(model);
        if self.is_verified(model)? {
            return Ok(path);
        }
        let found = match Sha256Hex::of_file(&path) {
            Ok(found) => found,
            Err(error) if is_missing(&error) => {
                return Err(Error::Missing { name: model.name.clone() });
            }
            Err(error) => return Err(Error::io(format!("cannot read {}", path.display()))(error)),
        };
        if found != model.sha256 {
            return Err(Error::Damaged { path, expected: model.sha256.clone(), found });
        }
        // In a directory that cannot be written, the file is hashed again next time.
        let _ = self.record_verified(model);
        Ok(path)
    }

    /// Removes whatever is stored of a model.
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        let model = self.model(name)?;
        let dir = self.model_dir(model);
        let what = || format!("cannot remove {}", dir.display());
        let lock = match DirLock::existing(&dir) {
            Ok(Some(lock)) => lock,
            Ok(None) => return Err(Error::Busy { name: model.name.clone() }),
            Err(error) if is_missing(&error) => {
                return Err(Error::Missing { name: model.name.clone() });
            }
            Err(error) => return Err(Error::io(what())(error)),
        };
        let empty = fs::read_dir(lock.dir()).map_err(Error::io(what()))?.next().is_none();
        fs::remove_dir_all(lock.dir()).map_err(Error::io(what()))?;
        if empty { Err(Error::Missing { name: model.name.clone() }) } else { Ok(()) }
    }

    pub(crate) fn model(&self, name: &str) -> Result<&Model, Error> {
        self.catalogue.get(name).ok_or_else(|| {
            let known: Vec<&str> =
                self.catalogue.models().iter().map(|model| model.name.as_str()).collect();
            Error::Unknown { name: name.chars().take(80).collect(), known: known.join(", ") }
        })
    }

    pub(crate) fn model_dir(&self, model: &Model) -> PathBuf {
        self.dir.join(&model.name)
    }

    pub(crate) fn file(&self, model: &Model) -> PathBuf {
        self.model_dir(model).join(&model.file)
    }

    pub(crate) fn partial(&self, model: &Model) -> PathBuf {
        self.model_dir(model).join(format!("{}.partial", model.file))
    }

    /// Whether the file was verified and has not changed since.
    pub(crate) fn is_verified(&self, model: &Model) -> Result<bool, Error> {
        let path = self.file(model);
        let Some(now) = metadata(&path)? else { return Ok(false) };
        let recorded = read_record(&self.model_dir(model).join(VERIFIED));
        Ok(recorded == Some(record(model, &now)) && now.len() == model.size)
    }

    /// Records that the file is verified.
    pub(crate) fn record_verified(&self, model: &Model) -> io::Result<()> {
        let record = record(model, &fs::metadata(self.file(model))?);
        atomic_file::write(self.model_dir(model).join(VERIFIED), serde_json::to_vec(&record)?)
    }

    fn state(&self, model: &Model) -> Result<State, Error> {
        let path = self.file(model);
        if let Some(there) = metadata(&path)? {
            let right = there.is_file() && there.len() == model.size;
            return Ok(if right { State::Present { path } } else { State::Damaged { path } });
        }
        Ok(match metadata(&self.partial(model))? {
            Some(there) if there.len() > 0 => State::Partial { have: there.len() },
            _ => State::Absent,
        })
    }
}

fn record(model: &Model, file: &fs::Metadata) -> VerifiedRecord {
    let modified = file.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let modified_ns = modified.and_then(|time| u64::try_from(time.as_nanos()).ok());
    VerifiedRecord {
        sha256: model.sha256.clone(),
        size: file.len(),
        modified_ns: modified_ns.unwrap_or_default(),
    }
}

fn read_record(path: &Path) -> Option<VerifiedRecord> {
    let short = fs::metadata(path).is_ok_and(|file| file.len() <= MAX_RECORD);
    short.then(|| fs::read(path).ok())?.and_then(|text| serde_json::from_slice(&text).ok())
}

/// The metadata of a file; none where there is no file.
pub(crate) fn metadata(path: &Path) -> Result<Option<fs::Metadata>, Error> {
    match fs::metadata(path) {
        Ok(there) => Ok(Some(there)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(Error::io(format!("cannot stat {}", path.display()))(error)),
    }
}

pub(crate) fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}
