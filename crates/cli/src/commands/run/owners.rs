//! Which run directories need an image with saved files, so that images of runs that are gone can be removed.
//!
//! `HOME/runs/IMAGE.DIGEST` holds the path of a run directory whose record names the image; DIGEST is that of the path.
//! Runs with the same settings, and copies of a run directory, so have notes of their own. A note is written before its
//! image and removed after it.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs, io,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use super::seal;

/// Bytes of the digest in the name of a note.
const DIGEST: usize = 8;
/// The longest path that is read, in bytes.
const MAX_PATH: usize = 4096;

/// The notes of one run directory.
#[derive(Debug)]
pub(crate) struct Owner {
    notes: PathBuf,
    directory: PathBuf,
}

impl Owner {
    /// The owner of the images that are saved for this run directory.
    pub(crate) fn new(home: &Path, directory: &Path) -> Self {
        Self { notes: notes(home), directory: directory.to_owned() }
    }

    /// Notes that the directory needs an image. A failure costs no more than a manual removal.
    pub(crate) fn note(&self, image: &str) {
        if let Some(file) = self.file(image) {
            let _ = fs::create_dir_all(&self.notes)
                .and_then(|()| atomic_file::write(file, self.directory.as_os_str().as_bytes()));
        }
    }

    /// Removes the note: the directory does not need the image.
    pub(crate) fn forget(&self, image: &str) {
        if let Some(file) = self.file(image) {
            let _ = fs::remove_file(file);
        }
    }

    /// The images that are noted for the directory.
    pub(crate) fn images(&self) -> Vec<String> {
        let all = all(&self.notes).into_iter();
        let own = all.filter(|note| note.directory().is_some_and(|dir| dir == self.directory));
        own.filter_map(|note| note.image).collect()
    }

    /// Whether another directory that exists, a copy, needs the image.
    pub(crate) fn shares(&self, image: &str) -> bool {
        all(&self.notes).into_iter().filter(|note| note.image.as_deref() == Some(image)).any(
            |note| note.directory().is_some_and(|dir| dir != self.directory && !is_missing(&dir)),
        )
    }

    /// The file of the note; `None` for an image that is none of ours: a record may name anything.
    fn file(&self, image: &str) -> Option<PathBuf> {
        let is_plain = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'z' | b'-');
        let digest = Sha256::digest(self.directory.as_os_str().as_bytes());
        let name = format!("{image}.{}", seal::hex(&digest[..DIGEST]));
        (image.starts_with("run-") && image.bytes().all(is_plain)).then(|| self.notes.join(name))
    }
}

/// The images among these that only directories which are gone needed, and the notes of such directories. Images without
/// a note are left alone.
pub(crate) fn ownerless<'a>(home: &Path, images: impl Iterator<Item = &'a str>) -> Ownerless {
    let mut gone: BTreeMap<String, bool> = BTreeMap::new();
    let mut found = Ownerless::default();
    for note in all(&notes(home)) {
        let is_gone = note.directory().is_some_and(|directory| is_gone(&directory));
        if is_gone {
            found.notes.push(note.file);
        }
        if let Some(image) = note.image {
            *gone.entry(image).or_insert(true) &= is_gone;
        }
    }
    found.images =
        images.filter(|image| gone.get(*image) == Some(&true)).map(str::to_owned).collect();
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

/// A note that exists.
struct Note {
    file: PathBuf,
    /// Unknown for a note of an earlier version, which kept one for all runs with the same settings.
    image: Option<String>,
}

impl Note {
    /// The directory in it. An unreadable note says nothing.
    fn directory(&self) -> Option<PathBuf> {
        let directory = PathBuf::from(OsString::from_vec(fs::read(&self.file).ok()?));
        (directory.as_os_str().len() <= MAX_PATH && directory.is_absolute()).then_some(directory)
    }
}

fn notes(home: &Path) -> PathBuf {
    home.join("runs")
}

/// The notes in this directory, but for those that are being written.
fn all(notes: &Path) -> Vec<Note> {
    let entries = fs::read_dir(notes).into_iter().flatten().flatten();
    let notes = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let image = name.rsplit_once('.').map(|(image, _)| image.to_owned());
        (!name.starts_with('.')).then(|| Note { file: entry.path(), image })
    });
    notes.collect()
}

