//! The output folder: rows for training, rows for validation, a task, and a manifest.
//!
//! It appears complete or not at all, and depends neither on the time nor on the machine. Knows nothing of how rows are
//! generated.

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

/// The number of skipped items that are listed; the rest is only counted.
const LISTED: usize = 100;

/// The folder cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// The path exists.
    #[error("{path} already exists; choose another path, or remove it first")]
    Exists {
        /// The folder.
        path: PathBuf,
    },
    /// The path is a symbolic link.
    #[error("{path} is a link, and links are not followed; use its target")]
    Link {
        /// The link.
        path: PathBuf,
    },
    /// A file cannot be written.
    #[error("cannot write {path}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The callback cancelled the operation.
    #[error("cancelled")]
    Cancelled,
    /// There are no rows.
    #[error("no row is left: {why}")]
    Empty {
        /// How many were skipped, and why.
        why: String,
    },
}

impl FolderError {
    /// Whether the input is at fault, not the machine.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Exists { .. } | Self::Link { .. } | Self::Empty { .. })
    }
}

/// The progress of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Input files of this many bytes will be read.
    Reading(u64),
    /// This many more bytes were read.
    Read(u64),
    /// This many tasks will be generated.
    Generating(u64),
    /// This many more tasks were generated.
    Generated(u64),
    /// This many rows will be written.
    Writing(u64),
    /// This many more rows were written.
    Wrote(u64),
}

/// A callback on progress, which may cancel the operation.
pub type OnProgress<'a> = &'a dyn Fn(Progress) -> ControlFlow<()>;

/// Ignores progress.
pub fn ignore_progress(_: Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Reports progress; fails where the callback cancels.
pub(crate) fn report(on_progress: OnProgress<'_>, step: Progress) -> Result<(), FolderError> {
    match on_progress(step) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(FolderError::Cancelled),
    }
}

/// The contents of a folder and their origin.
#[derive(Clone, Debug, Serialize)]
pub struct Manifest {
    /// The format version.
    pub version: u32,
    /// The version of the program.
    pub program: &'static str,
    /// `prepare` or `synthesize`.
    pub made_by: &'static str,
    /// The random seed.
    pub seed: u64,
    /// All other settings.
    pub settings: Value,
    /// The licences of the inputs, as given.
    pub licences: Vec<String>,
    /// The input files.
    pub inputs: Vec<InputInfo>,
    /// The numbers of documents and rows.
    pub counts: Counts,
    /// The number of skipped items, by reason.
    pub left_out: BTreeMap<&'static str, u64>,
    /// The first skipped items.
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

/// Numbers of documents and rows.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Counts {
    /// Different documents.
    pub documents: u64,
    /// Training rows.
    pub train: u64,
    /// Validation rows.
    pub validation: u64,
    /// Rows with a demonstration.
    pub demonstrated: u64,
    /// Rows with fewer distractors than requested.
    pub fewer_distractors: u64,
    /// Rows of each kind, or of each input.
    pub subjects: BTreeMap<String, u64>,
    /// Rows of each level.
    pub levels: BTreeMap<String, u64>,
}

/// A skipped item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// The input file.
    pub file: String,
    /// The line of JSON lines, otherwise the index of the entry; from 1.
    pub line: u64,
    /// The cause.
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
    /// An empty manifest.
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

    /// Counts a skipped item, and lists it if it is one of the first.
    pub(crate) fn skip(&mut self, reason: &'static str, file: &str, line: u64, why: String) {
        *self.left_out.entry(reason).or_default() += 1;
        if self.left_out_first.len() < LISTED {
            self.left_out_first.push(LeftOut { file: file.to_owned(), line, why });
        }
    }

    /// A summary of what was skipped.
    pub fn losses(&self) -> String {
        let each = self.left_out.iter().map(|(reason, many)| format!("{many} {reason}"));
        let each = each.collect::<Vec<_>>().join(", ");
        if each.is_empty() { "nothing was skipped".to_owned() } else { each }
    }
}

/// A folder being written: in a temporary directory until it is finished, removed on drop otherwise.
#[derive(Debug)]
pub(crate) struct Folder {
    target: PathBuf,
    partial: PathBuf,
    finished: bool,
}

/// The two sets of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Partition {
    /// Training.
    Train,
    /// Validation.
    Validation,
}

impl Partition {
    fn file(self) -> &'static str {
        match self {
            Self::Train => "train.jsonl",
            Self::Validation => "validation.jsonl",
        }
    }
}

