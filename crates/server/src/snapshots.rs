//! Who owns the images that clients saved. Where the server has a directory, this outlives it, as the images do.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize};

use crate::error::{ApiError, Code, is_full};

/// Prefix of snapshots that were given no name.
pub(crate) const UNNAMED: &str = "snapshot-";
/// Prefix of the images in which episodes keep their files.
const EPISODES: &str = "episode-";
/// Most snapshots of one owner.
const MAX_EACH: usize = 100;
/// The file with the owners.
const FILE: &str = "snapshots.json";

/// An image that a client saved.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Snapshot {
    pub(crate) name: String,
    pub(crate) sandbox: String,
    pub(crate) owner: Arc<str>,
    /// What it takes on the disk. While it is saved again, also what the one takes that is replaced.
    #[serde(default)]
    bytes: u64,
    /// It is being saved or removed.
    #[serde(skip)]
    is_busy: bool,
}

/// The snapshots of all owners.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    file: Option<PathBuf>,
    list: Mutex<Vec<Snapshot>>,
    /// Held from a change until it is written, so that `list` is locked for moments only.
    writing: Mutex<()>,
}

/// What to do with a record once its image was saved or removed, or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Keep,
    Forget,
    /// Record this one instead.
    Record(Snapshot),
}

/// Whether a record is new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reserved {
    New,
    /// There was this one before.
    Again(Snapshot),
}

/// Whether two names are of one image: runtimes may take a missing tag for `latest`.
fn is_same(a: &str, b: &str) -> bool {
    let plain = |name| str::strip_suffix(name, ":latest").unwrap_or(name);
    plain(a) == plain(b)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn busy(name: &str) -> ApiError {
    let message = format!("snapshot '{name}' is being saved or removed; try again later");
    ApiError::new(Code::Conflict, message)
}

impl Snapshots {
    /// Those of a directory; without one they are known until the server ends.
    ///
    /// # Errors
    /// If the file cannot be read: without it, everybody could use the snapshots of others.
    pub(crate) fn open(directory: Option<&Path>) -> io::Result<Self> {
        let Some(file) = directory.map(|directory| directory.join(FILE)) else {
            return Ok(Self::default());
        };
        let failed = |error: io::Error| {
            let path = file.display();
            io::Error::new(
                error.kind(),
                format!("cannot read the owners of snapshots {path}: {error}"),
            )
        };
        let list = match std::fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| failed(error.into()))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(failed(error)),
        };
        Ok(Self { file: Some(file), list: Mutex::new(list), writing: Mutex::default() })
    }

    /// Those of an owner.
    pub(crate) fn of(&self, owner: &str) -> Vec<Snapshot> {
        let list = lock(&self.list);
        list.iter().filter(|snapshot| &*snapshot.owner == owner).cloned().collect()
    }

    /// What those of an owner take on the disk.
    pub(crate) fn bytes_of(&self, owner: &str) -> u64 {
        bytes_in(&lock(&self.list), owner)
    }

    /// Whether an owner saved this image.
    pub(crate) fn has(&self, owner: &str, name: &str) -> bool {
        let is = |snapshot: &Snapshot| &*snapshot.owner == owner && is_same(&snapshot.name, name);
        lock(&self.list).iter().any(is)
    }

    /// Whether an owner may use an image: its own snapshots, and images that are nobody's and whose names are not those
    /// of what the server saves for clients.
    pub(crate) fn may_use(&self, owner: &str, name: &str) -> bool {
        match lock(&self.list).iter().find(|snapshot| is_same(&snapshot.name, name)) {
            Some(snapshot) => &*snapshot.owner == owner,
            None => !name.starts_with(UNNAMED) && !name.starts_with(EPISODES),
        }
    }

    /// Records the owner of an image that is about to be saved. Where there is one of this name, the new one is beside it
    /// until it is saved. `check` is told what all of the owner's take on the disk meanwhile, the new one included, before
    /// anybody else can reserve. Blocks while the record is written.
    pub(crate) fn reserve(
        &self,
        new: Snapshot,
        check: impl FnOnce(u64) -> Result<(), ApiError>,
    ) -> Result<Reserved, ApiError> {
        if new.name.starts_with(EPISODES) {
            return Err(ApiError::invalid(format!(
                "a snapshot's name cannot begin with `{EPISODES}`"
            )));
        }
        self.change(|list| {
            let own = list.iter().filter(|snapshot| snapshot.owner == new.owner).count();
            let bytes = bytes_in(list, &new.owner).saturating_add(new.bytes);
            match list.iter_mut().find(|snapshot| is_same(&snapshot.name, &new.name)) {
                Some(old) if old.owner != new.owner => Err(exists(&new.name)),
                Some(old) if old.is_busy => Err(busy(&new.name)),
                Some(old) => {
                    check(bytes)?;
                    let bytes = old.bytes.saturating_add(new.bytes);
                    let new = Snapshot { bytes, is_busy: true, ..new };
                    Ok(Reserved::Again(std::mem::replace(old, new)))
                }
                None if own >= MAX_EACH => {
                    let message = format!("you have {MAX_EACH} snapshots; remove some first");
                    Err(ApiError { is_final: true, ..ApiError::new(Code::TooMany, message) })
                }
                None => {
                    check(bytes)?;
                    list.push(Snapshot { is_busy: true, ..new });
                    Ok(Reserved::New)
                }
            }
        })
    }

    /// Keeps others from an image that its owner is about to remove; `None` where the owner has no such image. Blocks
    /// while another record is written.
    pub(crate) fn take(&self, owner: &str, name: &str) -> Result<Option<String>, ApiError> {
        let is =
            |snapshot: &&mut Snapshot| &*snapshot.owner == owner && is_same(&snapshot.name, name);
        let _one_at_a_time = lock(&self.writing);
        let mut list = lock(&self.list);
        let Some(snapshot) = list.iter_mut().find(is) else { return Ok(None) };
        match std::mem::replace(&mut snapshot.is_busy, true) {
            true => Err(busy(name)),
            false => Ok(Some(snapshot.name.clone())),
        }
    }

    /// Ends what [`Self::reserve`] or [`Self::take`] began. Blocks while the record is written.
    pub(crate) fn settle(&self, name: &str, then: Then) -> Result<(), ApiError> {
        let writing = lock(&self.writing);
        if let Some(snapshot) = lock(&self.list).iter_mut().find(|snapshot| snapshot.name == name) {
            snapshot.is_busy = false;
        }
        drop(writing);
        match then {
            Then::Keep => Ok(()),
            Then::Forget => self.change(|list| {
                list.retain(|snapshot| snapshot.name != name);
                Ok(())
            }),
            Then::Record(snapshot) => self.change(|list| {
                if let Some(known) = list.iter_mut().find(|known| known.name == name) {
                    *known = snapshot;
                }
                Ok(())
            }),
        }
    }

    /// Changes the list once it is written.
    fn change<T>(
        &self,
        edit: impl FnOnce(&mut Vec<Snapshot>) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        let _one_at_a_time = lock(&self.writing);
        let (before, changed, text) = {
            let mut list = lock(&self.list);
            let before = list.clone();
            let changed = edit(&mut list)?;
            (before, changed, serde_json::to_vec_pretty(&*list))
        };
        let Some(file) = &self.file else { return Ok(changed) };
        let written =
            text.map_err(io::Error::from).and_then(|text| atomic_file::write_durable(file, text));
        if let Err(error) = written {
            tracing::error!("writing {}: {error}", file.display());
            *lock(&self.list) = before;
            let message = "the server cannot store whose snapshot this is";
            let code = if is_full(&error) { Code::DiskFull } else { Code::Internal };
            return Err(ApiError::new(code, format!("{message}: {error}")));
        }
        Ok(changed)
    }
}