/// Whether a directory was removed. On a disk that is not mounted, the directory that held it is missing as well.
fn is_gone(directory: &Path) -> bool {
    is_missing(directory) && directory.parent().is_some_and(Path::is_dir)
}

/// Whether a directory is certainly not there.
fn is_missing(directory: &Path) -> bool {
    let missing = |error: io::Error| error.kind() == io::ErrorKind::NotFound;
    fs::symlink_metadata(directory).is_err_and(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Images of runs with the same settings.
    const A: &str = "run-00000000000000aa-20260101-120000-7-1";
    const B: &str = "run-00000000000000aa-20260101-120000-2-8-1";
    const C: &str = "run-00000000000000aa-20260101-120001-9-1-end";

    fn pruned(home: &Path) -> Vec<String> {
        let found = ownerless(home, [A, B, C, "base"].into_iter());
        found.forget();
        found.images
    }

    fn count(home: &Path) -> usize {
        all(&notes(home)).len()
    }

    #[test]
    fn only_images_of_runs_known_to_be_gone_are_removed() {
        let (home, runs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (home, runs) = (home.path(), runs.path());
        let (here, gone) = (Owner::new(home, runs), Owner::new(home, &runs.join("removed")));
        here.note(A);
        gone.note(B);
        // Not a name of ours, whatever a record says.
        for image in ["base", "run-x/../../y", "run-x.y"] {
            gone.note(image);
        }
        assert_eq!(count(home), 2);
        assert_eq!(pruned(home), [B], "C has no note");
        assert_eq!((pruned(home), count(home)), (Vec::new(), 1));
        // Of another run with the same settings.
        gone.note(B);
        gone.forget(B);
        gone.forget(A);
        assert_eq!((pruned(home), count(home)), (Vec::new(), 1));
        here.forget(A);
        assert_eq!(count(home), 0);
    }

    #[test]
    fn a_disk_that_is_not_mounted_is_not_gone() {
        let (home, disk) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        Owner::new(home.path(), &disk.path().join("out/run")).note(A);
        assert_eq!((pruned(home.path()), count(home.path())), (Vec::new(), 1));
        fs::create_dir(disk.path().join("out")).unwrap();
        assert_eq!((pruned(home.path()), count(home.path())), (vec![A.to_owned()], 0));
    }

    #[test]
    fn an_image_stays_for_the_last_copy_of_its_run() {
        let (home, runs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let home = home.path();
        let paths = ["one", "two"].map(|name| runs.path().join(name));
        let [one, two] = paths.each_ref().map(|path| {
            fs::create_dir(path).unwrap();
            Owner::new(home, path)
        });
        one.note(A);
        assert!(!one.shares(A));
        two.note(A);
        assert!(one.shares(A) && two.shares(A) && !one.shares(B));
        fs::remove_dir(&paths[1]).unwrap();
        assert!(!one.shares(A) && two.shares(A));
        assert_eq!((pruned(home), count(home)), (Vec::new(), 1));
        fs::remove_dir(&paths[0]).unwrap();
        assert_eq!((pruned(home), count(home)), (vec![A.to_owned()], 0));
    }

    #[test]
    fn a_note_of_an_earlier_version_names_no_image() {
        let (home, runs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(notes(home.path())).unwrap();
        let note = notes(home.path()).join("00000000000000aa");
        fs::write(&note, runs.path().join("gone").as_os_str().as_bytes()).unwrap();
        assert_eq!((pruned(home.path()), note.exists()), (Vec::new(), false));
    }
}
