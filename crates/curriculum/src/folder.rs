//! The folder a command makes: rows to train on, rows to validate with, a task, and a manifest of all of it.
//!
//! It appears whole or not at all, and nothing in it tells when or where it was made. Knows no way of making rows.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, BufWriter, Write},
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{Row, text};

/// So many things that were left out are named; the rest is counted.
const NAMED: usize = 100;

/// Why a folder cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// Something is there already.
    #[error("{path} is there already; name another place, or remove it first")]
    Exists {
        /// The folder.
        path: PathBuf,
    },
    /// A link is there.
    #[error("{path} is a link, and none is followed; name the place itself")]
    Link {
        /// The link.
        path: PathBuf,
    },
    /// The disk or its rights.
    #[error("cannot write {path}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// Whoever watches wants no more.
    #[error("cancelled")]
    Cancelled,
    /// No row is left to be written.
    #[error("no row is left: {why}")]
    Empty {
        /// What became of them.
        why: String,
    },
}

impl FolderError {
    /// Whether the input is at fault, rather than the machine.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Exists { .. } | Self::Link { .. } | Self::Empty { .. })
    }
}

/// How far a command has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Input files of so many bytes will be read.
    Reading(u64),
    /// So many more bytes are read.
    Read(u64),
    /// So many tasks will be made.
    Making(u64),
    /// So many more are made.
    Made(u64),
    /// So many rows will be written.
    Writing(u64),
    /// So many more rows are written.
    Wrote(u64),
}

/// Whoever is told how far a command has come, and may end it.
pub type Watch<'a> = &'a dyn Fn(Step) -> ControlFlow<()>;

/// Watches nothing.
pub fn unwatched(_: Step) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Tells how far it has come, and ends where nobody wants more.
pub(crate) fn tell(watch: Watch<'_>, step: Step) -> Result<(), FolderError> {
    match watch(step) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(FolderError::Cancelled),
    }
}

/// What is in a folder and where it comes from.
#[derive(Clone, Debug, Serialize)]
pub struct Manifest {
    /// The version of this description.
    pub version: u32,
    /// The version of the program.
    pub program: &'static str,
    /// `prepare` or `synthesize`.
    pub made_by: &'static str,
    /// The seed of everything.
    pub seed: u64,
    /// All other settings.
    pub settings: Value,
    /// The licences of the inputs, as they were given.
    pub licences: Vec<String>,
    /// The input files.
    pub inputs: Vec<InputInfo>,
    /// What was read and made.
    pub counts: Counts,
    /// How much was left out, by reason.
    pub left_out: BTreeMap<&'static str, u64>,
    /// The first of what was left out.
    pub left_out_first: Vec<LeftOut>,
    /// The files of the folder.
    pub files: BTreeMap<&'static str, FileInfo>,
}

/// An input file.
#[derive(Clone, Debug, Serialize)]
pub struct InputInfo {
    /// Its name, without its directory.
    pub file: String,
    /// Its size.
    pub bytes: u64,
    /// Its digest.
    pub sha256: String,
    /// Contexts read from it.
    pub contexts: u64,
    /// Questions read from it.
    pub questions: u64,
}

/// Numbers of things.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Counts {
    /// Different documents.
    pub documents: u64,
    /// Rows to train on.
    pub train: u64,
    /// Rows to validate with.
    pub validation: u64,
    /// Rows with a demonstration.
    pub demonstrated: u64,
    /// Rows with fewer documents of others than were asked for.
    pub fewer_distractors: u64,
    /// Rows of each kind, or of each input.
    pub subjects: BTreeMap<String, u64>,
    /// Rows of each level.
    pub levels: BTreeMap<String, u64>,
}

/// Something that was left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// The input file.
    pub file: String,
    /// The line of JSON lines, otherwise the place among the entries; from 1.
    pub line: u64,
    /// What is wrong with it.
    pub why: String,
}

/// A file of the folder.
#[derive(Clone, Debug, Serialize)]
pub struct FileInfo {
    /// Its size.
    pub bytes: u64,
    /// Its digest.
    pub sha256: String,
}

