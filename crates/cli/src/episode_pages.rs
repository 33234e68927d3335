//! Pages of episodes for `replay` and `report`: gathers what a run directory holds besides the events, and writes the
//! pages of many attempts at once. The crate `report` renders them.
//!
//! A directory may come from a stranger: no link in it is followed, so that no file from elsewhere gets into a page.

use std::{
    fs::{self, File, OpenOptions},
    io::Read,
    num::NonZeroUsize,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use anyhow::Context;
use report::transcript::{self, Episode, EpisodeFile, IndexRow, MAX_PICTURE, page_name};
use results::{AttemptKey, ResultsDir, Run};
use rustix::fs::OFlags;
use serde::Deserialize;
use trajectory::Trajectory;

use crate::{
    commands::replay::record::{self, Recorded},
    exit::{UsageError, describe},
    settings::recorded::{RecordedSandbox, RecordedSettings},
};

/// Directory of pages in a results directory and beside a report.
pub(crate) const EPISODES: &str = "episodes";

/// Files listed, and all that are counted.
const MAX_FILES: usize = 300;
const MAX_COUNTED: usize = 100_000;
/// Directories below each other.
const MAX_DEPTH: usize = 32;
/// Files whose start is shown, and bytes of each.
const MAX_PREVIEWS: usize = 40;
const MAX_PREVIEW: u64 = 16 << 10;
/// Images that are read; the page shows as many as fit.
const MAX_IMAGES: usize = 40;
/// Problems that are listed.
const MAX_PROBLEMS: usize = 5;

/// Renders the page of an episode.
pub(crate) fn page(recorded: &Recorded) -> String {
    let (files, file_count) = match &recorded.run {
        Some(run) => files(&run.files()),
        None => (Vec::new(), 0),
    };
    let answer = files.iter().find(|file| file.path == "answer.txt");
    let facts = facts(&recorded.trajectory);
    transcript::page(&Episode {
        trajectory: &recorded.trajectory,
        recorded: recorded.has_events,
        notices: &recorded.notices,
        pictures: &recorded.pictures,
        outcome: &recorded.outcome().unwrap_or_default(),
        attempt: recorded.attempt.as_ref(),
        judgement: recorded.judgement.as_ref(),
        answer: answer.and_then(|file| file.preview.as_deref()),
        files: &files,
        file_count,
        facts: &facts,
        source: &source(recorded),
    })
}

/// A directory inside that of a run. A symbolic link in a run from elsewhere could point anywhere.
pub(crate) fn own_directory(run: &Path, name: &str) -> Result<PathBuf, UsageError> {
    let directory = run.join(name);
    match directory.is_symlink() {
        true => Err(UsageError(format!(
            "{} is a symbolic link; remove it, or choose another directory",
            directory.display()
        ))),
        false => Ok(directory),
    }
}

/// Where the pages of attempts are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pages<'a> {
    pub(crate) results: &'a ResultsDir,
    pub(crate) directory: &'a Path,
}

/// What was written.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub(crate) pages: usize,
    /// What could not be read: the first reasons.
    pub(crate) problems: Vec<String>,
    rows: Vec<(usize, IndexRow)>,
}

impl Written {
    fn problem(&mut self, problem: String) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(problem);
        }
    }
}

impl Pages<'_> {
    /// Writes the pages of attempts, on all processors. An attempt that cannot be read gets no page, and is a problem; a
    /// trajectory that cannot be read is one too, and its page says so.
    pub(crate) fn write(&self, keys: &[AttemptKey]) -> anyhow::Result<Written> {
        fs::create_dir_all(self.directory).with_context(|| self.cannot_write())?;
        let run = self.results.run().ok().flatten();
        let (next, written) = (AtomicUsize::new(0), Mutex::new(Ok(Written::default())));
        let work = || {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(key) = keys.get(at) else { return };
                let page = self.write_one(key, run.as_ref());
                let mut written = written.lock().unwrap_or_else(PoisonError::into_inner);
                match (written.as_mut(), page) {
                    (Ok(written), Ok((row, problem))) => {
                        problem.into_iter().for_each(|problem| written.problem(problem));
                        written.pages += usize::from(row.is_some());
                        written.rows.extend(row.map(|row| (at, row)));
                    }
                    (Ok(_), Err(error)) => *written = Err(error),
                    (Err(_), _) => return,
                }
            }
        };
        let workers = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        thread::scope(|scope| {
            (1..workers.min(keys.len())).for_each(|_| drop(scope.spawn(work)));
            work();
        });
        written.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, with a page that lists them.
    pub(crate) fn write_with_index(&self, keys: &[AttemptKey]) -> anyhow::Result<Written> {
        let mut written = self.write(keys)?;
        let mut rows = std::mem::take(&mut written.rows);
        rows.sort_by_key(|(at, _)| *at);
        let rows: Vec<IndexRow> = rows.into_iter().map(|(_, row)| row).collect();
        let path = fs::canonicalize(self.results.path()).unwrap_or_default();
        let title = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let file = self.directory.join("index.html");
        let index = transcript::index(&title, &rows);
        atomic_file::write(file, index).with_context(|| self.cannot_write())?;
        Ok(written)
    }

    fn write_one(
        &self,
        key: &AttemptKey,
        run: Option<&Run>,
    ) -> anyhow::Result<(Option<IndexRow>, Option<String>)> {
        let attempt = match self.results.attempt(key) {
            Ok(Some(attempt)) => attempt,
            Ok(None) => return Ok((None, None)),
            Err(error) => return Ok((None, Some(describe(&error.into())))),
        };
        let attempt = record::current(run, attempt);
        let (recorded, problem) = Recorded::of_attempt(self.results, attempt);
        let name = page_name(key);
        let path = self.directory.join(&name);
        atomic_file::write(&path, page(&recorded)).with_context(|| self.cannot_write())?;
        let outcome = recorded.outcome().unwrap_or_default();
        let row = recorded.attempt.map(|attempt| IndexRow::new(&attempt, outcome, name));
        Ok((row, problem))
    }

    fn cannot_write(&self) -> String {
        format!("cannot write pages to {}", self.directory.display())
    }
}