impl Folder {
    /// Checks that the target is new or an empty directory.
    pub(crate) fn check(target: &Path) -> Result<(), FolderError> {
        let exists = || FolderError::Exists { path: target.to_owned() };
        // Without a trailing slash, which would follow the link.
        if target.components().as_path().is_symlink() {
            return Err(FolderError::Link { path: target.to_owned() });
        }
        match fs::read_dir(target) {
            Ok(mut entries) => entries.next().map_or(Ok(()), |_| Err(exists())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => Err(exists()),
            Err(error) => Err(failed(target)(error)),
        }
    }

    /// Creates the temporary directory beside the target.
    pub(crate) fn create(target: &Path) -> Result<Self, FolderError> {
        Self::check(target)?;
        let name =
            target.file_name().ok_or_else(|| FolderError::Exists { path: target.to_owned() })?;
        let above = target.parent().unwrap_or(target);
        fs::create_dir_all(above).map_err(failed(above))?;
        let mut number = std::process::id();
        loop {
            let mut partial = name.to_owned();
            partial.push(format!(".partial-{number}"));
            let partial = target.with_file_name(partial);
            match fs::create_dir(&partial) {
                // It belongs to another process.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    number = number.wrapping_add(1);
                }
                draft => {
                    draft.map_err(failed(&partial))?;
                    return Ok(Self { target: target.to_owned(), partial, finished: false });
                }
            }
        }
    }

    /// Writes rows to the file of their partition.
    pub(crate) fn rows(
        &self,
        partition: Partition,
        rows: impl ExactSizeIterator<Item = Row>,
        manifest: &mut Manifest,
        on_progress: OnProgress<'_>,
    ) -> Result<(), FolderError> {
        let path = self.partial.join(partition.file());
        let mut out = BufWriter::new(File::create(&path).map_err(failed(&path))?);
        let (mut digest, mut bytes) = (Sha256::new(), 0);
        report(on_progress, Progress::Writing(rows.len() as u64))?;
        for row in rows {
            count(&mut manifest.counts, partition, &row);
            let mut line = serde_json::to_vec(&row).map_err(|error| failed(&path)(error.into()))?;
            line.push(b'\n');
            digest.update(&line);
            bytes += line.len() as u64;
            out.write_all(&line).map_err(failed(&path))?;
            report(on_progress, Progress::Wrote(1))?;
        }
        let file = out.into_inner().map_err(|error| failed(&path)(error.into_error()))?;
        file.sync_all().map_err(failed(&path))?;
        let sha256 = text::hex(&digest.finalize());
        manifest.files.insert(partition.file(), FileInfo { bytes, sha256 });
        Ok(())
    }

    /// Writes task and manifest, and renames the directory to the target.
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
        self.write("task.toml", task.as_bytes())?;
        let text = serde_json::to_string_pretty(&manifest)
            .map_err(|error| failed(&self.partial)(error.into()))?;
        self.write("manifest.json", format!("{text}\n").as_bytes())?;
        fs::rename(&self.partial, &self.target).map_err(failed(&self.target))?;
        self.finished = true;
        Ok(())
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), FolderError> {
        let path = self.partial.join(name);
        let write = |mut file: File| file.write_all(bytes).and_then(|()| file.sync_all());
        File::create(&path).and_then(write).map_err(failed(&path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.finished {
            // This process created it.
            let _ = fs::remove_dir_all(&self.partial);
        }
    }
}

/// The task of the rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task {
    pub(crate) turns: u32,
    pub(crate) tokens: u32,
}

impl Task {
    /// The general prompt set, so that what is learnt transfers to other tasks.
    fn toml(&self, manifest: &Manifest) -> String {
        let data = match manifest.counts.validation {
            0 => Partition::Train.file(),
            _ => Partition::Validation.file(),
        };
        let Self { turns, tokens } = self;
        format!(
            "# Measured on the rows that are not trained on. The task has the name of its folder.\n\
             data = \"{data}\"\n\n\
             [prompt]\nset = \"general\"\ninput_dir = \"{}\"\noutput_dir = \"{}\"\n\n\
             [grader]\nkind = \"context\"\n\n\
             [limits]\nturns = {turns}\ntokens = {tokens}\n",
            crate::INPUT_DIR,
            crate::OUTPUT_DIR,
        )
    }
}

fn count(counts: &mut Counts, partition: Partition, row: &Row) {
    match partition {
        Partition::Train => counts.train += 1,
        Partition::Validation => counts.validation += 1,
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
        let target = dir.path().join("new/target");
        let one = Folder::create(&target).unwrap();
        let other = Folder::create(&target).unwrap();
        assert_ne!(one.partial, other.partial);
        let (kept, elsewhere) = (one.partial.clone(), dir.path().join("elsewhere"));
        drop(one);
        fs::create_dir(&elsewhere).unwrap();
        symlink(&elsewhere, &kept).unwrap();
        let third = Folder::create(&target).unwrap();
        third.write("x", b"x").unwrap();
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
            for target in [link.clone(), link.join("")] {
                let error = Folder::create(&target).unwrap_err();
                assert!(error.is_usage() && error.to_string().contains("is a link"), "{error}");
            }
            fs::remove_file(&link).unwrap();
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
