//! The directory that holds model files: what is there, whether it is right, and its removal.
//!
//! `DIR/NAME/FILE` is a whole file; `FILE.partial` beside it is the start of one, `verified.json` says which
//! content was found to be right, and `wheels/` holds packages on their way. Fetching is elsewhere.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use serde::{Deserialize, Serialize};

use crate::{
    claim::Claim,
    entry::{Catalogue, Model, Sha256Hex},
    error::Error,
    partial,
};

const VERIFIED: &str = "verified.json";
/// A note is short; a longer one is not ours.
const MAX_NOTE: u64 = 4096;

/// Model files on this machine.
#[derive(Clone, Debug)]
pub struct Store {
    dir: PathBuf,
    catalogue: Catalogue,
}

/// A model of the list, and how much of it is here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed<'a> {
    /// The model.
    pub model: &'a Model,
    /// How much of it is here.
    pub state: State,
}

/// How much of a model is here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing.
    Absent,
    /// The start of the file.
    Partial {
        /// Bytes of it.
        have: u64,
    },
    /// A file of the right size; [`Store::path`] makes sure of its content.
    Present {
        /// The file.
        path: PathBuf,
    },
    /// A file that cannot be the right one.
    Damaged {
        /// The file.
        path: PathBuf,
    },
}

/// What was found to be right, and how to tell that it is still the same.
#[derive(PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    sha256: Sha256Hex,
    size: u64,
    modified_ns: u64,
}

impl Store {
    /// Models of the built-in list, kept below a directory. Nothing is made there yet.
    pub fn open(dir: impl Into<PathBuf>) -> Result<Self, Error> {
        Ok(Self::with(dir, Catalogue::built_in()?))
    }

    /// Models of another list.
    pub fn with(dir: impl Into<PathBuf>, catalogue: Catalogue) -> Self {
        Self { dir: dir.into(), catalogue }
    }

    /// The models there could be.
    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// Every model of the list and how much of it is here. Reads no file.
    pub fn list(&self) -> Result<Vec<Listed<'_>>, Error> {
        let listed = |model| Ok(Listed { model, state: self.state(model)? });
        self.catalogue.models().iter().map(listed).collect()
    }

    /// The model's file, which is there and right.
    ///
    /// Its content is read once; afterwards size and time of change tell that it is still the same.
    pub fn path(&self, name: &str) -> Result<PathBuf, Error> {
        let model = self.model(name)?;
        let path = self.file(model);
        if self.is_verified(model)? {
            return Ok(path);
        }
        let found = match partial::hash_now(&path) {
            Ok(found) => found,
            Err(error) if is_missing(&error) => {
                return Err(Error::Missing { name: model.name.clone() });
            }
            Err(error) => return Err(Error::io(format!("cannot read {}", path.display()))(error)),
        };
        if found != model.sha256 {
            return Err(Error::Damaged { path, expected: model.sha256.clone(), found });
        }
        // A place that cannot be written is read again next time.
        let _ = self.verified(model);
        Ok(path)
    }

    /// Removes whatever is here of a model.
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        let model = self.model(name)?;
        let dir = self.place(model);
        let what = || format!("cannot remove {}", dir.display());
        let claim = match Claim::of(&dir) {
            Ok(Some(claim)) => claim,
            Ok(None) => return Err(Error::Busy { name: model.name.clone() }),
            Err(error) if is_missing(&error) => {
                return Err(Error::Missing { name: model.name.clone() });
            }
            Err(error) => return Err(Error::io(what())(error)),
        };
        let empty = fs::read_dir(claim.dir()).map_err(Error::io(what()))?.next().is_none();
        fs::remove_dir_all(claim.dir()).map_err(Error::io(what()))?;
        if empty { Err(Error::Missing { name: model.name.clone() }) } else { Ok(()) }
    }

    pub(crate) fn model(&self, name: &str) -> Result<&Model, Error> {
        self.catalogue.get(name).ok_or_else(|| {
            let known: Vec<&str> =
                self.catalogue.models().iter().map(|model| model.name.as_str()).collect();
            Error::Unknown { name: name.chars().take(80).collect(), known: known.join(", ") }
        })
    }

    pub(crate) fn place(&self, model: &Model) -> PathBuf {
        self.dir.join(&model.name)
    }

    pub(crate) fn file(&self, model: &Model) -> PathBuf {
        self.place(model).join(&model.file)
    }

    pub(crate) fn partial(&self, model: &Model) -> PathBuf {
        self.place(model).join(format!("{}.partial", model.file))
    }

    /// Whether the file was found to be right and has not changed since.
    pub(crate) fn is_verified(&self, model: &Model) -> Result<bool, Error> {
        let path = self.file(model);
        let Some(now) = look(&path)? else { return Ok(false) };
        let noted = read_note(&self.place(model).join(VERIFIED));
        Ok(noted.is_some_and(|noted| noted == note(model, &now)) && now.len() == model.size)
    }

    /// Notes that the file is right.
    pub(crate) fn verified(&self, model: &Model) -> io::Result<()> {
        let place = self.place(model);
        let note = note(model, &fs::metadata(self.file(model))?);
        let fresh = place.join(format!("{VERIFIED}.{}", std::process::id()));
        let written = serde_json::to_vec(&note).map_err(io::Error::other);
        let written = written.and_then(|text| fs::write(&fresh, text));
        let renamed = written.and_then(|()| fs::rename(&fresh, place.join(VERIFIED)));
        if renamed.is_err() {
            let _ = fs::remove_file(&fresh);
        }
        renamed
    }

    fn state(&self, model: &Model) -> Result<State, Error> {
        let path = self.file(model);
        if let Some(there) = look(&path)? {
            let right = there.is_file() && there.len() == model.size;
            return Ok(if right { State::Present { path } } else { State::Damaged { path } });
        }
        Ok(match look(&self.partial(model))? {
            Some(there) if there.len() > 0 => State::Partial { have: there.len() },
            _ => State::Absent,
        })
    }
}

fn note(model: &Model, file: &fs::Metadata) -> Note {
    let modified = file.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let modified_ns = modified.and_then(|time| u64::try_from(time.as_nanos()).ok());
    Note {
        sha256: model.sha256.clone(),
        size: file.len(),
        modified_ns: modified_ns.unwrap_or_default(),
    }
}

fn read_note(path: &Path) -> Option<Note> {
    let short = fs::metadata(path).is_ok_and(|note| note.len() <= MAX_NOTE);
    short.then(|| fs::read(path).ok())?.and_then(|text| serde_json::from_slice(&text).ok())
}

pub(crate) fn look(path: &Path) -> Result<Option<fs::Metadata>, Error> {
    match fs::metadata(path) {
        Ok(there) => Ok(Some(there)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(Error::io(format!("cannot look at {}", path.display()))(error)),
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}
