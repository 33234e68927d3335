//! Directories that are complete or not there at all: filled beside their place, then moved there.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

/// Makes a directory, unless it exists. `fill` gets a place beside it where nothing is.
pub(crate) fn once(to: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if to.exists() {
        return Ok(());
    }
    let partial = beside(to, ".partial");
    // A download that was killed leaves a part, perhaps of another version.
    remove(&partial)?;
    fill(&partial)?;
    fs::rename(&partial, to).with_context(|| format!("moving {} into place", to.display()))
}

/// The path of something with a suffix.
pub(crate) fn beside(what: &Path, suffix: &str) -> PathBuf {
    let mut name = what.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Removes a directory, if it exists.
pub(crate) fn remove(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", dir.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use anyhow::bail;

    use super::*;

    /// A new directory for one test.
    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("xtask-{name}-{}", std::process::id()));
        remove(&dir).unwrap();
        fs::create_dir(&dir).unwrap();
        dir
    }

    fn write(dir: &Path, name: &str) -> Result<()> {
        fs::create_dir_all(dir)?;
        Ok(fs::write(dir.join(name), "")?)
    }

    #[test]
    fn what_a_killed_download_left_is_not_mixed_with_the_next() {
        let dir = scratch("killed-download");
        let to = dir.join("package==1.8.0");
        let killed = once(&to, |partial| {
            write(partial, "of-the-first")?;
            bail!("killed")
        });
        assert!(killed.is_err() && !to.exists());
        once(&to, |partial| write(partial, "of-the-second")).unwrap();
        assert!(to.join("of-the-second").exists() && !to.join("of-the-first").exists());
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1, "nothing else is left");
        remove(&dir).unwrap();
    }

    #[test]
    fn versions_have_places_of_their_own_and_are_downloaded_once() {
        let dir = scratch("versions");
        let times = Cell::new(0);
        for name in ["package==1.8.0", "package==1.8.1", "package==1.8.0"] {
            once(&dir.join(name), |partial| {
                assert_eq!(*partial, dir.join(format!("{name}.partial")));
                times.set(times.get() + 1);
                write(partial, "file")
            })
            .unwrap();
        }
        assert_eq!(times.get(), 2);
        remove(&dir).unwrap();
    }
}