/// Where the complete record is: relative, because pages are moved and shared together with it.
fn source(recorded: &Recorded) -> String {
    let path = match &recorded.attempt {
        Some(attempt) => ResultsDir::new("").trajectory_path(&attempt.key),
        None => recorded.source.file_name().unwrap_or_default().into(),
    };
    path.to_string_lossy().into_owned()
}

/// The sandbox and the input, as recorded. The input is named only: a record may name any file of this machine.
fn facts(trajectory: &Trajectory) -> Vec<(&'static str, String)> {
    let Some(settings) = trajectory.metadata.get("settings") else { return Vec::new() };
    let run = RecordedSettings::read(settings);
    let spec = match &run {
        Some(RecordedSettings { sandbox: RecordedSandbox { spec: Some(spec) }, .. }) => {
            Some(spec.clone())
        }
        // As attempts record it.
        _ => settings.get("sandbox").and_then(|spec| sandbox::Spec::deserialize(spec).ok()),
    };
    let mut facts = Vec::new();
    if let Some(spec) = spec {
        facts.push(("Sandbox", format!("image {}, network {}", spec.image, spec.network)));
    }
    if let Some(input) = run.and_then(|run| run.input) {
        facts.push(("Input", input.to_string_lossy().into_owned()));
    }
    facts
}

/// The files below a directory, sorted, with the start of short texts; and the number of all.
fn files(root: &Path) -> (Vec<EpisodeFile>, usize) {
    let mut found = Vec::new();
    if root.symlink_metadata().is_ok_and(|about| about.is_dir()) {
        walk(root, Path::new(""), 0, &mut found);
    }
    found.sort();
    let count = found.len();
    let (mut previews, mut images) = (0, 0);
    let files = found.into_iter().take(MAX_FILES).map(|path| {
        let about = root.join(&path).symlink_metadata();
        let size = about.map(|about| about.len()).unwrap_or_default();
        let preview = (previews < MAX_PREVIEWS).then(|| start_of(&root.join(&path))).flatten();
        previews += usize::from(preview.is_some());
        let image = match preview {
            None if images < MAX_IMAGES => image_of(&root.join(&path)),
            _ => None,
        };
        images += usize::from(image.is_some());
        EpisodeFile { path: path.to_string_lossy().into_owned(), size, preview, image }
    });
    (files.collect(), count)
}

fn walk(root: &Path, below: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(root.join(below)).into_iter().flatten().flatten() {
        if found.len() >= MAX_COUNTED {
            return;
        }
        let path = below.join(entry.file_name());
        // The type of a link is that of the link.
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && depth < MAX_DEPTH => walk(root, &path, depth + 1, found),
            _ => found.push(path),
        }
    }
}

/// Opens a regular file, not through a link.
fn open(path: &Path) -> Option<File> {
    let careful = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(careful.bits().cast_signed()).open(path).ok()?;
    file.metadata().ok()?.is_file().then_some(file)
}

/// An image that a page can show; none of anything else.
fn image_of(path: &Path) -> Option<Vec<u8>> {
    let file = open(path)?;
    if file.metadata().ok()?.len() > MAX_PICTURE {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(MAX_PICTURE).read_to_end(&mut bytes).ok()?;
    transcript::media_type(&bytes).map(|_| bytes)
}

/// The start of a text file; none of anything else.
fn start_of(path: &Path) -> Option<String> {
    let file = open(path)?;
    let mut bytes = Vec::new();
    file.take(MAX_PREVIEW).read_to_end(&mut bytes).ok()?;
    let text = match std::str::from_utf8(&bytes) {
        Ok(text) => text,
        // A character may be cut at the end.
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()?
        }
        Err(_) => return None,
    };
    (!text.contains('\0')).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_are_listed_without_following_links() {
        let dir = tempfile::tempdir().unwrap();
        let (root, secret) = (dir.path().join("files"), dir.path().join("secret"));
        fs::create_dir_all(root.join("sub")).unwrap();
        fs::write(&secret, "key").unwrap();
        fs::write(root.join("answer.txt"), "42").unwrap();
        fs::write(root.join("sub/binary"), [0, 159, 146]).unwrap();
        symlink(&secret, root.join("link")).unwrap();
        symlink(dir.path(), root.join("sub/up")).unwrap();
        let (found, count) = files(&root);
        let shown: Vec<(&str, Option<&str>)> =
            found.iter().map(|file| (file.path.as_str(), file.preview.as_deref())).collect();
        let expected =
            [("answer.txt", Some("42")), ("link", None), ("sub/binary", None), ("sub/up", None)];
        assert_eq!((shown, count), (expected.to_vec(), 4));
        // Nor is the directory itself a link.
        symlink(dir.path(), dir.path().join("other")).unwrap();
        assert_eq!(files(&dir.path().join("other")).1, 0);
    }

    #[test]
    fn a_preview_ends_between_characters() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("long");
        fs::write(&path, format!("x{}", "é".repeat(20_000))).unwrap();
        let start = start_of(&path).unwrap();
        assert_eq!(start.len(), (MAX_PREVIEW as usize) - 1);
    }
}
