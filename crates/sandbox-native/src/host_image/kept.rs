//! The tree of the built-in image on disk, so that not every spawner has to copy it.
//!
//! A tree has a name that says what it was made of: the state of every file it copies, and the machine's start. As soon as
//! any of it changes, the name is another one, and so is the tree. Nobody writes to a tree after it has its name, and a
//! spawner that uses one has locked it, so a tree that nobody has locked can be removed. A tree is not synchronised to the
//! disk: after the machine's next start it has another name.

use std::{
    fs,
    hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustix::fs::{FlockOperation, flock};

use super::{CONFIGURATION, GENERATED, PROGRAM_DIRS, make_skeleton};
use crate::spawner::remove_leftover;

/// A file changed this recently may change again without a later time stamp.
const SETTLED: Duration = Duration::from_secs(2);
/// To be counted up when `make_skeleton` changes what it makes of the same files.
const FORMAT: u32 = 1;
/// The name of a tree that is not complete starts with this.
const UNFINISHED: &str = "new-";

/// A tree in use.
pub(crate) struct KeptTree {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// Prevents its removal.
    _lock: fs::File,
}

/// Returns the tree of the files as they are now, made in `dir` if there is none. Fails where the files are just being
/// changed, or where a tree cannot be kept.
pub(crate) fn tree(dir: &Path) -> io::Result<KeptTree> {
    let name = settled_name()?;
    let path = dir.join(&name);
    match lock(&path, FlockOperation::NonBlockingLockShared) {
        Ok(lock) => return Ok(KeptTree { path, _lock: lock }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    // Spawners of several pid namespaces may share the directory, and have the same number.
    let unfinished = dir.join(format!("{UNFINISHED}{:016x}", RandomState::new().hash_one(0u8)));
    fs::create_dir(&unfinished)?;
    let made = make(&unfinished, &path, &name);
    if made.is_err() {
        let _ = remove_leftover(&unfinished);
    }
    made?;
    remove_others(dir, &name);
    let lock = lock(&path, FlockOperation::NonBlockingLockShared)?;
    Ok(KeptTree { path, _lock: lock })
}

/// Makes a tree. Another spawner may be faster.
fn make(unfinished: &Path, path: &Path, name: &str) -> io::Result<()> {
    let _lock = lock(unfinished, FlockOperation::NonBlockingLockExclusive)?;
    make_skeleton(unfinished)?;
    if settled_name()? != name {
        return Err(io::Error::other("the configuration changed while it was copied"));
    }
    match fs::rename(unfinished, path) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
            remove_leftover(unfinished)
        }
        renamed => renamed,
    }
}

/// Removes the trees that no spawner uses or makes.
fn remove_others(dir: &Path, name: &str) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_name() != name
            && let Ok(_lock) = lock(&entry.path(), FlockOperation::NonBlockingLockExclusive)
        {
            // Under another name first, under which nobody looks for it.
            let gone = dir.join(format!("{UNFINISHED}{:016x}", RandomState::new().hash_one(0u8)));
            let tree = if fs::rename(entry.path(), &gone).is_ok() { gone } else { entry.path() };
            let _ = remove_leftover(&tree);
        }
    }
}

/// Opens and locks a directory, which is still the one at its path.
fn lock(path: &Path, operation: FlockOperation) -> io::Result<fs::File> {
    let lock = fs::File::open(path)?;
    flock(&lock, operation)?;
    match lock.metadata()?.ino() == path.symlink_metadata()?.ino() {
        true => Ok(lock),
        false => Err(io::ErrorKind::NotFound.into()),
    }
}

