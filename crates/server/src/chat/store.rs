//! The files of clients and of episodes: bounded in number and bytes, each whole or absent, below one directory.
//!
//! A file has a random id, which is its name on disk; names that clients or models choose never become paths. Its content
//! is stored first, then its description: what has none is removed at the next start.

use std::{
    collections::{BTreeMap, HashMap},
    fmt, fs,
    io::{self, Read},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};
use tokio::{fs::File, io::AsyncWriteExt};

use crate::deadline::Deadline;

/// Limits of a [`FileStore`].
#[derive(Clone, Copy, Debug)]
pub struct FileLimits {
    /// Most files.
    pub files: usize,
    /// Most bytes of one file.
    pub file_bytes: u64,
    /// Most bytes of all files together.
    pub total_bytes: u64,
}

impl Default for FileLimits {
    fn default() -> Self {
        Self { files: 10_000, file_bytes: 512 << 20, total_bytes: 16 << 30 }
    }
}

/// The files.
#[derive(Debug)]
pub struct FileStore {
    dir: PathBuf,
    limits: FileLimits,
    index: Mutex<Index>,
}

#[derive(Debug, Default)]
struct Index {
    /// By time of creation and id.
    files: BTreeMap<(u64, String), StoredFile>,
    /// Bytes of all files, those that are being stored included.
    bytes: u64,
    /// Files that are being stored.
    pending: usize,
    /// The same by owner.
    owners: HashMap<String, Used>,
}

/// What an owner has stored or is storing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Used {
    files: usize,
    bytes: u64,
}

/// Whose a new file is, and how much its owner may have stored with it.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    pub(crate) owner: String,
    pub(crate) files: usize,
    pub(crate) bytes: MostBytes,
}

/// How much an owner may have stored, which may change while a file arrives.
#[derive(Clone)]
pub(crate) struct MostBytes(Arc<dyn Fn() -> u64 + Send + Sync>);

impl MostBytes {
    /// What this function says. The store is not locked meanwhile.
    pub(crate) fn new(now: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }
}

impl fmt::Debug for MostBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MostBytes").field(&(self.0)()).finish()
    }
}

/// A file's description: `ID.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredFile {
    /// Version of the format.
    v: u32,
    pub(crate) id: String,
    pub(crate) owner: String,
    /// As the client or the model called it; not a path.
    pub(crate) name: String,
    pub(crate) purpose: String,
    pub(crate) bytes: u64,
    /// Milliseconds since 1970.
    pub(crate) created: u64,
    /// Milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expires: Option<u64>,
    /// The same, as this process follows it.
    #[serde(skip)]
    deadline: Option<Deadline>,
}

/// What a new file is.
#[derive(Clone, Debug)]
pub(crate) struct About {
    pub(crate) name: String,
    pub(crate) purpose: String,
    pub(crate) lifetime: Option<Duration>,
}

/// Why a file was not stored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    #[error("a file must not be larger than {0} bytes")]
    TooLarge(u64),
    #[error("the server stores at most {0} files; delete some")]
    TooMany(usize),
    #[error("the server stores at most {0} bytes of files; delete some")]
    Full(u64),
    #[error("you may store at most {0} files; delete some")]
    TooManyOwn(usize),
    #[error("you may store at most {0} bytes of files; delete some")]
    FullOwn(u64),
    #[error("the server cannot store files: {0}")]
    Io(#[from] io::Error),
}

const VERSION: u32 = 1;
const PREFIX: &str = "file-";
const PARTIAL: &str = ".partial";
const DESCRIPTION: &str = ".json";

