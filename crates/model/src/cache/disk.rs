//! The files of the cache: read whole, written whole or not at all.
//!
//! Knows names and bytes, not what they mean.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// A file larger than this is none of ours.
const LARGEST: u64 = 256 << 20;

/// Whoever wrote a file that is unfinished for this long is dead.
const ABANDONED: Duration = Duration::from_secs(3600);

/// How the names of unfinished files start.
const UNFINISHED: &str = ".unfinished-";

/// What it takes to notice a full disk.
static PROBE: [u8; 64 << 10] = [b'.'; 64 << 10];

/// Numbers the unfinished files of this process.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// The directory of a cache.
#[derive(Debug)]
pub(super) struct Dir {
    path: PathBuf,
    /// Sets our unfinished files apart from those of other machines that share the directory.
    opened: u128,
}

impl Dir {
    /// Makes the directory where it is missing, and tries whether it can be written to.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        fs::create_dir_all(path)?;
        let opened = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
        let dir = Self { path: path.to_owned(), opened };
        dir.remove_abandoned();
        let probe = dir.unfinished();
        let written = write(&probe, &PROBE);
        let removed = fs::remove_file(&probe);
        written.and(removed)?;
        Ok(dir)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the reply to the `n`-th request with this key lies.
    pub(super) fn file(&self, key: &str, n: u64) -> PathBuf {
        self.path.join(key.get(..2).unwrap_or("_")).join(format!("{key}-{n}.json"))
    }

    /// What a file holds; nothing where there is none, or none that can be read.
    pub(super) fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        // A pipe would block for ever, so the kind is asked before the file is opened.
        match fs::metadata(path) {
            Ok(about) if about.is_file() && about.len() <= LARGEST => {}
            _ => return Ok(None),
        }
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|file| file.take(LARGEST).read_to_end(&mut bytes));
        match read {
            Ok(_) => Ok(Some(bytes)),
            Err(error) if is_absence(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Puts a file in place, over what may be there.
    pub(super) fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let unfinished = self.unfinished();
        let done = write(&unfinished, bytes).and_then(|()| fs::rename(&unfinished, path));
        if done.is_err() {
            // Best effort: what matters is why the file could not be written.
            let _ = fs::remove_file(&unfinished);
        }
        done
    }

    fn unfinished(&self) -> PathBuf {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        self.path.join(format!("{UNFINISHED}{:x}-{}-{number}", self.opened, process::id()))
    }

    /// Clears away what killed processes left. Failing at that harms nobody.
    fn remove_abandoned(&self) {
        let Ok(entries) = fs::read_dir(&self.path) else { return };
        for entry in entries.flatten() {
            let ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(UNFINISHED));
            if ours && is_abandoned(&entry) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

fn is_abandoned(entry: &fs::DirEntry) -> bool {
    let changed = entry.metadata().and_then(|about| about.modified());
    changed.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > ABANDONED))
}

/// The file may have gone between two looks at it, or belong to somebody else.
fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(bytes)?;
    file.flush()
}