/// The name of the tree, if the files have not changed for a while.
fn settled_name() -> io::Result<String> {
    let mut state = State::default();
    state.add(&(FORMAT, env!("CARGO_PKG_VERSION"), CONFIGURATION, GENERATED));
    state.add(&fs::read("/proc/sys/kernel/random/boot_id")?);
    for dir in PROGRAM_DIRS {
        let kind = Path::new(dir).symlink_metadata().map(|meta| meta.file_type());
        let kind = kind.map_or((false, false), |kind| (kind.is_dir(), kind.is_symlink()));
        state.add(&(dir, kind, fs::read_link(dir).ok()));
    }
    for name in CONFIGURATION {
        state.add_top(&Path::new("/etc").join(name))?;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    match state.newest + SETTLED.as_secs() as i64 <= now.as_secs() as i64 {
        true => Ok(format!("{:016x}", state.sum)),
        false => Err(io::Error::other("the configuration has just changed")),
    }
}

/// A summary of files, in whatever order they are listed.
#[derive(Default)]
struct State {
    sum: u64,
    /// The latest change, in seconds.
    newest: i64,
}

impl State {
    fn add(&mut self, part: &impl Hash) {
        let mut hasher = DefaultHasher::new();
        part.hash(&mut hasher);
        self.sum = self.sum.wrapping_add(hasher.finish());
    }

    /// Adds a file, link or tree.
    fn add_top(&mut self, path: &Path) -> io::Result<()> {
        match path.symlink_metadata() {
            Ok(meta) if meta.is_symlink() => {
                self.add(&(path, fs::read_link(path)?));
                Ok(())
            }
            Ok(meta) => self.add_file(path, &meta),
            // Whatever prevents its being seen prevents its being copied.
            Err(_) => Ok(()),
        }
    }

    fn add_file(&mut self, path: &Path, meta: &fs::Metadata) -> io::Result<()> {
        let (changed, modified) =
            ((meta.ctime(), meta.ctime_nsec()), (meta.mtime(), meta.mtime_nsec()));
        self.newest = self.newest.max(changed.0).max(modified.0);
        self.add(&(path, meta.ino(), meta.mode(), meta.size(), changed, modified));
        if meta.is_dir() && meta.permissions().mode() & 0o004 != 0 {
            for entry in fs::read_dir(path)? {
                let entry = entry?;
                // A link cannot change without a change of its directory.
                if !entry.file_type()?.is_symlink() {
                    self.add_file(&entry.path(), &entry.metadata()?)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
        entries.map(|name| name.into_string().unwrap()).collect()
    }

    /// Waits for another program that changes this machine's configuration.
    fn settled_tree(dir: &Path) -> KeptTree {
        let tries = (0..40).find_map(|_| {
            tree(dir).inspect_err(|_| std::thread::sleep(Duration::from_millis(100))).ok()
        });
        tries.unwrap()
    }

    #[test]
    fn a_tree_is_made_once_and_others_are_removed_unless_in_use() {
        let dir = tempfile::tempdir().unwrap();
        let (used, unused) = (dir.path().join("used"), dir.path().join("new-1"));
        fs::create_dir_all(used.join("etc")).unwrap();
        fs::create_dir_all(unused.join("etc")).unwrap();
        let in_use = lock(&used, FlockOperation::NonBlockingLockShared).unwrap();
        let first = settled_tree(dir.path());
        assert!(first.path.join("etc/passwd").exists());
        assert!(used.exists() && !unused.exists(), "{:?}", names(dir.path()));
        let made = first.path.metadata().unwrap().ino();
        drop((in_use, first));
        let second = settled_tree(dir.path());
        assert_eq!(second.path.metadata().unwrap().ino(), made);
        assert_eq!(names(dir.path()).len(), 2);
    }

    #[test]
    fn every_change_of_a_file_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let state = || {
            let mut state = State::default();
            state.add_top(dir.path()).unwrap();
            state.sum
        };
        let inner = dir.path().join("inner");
        let mut seen = vec![state()];
        let mut changed = || {
            let now = state();
            assert_eq!(now, state());
            assert!(!seen.contains(&now));
            seen.push(now);
        };
        fs::create_dir(&inner).unwrap();
        changed();
        fs::write(inner.join("file"), "a").unwrap();
        changed();
        fs::set_permissions(inner.join("file"), fs::Permissions::from_mode(0o600)).unwrap();
        changed();
        std::os::unix::fs::symlink("a", inner.join("link")).unwrap();
        changed();
        fs::write(inner.join("file"), "bc").unwrap();
        changed();
    }
}
