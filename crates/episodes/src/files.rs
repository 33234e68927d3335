//! The files a model left: listed and opened within bounds, never through links, never outside their directory.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::Error;

/// Most files that are listed.
pub(crate) const MAX_LISTED: usize = 10_000;

/// A file that the model left in its output directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Its path below the output directory.
    pub path: String,
    /// Size in bytes.
    pub size: u64,
}

/// The regular files below a directory, sorted by path, the first ones if there are very many. Names that are not UTF-8 are
/// left out: they cannot be named in a request.
pub(crate) fn list(dir: &Path) -> Vec<FileEntry> {
    let mut open: Vec<PathBuf> = vec![dir.to_owned()];
    let mut files = Vec::new();
    while let Some(path) = open.pop().filter(|_| files.len() < MAX_LISTED) {
        let Ok(entries) = fs::read_dir(&path) else { continue };
        for entry in entries.flatten() {
            // Of the entry itself: links are not followed.
            let Ok(about) = entry.metadata() else { continue };
            if about.is_dir() {
                open.push(entry.path());
            } else if about.is_file()
                && let Ok(path) = entry.path().strip_prefix(dir)
                && let Some(path) = path.to_str()
            {
                files.push(FileEntry { path: path.to_owned(), size: about.len() });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files.truncate(MAX_LISTED);
    files
}

/// Opens one of these files.
pub(crate) fn open(dir: &Path, path: &str) -> Result<File, Error> {
    let refuse = |why: String| Error::NoFile { path: path.to_owned(), why };
    if path.is_empty() || path.contains('\0') {
        return Err(refuse("it is not a path".into()));
    }
    results::open_below(dir, Path::new(path)).map_err(|error| refuse(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_path_leaves_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let files = dir.path().join("files");
        fs::create_dir_all(files.join("sub")).unwrap();
        fs::write(dir.path().join("secret"), "x").unwrap();
        fs::write(files.join("sub/a"), "abc").unwrap();
        std::os::unix::fs::symlink("../secret", files.join("link")).unwrap();
        std::os::unix::fs::symlink("..", files.join("up")).unwrap();
        assert_eq!(list(&files), [FileEntry { path: "sub/a".into(), size: 3 }]);
        assert!(open(&files, "sub/a").is_ok());
        for path in
            ["../secret", "/etc/passwd", "link", "up/secret", "sub", "sub/../../secret", "", "a\0"]
        {
            assert!(open(&files, path).is_err(), "{path:?}");
        }
    }
}