impl Manifest {
    /// One that counts nothing yet.
    pub(crate) fn new(made_by: &'static str, seed: u64, settings: Value) -> Self {
        Self {
            version: 1,
            program: env!("CARGO_PKG_VERSION"),
            made_by,
            seed,
            settings,
            licences: Vec::new(),
            inputs: Vec::new(),
            counts: Counts::default(),
            left_out: BTreeMap::new(),
            left_out_first: Vec::new(),
            files: BTreeMap::new(),
        }
    }

    /// Counts something that is left out, and names it if it is one of the first.
    pub(crate) fn leave_out(&mut self, reason: &'static str, file: &str, line: u64, why: String) {
        *self.left_out.entry(reason).or_default() += 1;
        if self.left_out_first.len() < NAMED {
            self.left_out_first.push(LeftOut { file: file.to_owned(), line, why });
        }
    }

    /// What was left out, in words.
    pub fn losses(&self) -> String {
        let each = self.left_out.iter().map(|(reason, many)| format!("{many} {reason}"));
        let each = each.collect::<Vec<_>>().join(", ");
        if each.is_empty() { "nothing was left out".to_owned() } else { each }
    }
}

/// A folder under way: beside its place until it is finished, gone if it never is.
#[derive(Debug)]
pub(crate) struct Folder {
    place: PathBuf,
    beside: PathBuf,
    done: bool,
}

/// Which rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// To train on.
    Train,
    /// To validate with.
    Validation,
}

impl Side {
    fn file(self) -> &'static str {
        match self {
            Self::Train => "train.jsonl",
            Self::Validation => "validation.jsonl",
        }
    }
}

impl Folder {
    /// Whether a folder may be made there. An empty directory may become one.
    pub(crate) fn check(place: &Path) -> Result<(), FolderError> {
        let exists = || FolderError::Exists { path: place.to_owned() };
        // Without the slash at its end, which would follow it.
        if place.components().as_path().is_symlink() {
            return Err(FolderError::Link { path: place.to_owned() });
        }
        match fs::read_dir(place) {
            Ok(mut entries) => entries.next().map_or(Ok(()), |_| Err(exists())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => Err(exists()),
            Err(error) => Err(failed(place)(error)),
        }
    }

    /// Begins one.
    pub(crate) fn begin(place: &Path) -> Result<Self, FolderError> {
        Self::check(place)?;
        let name =
            place.file_name().ok_or_else(|| FolderError::Exists { path: place.to_owned() })?;
        let above = place.parent().unwrap_or(place);
        fs::create_dir_all(above).map_err(failed(above))?;
        let mut number = std::process::id();
        loop {
            let mut partial = name.to_owned();
            partial.push(format!(".partial-{number}"));
            let beside = place.with_file_name(partial);
            match fs::create_dir(&beside) {
                // Somebody else's: nothing is written there.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    number = number.wrapping_add(1);
                }
                made => {
                    made.map_err(failed(&beside))?;
                    return Ok(Self { place: place.to_owned(), beside, done: false });
                }
            }
        }
    }

    /// Writes rows as they come.
    pub(crate) fn rows(
        &self,
        side: Side,
        rows: impl ExactSizeIterator<Item = Row>,
        manifest: &mut Manifest,
        watch: Watch<'_>,
    ) -> Result<(), FolderError> {
        let path = self.beside.join(side.file());
        let mut out = BufWriter::new(File::create(&path).map_err(failed(&path))?);
        let (mut digest, mut bytes) = (Sha256::new(), 0);
        tell(watch, Step::Writing(rows.len() as u64))?;
        for row in rows {
            count(&mut manifest.counts, side, &row);
            let mut line = serde_json::to_vec(&row).map_err(|error| failed(&path)(error.into()))?;
            line.push(b'\n');
            digest.update(&line);
            bytes += line.len() as u64;
            out.write_all(&line).map_err(failed(&path))?;
            tell(watch, Step::Wrote(1))?;
        }
        let file = out.into_inner().map_err(|error| failed(&path)(error.into_error()))?;
        file.sync_all().map_err(failed(&path))?;
        let sha256 = text::hex(&digest.finalize());
        manifest.files.insert(side.file(), FileInfo { bytes, sha256 });
        Ok(())
    }