impl Snapshot {
    /// `bytes` is what it takes on the disk.
    pub(crate) fn new(name: String, sandbox: String, owner: Arc<str>, bytes: u64) -> Self {
        Self { name, sandbox, owner, bytes, is_busy: false }
    }

    /// The same with another size.
    pub(crate) fn with_bytes(self, bytes: u64) -> Self {
        Self { bytes, ..self }
    }
}

/// What the snapshots of an owner take on the disk.
fn bytes_in(list: &[Snapshot], owner: &str) -> u64 {
    let own = list.iter().filter(|snapshot| &*snapshot.owner == owner);
    own.fold(0, |sum, snapshot| sum.saturating_add(snapshot.bytes))
}

/// The error of a name that is taken.
pub(crate) fn exists(name: &str) -> ApiError {
    let message = format!("template '{name}' exists and is not a snapshot of yours");
    ApiError::new(Code::AlreadyExists, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(name: &str, owner: &str) -> Snapshot {
        Snapshot::new(name.into(), "box".into(), owner.into(), 5)
    }

    fn reserve(snapshots: &Snapshots, name: &str, owner: &str) -> Result<Reserved, ApiError> {
        snapshots.reserve(snapshot(name, owner), |_| Ok(()))
    }

    /// All of it, as one that is saved at the same time counts from the start.
    #[test]
    fn what_is_reserved_counts_before_it_is_saved() {
        let directory = tempfile::tempdir().unwrap();
        let open = || Snapshots::open(Some(directory.path())).unwrap();
        let snapshots = open();
        let at_most = |most: u64| {
            move |bytes: u64| match bytes > most {
                true => Err(ApiError::new(Code::TooMany, "over quota")),
                false => Ok(()),
            }
        };
        let save =
            |name: &str, most: u64| snapshots.reserve(snapshot(name, "alice"), at_most(most));
        assert_eq!(save("one", 9).unwrap(), Reserved::New);
        assert_eq!(save("two", 9).unwrap_err().message, "over quota");
        assert_eq!(snapshots.of("alice").len(), 1, "what was refused leaves no record");
        assert_eq!(save("two", 10).unwrap(), Reserved::New);
        snapshots.reserve(snapshot("bobs", "bob"), at_most(5)).unwrap();
        // It was larger when it was saved.
        let saved = snapshot("one", "alice").with_bytes(7);
        snapshots.settle("one", Then::Record(saved.clone())).unwrap();
        assert_eq!(snapshots.bytes_of("alice"), 12);
        // The old one is there until the new one is saved, also for a server that is killed meanwhile.
        assert_eq!(save("one", 16).unwrap_err().message, "over quota");
        let Reserved::Again(old) = save("one", 17).unwrap() else { panic!("it was there") };
        assert_eq!((snapshots.bytes_of("alice"), open().bytes_of("alice")), (17, 17));
        assert_eq!(old, saved);
        // It fails, and what was there stays.
        snapshots.settle("one", Then::Record(old)).unwrap();
        for snapshots in [&snapshots, &open()] {
            assert_eq!(snapshots.bytes_of("alice"), 12);
        }
        assert!(save("one", 100).is_ok(), "nobody saves it any more");
    }

    #[test]
    fn an_image_has_its_owner_before_it_exists_and_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let open = || Snapshots::open(Some(directory.path())).unwrap();
        let snapshots = open();
        assert!(snapshots.may_use("bob", "kept"));
        assert_eq!(reserve(&snapshots, "kept", "alice").unwrap(), Reserved::New);
        assert!(!snapshots.may_use("bob", "kept") && !snapshots.may_use("bob", "kept:latest"));
        assert_eq!(reserve(&snapshots, "kept", "bob").unwrap_err().code, Code::AlreadyExists);
        assert_eq!(reserve(&snapshots, "kept", "alice").unwrap_err().code, Code::Conflict);
        // The server was killed meanwhile.
        let snapshots = open();
        assert!(snapshots.may_use("alice", "kept") && !snapshots.may_use("bob", "kept"));
        assert_eq!(
            reserve(&snapshots, "kept", "alice").unwrap(),
            Reserved::Again(snapshot("kept", "alice"))
        );
        snapshots.settle("kept", Then::Keep).unwrap();
        assert!(snapshots.take("bob", "kept").unwrap().is_none());
        assert_eq!(snapshots.take("alice", "kept").unwrap().as_deref(), Some("kept"));
        assert_eq!(reserve(&snapshots, "kept", "alice").unwrap_err().code, Code::Conflict);
        snapshots.settle("kept", Then::Forget).unwrap();
        assert!(snapshots.of("alice").is_empty() && open().of("alice").is_empty());
        std::fs::write(directory.path().join(FILE), "[").unwrap();
        Snapshots::open(Some(directory.path())).unwrap_err();
    }

    #[test]
    fn what_the_server_saved_for_somebody_unknown_is_for_nobody() {
        let snapshots = Snapshots::default();
        assert!(snapshots.may_use("alice", "python"));
        for name in ["snapshot-abc", "episode-0123-4", "episode-0123-end"] {
            assert!(!snapshots.may_use("alice", name), "{name}");
        }
        reserve(&snapshots, "episode-0123-4", "alice").unwrap_err();
        reserve(&snapshots, "snapshot-abc", "alice").unwrap();
        assert!(snapshots.may_use("alice", "snapshot-abc"));
    }

    #[test]
    fn an_owner_has_a_bounded_number() {
        let snapshots = Snapshots::default();
        for number in 0..MAX_EACH {
            reserve(&snapshots, &format!("s{number}"), "alice").unwrap();
        }
        assert_eq!(reserve(&snapshots, "more", "alice").unwrap_err().code, Code::TooMany);
        reserve(&snapshots, "more", "bob").unwrap();
        assert_eq!(snapshots.bytes_of("alice"), 5 * MAX_EACH as u64);
        snapshots.settle("s0", Then::Forget).unwrap();
        assert_eq!(snapshots.bytes_of("alice"), 5 * MAX_EACH as u64 - 5);
    }
}
