//! The cache's files: read as a whole, written atomically.
//!
//! Knows names and bytes, not their meaning.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    time::Duration,
};

/// Larger files are not cache files.
const LARGEST: u64 = 256 << 20;

/// A temporary file this old was left by a process that died.
const ABANDONED: Duration = Duration::from_secs(3600);

/// The directory of a cache.
#[derive(Debug)]
pub(super) struct Dir {
    path: PathBuf,
}

impl Dir {
    /// Creates the directory if it is missing, and checks that it is writable.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        fs::create_dir_all(path)?;
        atomic_file::remove_leftovers(path, ABANDONED);
        atomic_file::check_writable(path)?;
        Ok(Self { path: path.to_owned() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The file of the `n`-th response for this key.
    pub(super) fn file(&self, key: &str, n: u64) -> PathBuf {
        self.path.join(key.get(..2).unwrap_or("_")).join(format!("{key}-{n}.json"))
    }

    /// The content of a file; `None` where it is missing or not accessible.
    pub(super) fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        // Opening a pipe would block forever, so the type is checked first.
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

    /// Writes a file atomically, replacing an existing one.
    pub(super) fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        atomic_file::write_via(&self.path, path, bytes)
    }
}

/// The file may have been removed since it was checked, or belong to another user.
fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
}
