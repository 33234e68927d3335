//! Files that appear whole or not at all.
//!
//! The contents are written to a new file in the destination's directory, which is then renamed over the destination:
//! readers see the old file or the new one, and a crash leaves one of the two. On failure the new file is removed. A
//! symbolic link at the destination is replaced, never written through.
//!
//! ```
//! let dir = tempfile::tempdir()?;
//! let path = dir.path().join("run.json");
//! lis_atomic_file::write(&path, "{}")?;
//! assert_eq!(std::fs::read_to_string(&path)?, "{}");
//! # Ok::<(), std::io::Error>(())
//! ```

use std::{
    fs, io,
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

/// Prefix and suffix of temporary files.
const TEMPORARY: (&str, &str) = (".", ".partial");

/// Writes a file, replacing an existing one. The contents survive a crash of the process, not a loss of power.
pub fn write(path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> io::Result<()> {
    write_with(path, |file| file.write_all(contents.as_ref()))
}

/// Like [`write()`], and returns only once the file and its name have reached the disk.
pub fn write_durable(path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> io::Result<()> {
    let path = path.as_ref();
    write_with(path, |file| file.write_all(contents.as_ref()).and_then(|()| file.sync_all()))?;
    fs::File::open(directory_of(path))?.sync_all()
}

/// Like [`write()`], with contents produced by a function. Nothing changes when the function fails.
pub fn write_with<E: From<io::Error>>(
    path: impl AsRef<Path>,
    produce: impl FnOnce(&mut fs::File) -> Result<(), E>,
) -> Result<(), E> {
    let path = path.as_ref();
    let mut file = temporary(&directory_of(path))?;
    produce(file.as_file_mut())?;
    file.persist(path).map_err(|failed| failed.error)?;
    Ok(())
}

/// Like [`write()`], with the temporary file in the directory `staging` of the same file system, so that
/// [`remove_leftovers`] has one directory to clean.
pub fn write_via(
    staging: impl AsRef<Path>,
    path: impl AsRef<Path>,
    contents: impl AsRef<[u8]>,
) -> io::Result<()> {
    let mut file = temporary(staging.as_ref())?;
    file.write_all(contents.as_ref())?;
    file.persist(path).map_err(|failed| failed.error)?;
    Ok(())
}

/// Checks that a directory is writable and its disk not full, with a temporary file of 64 KiB.
pub fn check_writable(dir: impl AsRef<Path>) -> io::Result<()> {
    let mut file = temporary(dir.as_ref())?;
    file.write_all(&[b'.'; 64 << 10])?;
    file.close()
}

/// Removes temporary files of killed processes from a directory: those that were not changed for `min_age`. With zero, no
/// other process may be writing there. What cannot be removed stays: it is harmless.
pub fn remove_leftovers(dir: impl AsRef<Path>, min_age: Duration) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let changed = entry.metadata().and_then(|about| about.modified());
        // A time in the future counts as now.
        let age = changed.map(|time| time.elapsed().unwrap_or_default()).unwrap_or_default();
        if name.starts_with(TEMPORARY.0) && name.ends_with(TEMPORARY.1) && age >= min_age {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn temporary(dir: &Path) -> io::Result<tempfile::NamedTempFile> {
    tempfile::Builder::new()
        .prefix(TEMPORARY.0)
        .suffix(TEMPORARY.1)
        // The process's umask applies, as to any new file.
        .permissions(fs::Permissions::from_mode(0o666))
        .tempfile_in(dir)
}

fn directory_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_and_nothing_else_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        write(&path, "one").unwrap();
        write_durable(&path, "two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(names(dir.path()), ["a"]);
        let plain = dir.path().join("b");
        fs::write(&plain, "").unwrap();
        let mode = |path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&path), mode(&plain));
    }

    #[test]
    fn a_failure_leaves_the_old_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        write(&path, "one").unwrap();
        let failed = write_with(&path, |file| {
            file.write_all(b"half")?;
            Err(io::Error::other("no"))
        });
        assert!(failed.is_err());
        assert_eq!(fs::read(&path).unwrap(), b"one");
        assert!(write(dir.path().join("missing/a"), "x").is_err());
        fs::create_dir(dir.path().join("d")).unwrap();
        assert!(write(dir.path().join("d"), "x").is_err());
        assert_eq!(names(dir.path()), ["a", "d"]);
    }

    #[test]
    fn leftovers_are_removed_where_the_temporary_files_are() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("d")).unwrap();
        let leftover = temporary(dir.path()).unwrap().into_temp_path();
        write_via(dir.path(), dir.path().join("d/a"), "one").unwrap();
        assert!(write_via(dir.path(), dir.path().join("d"), "one").is_err());
        assert_eq!(names(dir.path()).len(), 2);
        remove_leftovers(dir.path(), Duration::from_secs(3600));
        assert!(leftover.exists());
        remove_leftovers(dir.path(), Duration::ZERO);
        assert!(!leftover.exists());
        remove_leftovers(dir.path().join("d"), Duration::ZERO);
        check_writable(dir.path()).unwrap();
        assert!(check_writable(dir.path().join("missing")).is_err());
        assert_eq!(names(dir.path()), ["d"]);
        assert_eq!(fs::read(dir.path().join("d/a")).unwrap(), b"one");
    }

    #[test]
    fn links_are_replaced_and_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (target, link) = (dir.path().join("target"), dir.path().join("link"));
        fs::write(&target, "mine").unwrap();
        symlink(&target, &link).unwrap();
        write(&link, "new").unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"mine");
        assert!(!fs::symlink_metadata(&link).unwrap().is_symlink());
    }
}