    /// Adds task and manifest, and puts the folder in its place.
    pub(crate) fn finish(
        mut self,
        task: &Task,
        manifest: &mut Manifest,
    ) -> Result<(), FolderError> {
        if manifest.counts.train == 0 {
            return Err(FolderError::Empty { why: manifest.losses() });
        }
        let task = task.toml(manifest);
        let sha256 = text::sha256(task.as_bytes());
        manifest.files.insert("task.toml", FileInfo { bytes: task.len() as u64, sha256 });
        self.keep("task.toml", task.as_bytes())?;
        let text = serde_json::to_string_pretty(&manifest)
            .map_err(|error| failed(&self.beside)(error.into()))?;
        self.keep("manifest.json", format!("{text}\n").as_bytes())?;
        fs::rename(&self.beside, &self.place).map_err(failed(&self.place))?;
        self.done = true;
        Ok(())
    }

    fn keep(&self, name: &str, bytes: &[u8]) -> Result<(), FolderError> {
        let path = self.beside.join(name);
        let write = |mut file: File| file.write_all(bytes).and_then(|()| file.sync_all());
        File::create(&path).and_then(write).map_err(failed(&path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.done {
            // It was not there before: nobody else's work is lost.
            let _ = fs::remove_dir_all(&self.beside);
        }
    }
}

/// The task that goes with the rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task {
    pub(crate) name: &'static str,
    pub(crate) turns: u32,
    pub(crate) tokens: u32,
}

impl Task {
    /// The words around a problem are those of any task, so that what is learnt here holds elsewhere.
    fn toml(&self, manifest: &Manifest) -> String {
        let data = match manifest.counts.validation {
            0 => Side::Train.file(),
            _ => Side::Validation.file(),
        };
        let Self { name, turns, tokens } = self;
        format!(
            "# Measured on the rows that are not trained on.\n\
             name = \"{name}\"\ndata = \"{data}\"\n\n\
             [prompt]\nset = \"general\"\ninput_dir = \"{}\"\noutput_dir = \"{}\"\n\n\
             [grader]\nkind = \"context\"\n\n\
             [limits]\nturns = {turns}\ntokens = {tokens}\n",
            crate::INPUT_DIR,
            crate::OUTPUT_DIR,
        )
    }
}

fn count(counts: &mut Counts, side: Side, row: &Row) {
    match side {
        Side::Train => counts.train += 1,
        Side::Validation => counts.validation += 1,
    }
    counts.demonstrated += u64::from(!row.demonstration.is_empty());
    *counts.subjects.entry(row.subject.clone()).or_default() += 1;
    if let Some(level) = row.level {
        *counts.levels.entry(level.to_string()).or_default() += 1;
    }
}

fn failed(path: &Path) -> impl Fn(io::Error) -> FolderError + '_ {
    |source| FolderError::Io { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn nothing_is_written_where_something_is() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("new/place");
        let one = Folder::begin(&place).unwrap();
        let other = Folder::begin(&place).unwrap();
        assert_ne!(one.beside, other.beside);
        let (kept, elsewhere) = (one.beside.clone(), dir.path().join("elsewhere"));
        drop(one);
        fs::create_dir(&elsewhere).unwrap();
        symlink(&elsewhere, &kept).unwrap();
        let third = Folder::begin(&place).unwrap();
        third.keep("x", b"x").unwrap();
        drop((other, third));
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
        assert_eq!(fs::read_dir(dir.path().join("new")).unwrap().count(), 1);
    }

    #[test]
    fn links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (full, link) = (dir.path().join("full"), dir.path().join("link"));
        fs::create_dir(&full).unwrap();
        for target in [full.as_path(), Path::new("/nowhere")] {
            symlink(target, &link).unwrap();
            for place in [link.clone(), link.join("")] {
                let error = Folder::begin(&place).unwrap_err();
                assert!(error.is_usage() && error.to_string().contains("is a link"), "{error}");
            }
            fs::remove_file(&link).unwrap();
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
