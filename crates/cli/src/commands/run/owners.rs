//! Which run directory the saved files of a run belong to, so that images of runs that are gone can be removed.
//!
//! `HOME/runs/CODE` holds the path of a run directory. CODE is that of the names of its images, `run-CODE-NAME`, see
//! [`Seal::image_prefix`](super::seal::Seal::image_prefix). The file exists while an image may.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs, io,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

/// Digits of the code.
const DIGITS: usize = 16;
/// The longest path that is read, in bytes.
const MAX_PATH: usize = 4096;

/// The record of one run directory.
#[derive(Debug)]
pub(crate) struct Owner {
    file: PathBuf,
    directory: PathBuf,
}

impl Owner {
    /// The owner of images whose names begin with this.
    pub(crate) fn new(home: &Path, image_prefix: &str, directory: &Path) -> Option<Self> {
        let file = records(home).join(code_of(image_prefix)?);
        Some(Self { file, directory: directory.to_owned() })
    }

    /// Notes where the run directory is. A failure costs no more than a manual removal.
    pub(crate) fn note(&self) {
        if let Some(parent) = self.file.parent() {
            let _ = fs::create_dir_all(parent).and_then(|()| {
                atomic_file::write(&self.file, self.directory.as_os_str().as_bytes())
            });
        }
    }

    /// Removes the note: the run has no images.
    pub(crate) fn forget(&self) {
        let _ = fs::remove_file(&self.file);
    }
}

/// The images among these whose run directory is gone, and whose notes are no longer needed with them. Images without a
/// note are left alone, as are directories that cannot be looked at.
pub(crate) fn ownerless<'a>(home: &Path, images: impl Iterator<Item = &'a str>) -> Ownerless {
    let mut gone: BTreeMap<&str, bool> = BTreeMap::new();
    let mut found = Ownerless::default();
    for image in images {
        let Some(code) = code_of(image) else { continue };
        let is_gone = *gone.entry(code).or_insert_with(|| is_gone(&records(home).join(code)));
        if is_gone {
            found.images.push(image.to_owned());
        }
    }
    let notes = fs::read_dir(records(home)).into_iter().flatten().flatten();
    found.notes = notes.map(|note| note.path()).filter(|note| is_gone(note)).collect();
    found
}

/// What is left of runs whose directories are gone.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Ownerless {
    pub(crate) images: Vec<String>,
    notes: Vec<PathBuf>,
}

impl Ownerless {
    /// Removes the notes, after the images.
    pub(crate) fn forget(&self) {
        for note in &self.notes {
            let _ = fs::remove_file(note);
        }
    }
}

fn records(home: &Path) -> PathBuf {
    home.join("runs")
}

/// The code in the name of an image.
fn code_of(image: &str) -> Option<&str> {
    let (code, _) = image.strip_prefix("run-")?.split_once('-')?;
    let hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    (code.len() == DIGITS && code.bytes().all(hex)).then_some(code)
}

/// Whether the directory in a note is gone. An unreadable note says nothing.
fn is_gone(note: &Path) -> bool {
    let Ok(bytes) = fs::read(note) else { return false };
    let directory = PathBuf::from(OsString::from_vec(bytes));
    if directory.as_os_str().len() > MAX_PATH || !directory.is_absolute() {
        return false;
    }
    let missing = |error: io::Error| error.kind() == io::ErrorKind::NotFound;
    fs::symlink_metadata(&directory).is_err_and(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_images_of_runs_known_to_be_gone_are_removed() {
        let home = tempfile::tempdir().unwrap();
        let run = tempfile::tempdir().unwrap();
        let (here, gone, unknown) =
            ("run-00000000000000aa-x-1", "run-00000000000000bb-x-1", "run-00000000000000cc-x-1");
        Owner::new(home.path(), here, run.path()).unwrap().note();
        let owner = Owner::new(home.path(), gone, &run.path().join("removed")).unwrap();
        owner.note();
        let images = [here, gone, unknown, "base", "run-short-x", "run-00000000000000BB-x"];
        let found = ownerless(home.path(), images.into_iter());
        assert_eq!(found.images, [gone]);
        found.forget();
        assert_eq!(ownerless(home.path(), images.into_iter()), Ownerless::default());
        owner.note();
        owner.forget();
        assert_eq!(ownerless(home.path(), images.into_iter()), Ownerless::default());
        assert!(Owner::new(home.path(), "base", run.path()).is_none());
    }
}