impl FileStore {
    /// Opens a directory, creating it where it does not exist. Removes what an earlier process left half-written.
    ///
    /// # Errors
    /// If it cannot be read or created.
    pub fn open(dir: impl Into<PathBuf>, limits: FileLimits) -> io::Result<Self> {
        let dir = dir.into();
        // The files are the clients' own.
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        let mut index = Index::default();
        for file in described(&dir)? {
            index.bytes += file.bytes;
            let used = index.owners.entry(file.owner.clone()).or_default();
            *used = Used { files: used.files + 1, bytes: used.bytes + file.bytes };
            index.files.insert((file.created, file.id.clone()), file);
        }
        let known = |name: &str| {
            let id = name.strip_suffix(DESCRIPTION).unwrap_or(name);
            index.files.keys().any(|(_, known)| known == id)
        };
        for entry in fs::read_dir(&dir)?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(PREFIX) && !known(&name) {
                fs::remove_file(entry.path())?;
            }
        }
        atomic_file::remove_leftovers(&dir, Duration::ZERO);
        Ok(Self { dir, limits, index: Mutex::new(index) })
    }

    fn lock(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the content of a file is.
    pub(crate) fn path(&self, file: &StoredFile) -> PathBuf {
        self.dir.join(&file.id)
    }

    /// A path for other records, which is not taken for one of the files.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// A file of this caller.
    pub(crate) fn find(&self, owner: &str, id: &str) -> Option<StoredFile> {
        self.remove_expired();
        let index = self.lock();
        index.files.values().find(|file| file.id == id && file.owner == owner).cloned()
    }

    /// All files of this caller, oldest first.
    pub(crate) fn list(&self, owner: &str) -> Vec<StoredFile> {
        self.remove_expired();
        self.lock().files.values().filter(|file| file.owner == owner).cloned().collect()
    }

    /// Removes a file of this caller. Whether there was one.
    pub(crate) fn remove(&self, owner: &str, id: &str) -> bool {
        let found = self.find(owner, id);
        found.is_some_and(|file| self.forget(&file))
    }

    fn forget(&self, file: &StoredFile) -> bool {
        let key = (file.created, file.id.clone());
        let mut index = self.lock();
        if index.files.remove(&key).is_none() {
            return false;
        }
        index.bytes = index.bytes.saturating_sub(file.bytes);
        index.release(&file.owner, file.bytes);
        drop(index);
        // Without a description, the content is removed at the next start if it cannot be now.
        for path in [self.description(&file.id), self.path(file)] {
            if let Err(error) = fs::remove_file(&path) {
                tracing::warn!("removing a file of a client: {error}");
            }
        }
        true
    }

    fn remove_expired(&self) {
        let is_over = |file: &&StoredFile| file.deadline.is_some_and(|at| at.has_passed());
        let expired: Vec<_> = self.lock().files.values().filter(is_over).cloned().collect();
        for file in expired {
            self.forget(&file);
        }
    }

    fn description(&self, id: &str) -> PathBuf {
        self.dir.join(format!("{id}{DESCRIPTION}"))
    }

    /// Begins a new file with this random id.
    pub(crate) async fn begin(
        self: &Arc<Self>,
        random: &str,
        room: Room,
    ) -> Result<NewFile, StoreError> {
        self.remove_expired();
        let reserved = self.reserve(room)?;
        let id = format!("{PREFIX}{random}");
        let partial = self.dir.join(format!("{id}{PARTIAL}"));
        let file = File::create_new(&partial).await?;
        Ok(NewFile { reserved, id, partial: Partial(partial), file })
    }

    /// Stores the rest of an open file, such as one that an episode left.
    pub(crate) fn import(
        self: &Arc<Self>,
        random: &str,
        from: &mut fs::File,
        room: Room,
        about: About,
    ) -> Result<StoredFile, StoreError> {
        let mut reserved = self.reserve(room)?;
        let id = format!("{PREFIX}{random}");
        let partial = Partial(self.dir.join(format!("{id}{PARTIAL}")));
        let bytes = from.metadata()?.len();
        reserved.grow(bytes)?;
        let mut to = fs::File::create_new(&partial.0)?;
        // It may grow meanwhile.
        let copied = io::copy(&mut from.take(bytes), &mut to)?;
        if copied != bytes {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        reserved.keep(id, partial, about)
    }

    /// The limits.
    pub(crate) fn limits(&self) -> FileLimits {
        self.limits
    }

    /// The bytes that this caller has stored or is storing.
    pub(crate) fn bytes_of(&self, owner: &str) -> u64 {
        self.lock().owners.get(owner).map_or(0, |used| used.bytes)
    }

    fn reserve(self: &Arc<Self>, room: Room) -> Result<Reserved, StoreError> {
        let mut index = self.lock();
        if index.files.len() + index.pending >= self.limits.files {
            return Err(StoreError::TooMany(self.limits.files));
        }
        let own = index.owners.get(&room.owner).map_or(0, |used| used.files);
        if own >= room.files {
            return Err(StoreError::TooManyOwn(room.files));
        }
        index.pending += 1;
        index.owners.entry(room.owner.clone()).or_default().files += 1;
        Ok(Reserved { store: Arc::clone(self), room, bytes: 0, kept: false })
    }
}

impl Index {
    /// Forgets a file of an owner.
    fn release(&mut self, owner: &str, bytes: u64) {
        let Some(used) = self.owners.get_mut(owner) else { return };
        used.files = used.files.saturating_sub(1);
        used.bytes = used.bytes.saturating_sub(bytes);
        if used.files == 0 {
            self.owners.remove(owner);
        }
    }
}

/// The descriptions of the files that are there as described.
fn described(dir: &Path) -> io::Result<Vec<StoredFile>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(id) = name.strip_suffix(DESCRIPTION).filter(|id| is_id(id)) else { continue };
        let file = serde_json::from_slice::<StoredFile>(&fs::read(entry.path())?).ok();
        let Some(file) = file.filter(|file| file.id == id && file.v <= VERSION) else { continue };
        let is_whole = fs::symlink_metadata(dir.join(id))
            .is_ok_and(|content| content.is_file() && content.len() == file.bytes);
        if is_whole {
            let longest = file.expires.map(|at| Duration::from_millis(at - at.min(file.created)));
            let deadline = file.expires.map(|at| Deadline::recorded(time(at)));
            let deadline = deadline.zip(longest).map(|(at, longest)| at.within(longest));
            files.push(StoredFile { deadline, ..file });
        }
    }
    Ok(files)
}

fn is_id(id: &str) -> bool {
    let random = id.strip_prefix(PREFIX);
    random.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_alphanumeric()))
}

/// Milliseconds since 1970.
fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn time(millis: u64) -> SystemTime {
    UNIX_EPOCH.checked_add(Duration::from_millis(millis)).unwrap_or(UNIX_EPOCH)
}

/// A place in the store, free again on drop unless the file is kept.
#[derive(Debug)]
struct Reserved {
    store: Arc<FileStore>,
    room: Room,
    bytes: u64,
    kept: bool,
}

impl Reserved {
    /// Takes room for more bytes.
    fn grow(&mut self, more: u64) -> Result<(), StoreError> {
        let limits = self.store.limits;
        if self.bytes.saturating_add(more) > limits.file_bytes {
            return Err(StoreError::TooLarge(limits.file_bytes));
        }
        let most = (self.room.bytes.0)();
        let mut index = self.store.lock();
        if index.bytes.saturating_add(more) > limits.total_bytes {
            return Err(StoreError::Full(limits.total_bytes));
        }
        let used = index.owners.entry(self.room.owner.clone()).or_default();
        if used.bytes.saturating_add(more) > most {
            return Err(StoreError::FullOwn(most));
        }
        used.bytes += more;
        index.bytes += more;
        drop(index);
        self.bytes += more;
        Ok(())
    }

    /// Moves the content into place and describes it.
    fn keep(
        mut self,
        id: String,
        partial: Partial,
        about: About,
    ) -> Result<StoredFile, StoreError> {
        let deadline = about.lifetime.map(Deadline::after);
        let file = StoredFile {
            v: VERSION,
            id,
            owner: self.room.owner.clone(),
            name: about.name,
            purpose: about.purpose,
            bytes: self.bytes,
            created: millis(SystemTime::now()),
            expires: deadline.map(|deadline| millis(deadline.at())),
            deadline,
        };
        let content = self.store.path(&file);
        fs::rename(&partial.0, &content)?;
        let text = serde_json::to_vec(&file).map_err(io::Error::other)?;
        if let Err(error) = atomic_file::write(self.store.description(&file.id), text) {
            let _ = fs::remove_file(&content);
            return Err(error.into());
        }
        let mut index = self.store.lock();
        index.files.insert((file.created, file.id.clone()), file.clone());
        index.pending -= 1;
        drop(index);
        self.kept = true;
        Ok(file)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if !self.kept {
            let mut index = self.store.lock();
            index.pending -= 1;
            index.bytes = index.bytes.saturating_sub(self.bytes);
            index.release(&self.room.owner, self.bytes);
        }
    }
}

/// A file on its way, removed on drop.
#[derive(Debug)]
struct Partial(PathBuf);

impl Drop for Partial {
    fn drop(&mut self) {
        // It is gone where it was moved into place.
        let _ = fs::remove_file(&self.0);
    }
}

/// A file that is being received.
#[derive(Debug)]
pub(crate) struct NewFile {
    reserved: Reserved,
    id: String,
    partial: Partial,
    file: File,
}

impl NewFile {
    /// Appends to it.
    pub(crate) async fn write(&mut self, piece: &[u8]) -> Result<(), StoreError> {
        self.reserved.grow(piece.len() as u64)?;
        Ok(self.file.write_all(piece).await?)
    }

    /// Stores it.
    pub(crate) async fn finish(mut self, about: About) -> Result<StoredFile, StoreError> {
        self.file.flush().await?;
        let Self { reserved, id, partial, .. } = self;
        let keeping = tokio::task::spawn_blocking(move || reserved.keep(id, partial, about));
        keeping.await.map_err(io::Error::other)?
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
