//! The files that a turn changed: what the runtime reports now, compared with what it reported before.
//!
//! Reports come from a sandbox. They are bounded, and what is recorded of them is bounded again, for a turn and for the
//! episode.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    ops::ControlFlow::{self, Continue},
    path::{Path, PathBuf},
};

use model::Model;
use sandbox::{Sandbox, Written, WrittenFile, WrittenState};
use tracing::debug;
use trajectory::{Changed, ChangedFile, Event, FileChange, Outcome};

use super::{Episode, FileChanges, until_stopped};
use crate::Journal;

/// Files that are recorded of a turn.
const MAX_FILES: usize = 100;
/// Bytes of texts that are recorded of a turn.
const MAX_TURN_BYTES: usize = 128 << 10;
/// Bytes of texts that are recorded of an episode.
const MAX_EPISODE_BYTES: usize = 4 << 20;
/// Longest path that is recorded, in bytes.
const MAX_PATH: usize = 1000;
/// Names of the directory that are remembered.
const MAX_TOP: usize = 5000;
/// Files that are remembered. Reports that are incomplete may differ in what they leave out.
const MAX_SEEN: usize = 20_000;

impl<M: Model, S: Sandbox, J: Journal<S>> Episode<'_, M, S, J> {
    /// Notes the files that are there before the first turn.
    pub(super) async fn note_files(&mut self) -> ControlFlow<Outcome> {
        if let Some(written) = self.written().await? {
            self.tracker.begin(written);
            // Of files of the image the runtime does not say whether they were there.
            let listing = self.sandbox.list(&self.settings.tools.workdir);
            let listing = until_stopped(listing, &self.cancel, self.deadline).await?;
            self.tracker.top = listing
                .ok()
                .filter(|entries| entries.len() <= MAX_TOP)
                .map(|entries| entries.into_iter().map(|entry| entry.name).collect());
        }
        Continue(())
    }

    /// Records the files that changed since the turn before.
    pub(super) async fn record_changes(&mut self) -> ControlFlow<Outcome> {
        let Some(written) = self.written().await? else { return Continue(()) };
        let (mut files, incomplete) = self.tracker.update(written);
        if files.is_empty() && !incomplete {
            return Continue(());
        }
        let top = &self.settings.tools.workdir;
        for file in &mut files {
            file.path = top.join(&file.path).to_string_lossy().into_owned();
        }
        let turn = self.spent.turns;
        let directory = top.to_string_lossy().into_owned();
        self.record(Event::Changed(Box::new(Changed { turn, directory, files, incomplete })))
    }

    /// What the runtime reports. A failure is not that of the episode: if the sandbox failed, its next request says so.
    async fn written(&mut self) -> ControlFlow<Outcome, Option<Written>> {
        if self.settings.changes == FileChanges::Ignored || self.tracker.is_off {
            return Continue(None);
        }
        let directory = &self.settings.tools.workdir;
        let asked = self.sandbox.written(directory, self.tracker.since);
        let written = match until_stopped(asked, &self.cancel, self.deadline).await? {
            Ok(written) => written,
            Err(error) => {
                debug!(%error, "the changed files are not known");
                return Continue(None);
            }
        };
        self.tracker.is_off = written.is_none();
        Continue(written)
    }
}

/// What is known of the files.
#[derive(Debug, Default)]
pub(super) struct Tracker {
    seen: HashMap<PathBuf, Seen>,
    /// The names in the directory when the episode began, where they are known.
    top: Option<HashSet<PathBuf>>,
    /// The latest change so far, by the clock of the files.
    since: u64,
    /// Bytes of texts that were recorded.
    recorded: usize,
    /// The runtime cannot tell.
    is_off: bool,
}

#[derive(Clone, Debug)]
struct Seen {
    state: WrittenState,
    size: u64,
    changed: u64,
    modified: u64,
    inode: u64,
    /// Of the content, where that is known.
    hash: Option<u64>,
    /// The text when the episode began, until it is recorded.
    before: Option<String>,
}

impl Seen {
    fn of(file: &WrittenFile, earlier: Option<&Self>) -> Self {
        let WrittenFile { state, size, changed, modified, inode, .. } = *file;
        let hash = file.content.as_ref().map(|content| {
            let mut hasher = DefaultHasher::new();
            content.hash(&mut hasher);
            hasher.finish()
        });
        let same = earlier.filter(|it| it.changed == changed && it.inode == inode);
        let hash = hash.or(same.and_then(|it| it.hash));
        Self { state, size, changed, modified, inode, hash, before: None }
    }

    /// Whether it has another content than before, as far as that can be told.
    fn differs(&self, earlier: &Self) -> bool {
        if self.state != earlier.state || self.size != earlier.size {
            return true;
        }
        match (self.hash, earlier.hash) {
            (Some(now), Some(before)) => now != before,
            _ => (self.modified, self.inode) != (earlier.modified, earlier.inode),
        }
    }
}

/// The text of a file, if it is text.
fn text(content: Option<Vec<u8>>) -> Option<String> {
    String::from_utf8(content?).ok().filter(|text| !text.contains('\0'))
}

impl Tracker {
    fn begin(&mut self, written: Written) {
        for file in written.files {
            self.since = self.since.max(file.changed);
            let mut seen = Seen::of(&file, None);
            seen.before = text(file.content);
            self.seen.insert(file.path, seen);
        }
    }

    /// Whether a file, or the directory it is in, was not there when the episode began.
    fn was_missing(&self, path: &Path) -> bool {
        let first = path.components().next().map(|it| PathBuf::from(it.as_os_str()));
        matches!((&self.top, first), (Some(top), Some(first)) if !top.contains(&first))
    }

    /// The files that differ from what was known, with paths below the directory, and whether some are missing.
    fn update(&mut self, written: Written) -> (Vec<ChangedFile>, bool) {
        let mut found: BTreeMap<PathBuf, ChangedFile> = BTreeMap::new();
        let mut gone: HashMap<PathBuf, Seen> = match written.complete {
            true => self.seen.clone(),
            false => HashMap::new(),
        };
        for file in written.files {
            self.since = self.since.max(file.changed);
            gone.remove(&file.path);
            let earlier = self.seen.get(&file.path);
            let mut seen = Seen::of(&file, earlier);
            let change = match (seen.state, earlier.map(|it| (it.state, seen.differs(it)))) {
                (_, Some((_, false))) => None,
                (WrittenState::Removed, _) => Some(FileChange::Deleted),
                (_, Some((WrittenState::Removed, _))) => Some(FileChange::Created),
                (_, None) if file.is_new || self.was_missing(&file.path) => {
                    Some(FileChange::Created)
                }
                _ => Some(FileChange::Modified),
            };
            let before = self.seen.get_mut(&file.path).and_then(|it| it.before.take());
            match change {
                Some(change) => {
                    let (size, text) = (seen.size, text(file.content));
                    let path = file.path.to_string_lossy().into_owned();
                    let changed = ChangedFile { path, change, size, text, before };
                    found.insert(file.path.clone(), changed);
                }
                None => seen.before = before,
            }
            self.seen.insert(file.path, seen);
        }
        for (path, _) in gone.iter().filter(|(_, seen)| seen.state != WrittenState::Removed) {
            let before = self.seen.remove(path).and_then(|seen| seen.before);
            let name = path.to_string_lossy().into_owned();
            let change = FileChange::Deleted;
            let changed = ChangedFile { path: name, change, before, ..ChangedFile::default() };
            found.insert(path.clone(), changed);
        }
        if self.seen.len() > MAX_SEEN {
            self.seen.clear();
        }
        let incomplete = !written.complete || found.len() > MAX_FILES;
        (self.within_bounds(found), incomplete)
    }

    /// The first files, and of their texts what there is room for.
    fn within_bounds(&mut self, found: BTreeMap<PathBuf, ChangedFile>) -> Vec<ChangedFile> {
        let mut room = MAX_TURN_BYTES.min(MAX_EPISODE_BYTES.saturating_sub(self.recorded));
        let mut keep = |text: Option<String>| {
            let text = text.filter(|text| text.len() <= room);
            room -= text.as_ref().map_or(0, String::len);
            self.recorded += text.as_ref().map_or(0, String::len);
            text
        };
        let short = |(path, _): &(PathBuf, ChangedFile)| is_short(path);
        let mut files: Vec<_> = found.into_iter().filter(short).take(MAX_FILES).collect();
        for (_, file) in &mut files {
            file.text = keep(file.text.take());
            file.before = keep(file.before.take());
        }
        files.into_iter().map(|(_, file)| file).collect()
    }
}

fn is_short(path: &Path) -> bool {
    path.as_os_str().len() <= MAX_PATH
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, changed: u64, content: &str) -> WrittenFile {
        WrittenFile {
            path: path.into(),
            state: WrittenState::File,
            size: content.len() as u64,
            changed,
            modified: changed,
            inode: 1,
            is_new: true,
            content: Some(content.as_bytes().to_vec()),
        }
    }

    fn report(files: &[WrittenFile]) -> Written {
        Written { files: files.to_vec(), complete: true }
    }

    fn begun(files: &[WrittenFile]) -> Tracker {
        let mut tracker = Tracker::default();
        tracker.begin(report(files));
        tracker
    }

    #[test]
    fn a_file_is_created_modified_and_deleted() {
        let mut tracker = begun(&[file("in.csv", 5, "a,b\n")]);
        let (found, incomplete) = tracker.update(report(&[file("in.csv", 5, "a,b\n")]));
        assert_eq!((found.len(), incomplete), (0, false));

        let new = [file("in.csv", 9, "a,c\n"), file("out/x", 8, "1\n")];
        let (found, _) = tracker.update(report(&new));
        assert_eq!(found[0].change, FileChange::Modified);
        assert_eq!(found[0].before.as_deref(), Some("a,b\n"));
        assert_eq!((found[1].change, found[1].text.as_deref()), (FileChange::Created, Some("1\n")));
        assert_eq!(tracker.since, 9);

        let (found, _) = tracker.update(report(&[file("in.csv", 12, "a,d\n")]));
        assert_eq!((found[0].path.as_str(), found[0].before.as_deref()), ("in.csv", None));
        assert_eq!((found[1].path.as_str(), found[1].change), ("out/x", FileChange::Deleted));

        let removed =
            WrittenFile { state: WrittenState::Removed, content: None, ..file("in.csv", 20, "") };
        let (found, _) = tracker.update(report(std::slice::from_ref(&removed)));
        assert_eq!(found[0].change, FileChange::Deleted);
        assert_eq!(tracker.update(report(&[removed])).0, []);
        let (found, _) = tracker.update(report(&[file("in.csv", 30, "again")]));
        assert_eq!(found[0].change, FileChange::Created);
    }

    #[test]
    fn a_file_that_may_have_been_in_the_image_is_not_called_new() {
        let unknown = WrittenFile { is_new: false, ..file("setup.py", 5, "x") };
        let mut tracker = begun(&[]);
        assert_eq!(tracker.update(report(&[unknown])).0[0].change, FileChange::Modified);
        tracker.top = Some(HashSet::from(["src".into()]));
        let below = |path: &str| WrittenFile { is_new: false, ..file(path, 6, "x") };
        let (found, _) = tracker.update(report(&[below("src/lib.rs"), below("new/lib.rs")]));
        assert_eq!(found[0].change, FileChange::Created);
        assert_eq!((found[2].path.as_str(), found[2].change), ("src/lib.rs", FileChange::Modified));
    }

    #[test]
    fn other_rights_are_not_a_change() {
        let mut tracker = begun(&[file("x", 5, "text")]);
        assert_eq!(tracker.update(report(&[file("x", 9, "text")])).0, []);
        // Too large to be read: judged by the time at which it was written.
        let large = WrittenFile { content: None, size: 1 << 20, ..file("y", 10, "") };
        assert_eq!(tracker.update(report(&[file("x", 9, "text"), large.clone()])).0.len(), 1);
        let touched = WrittenFile { changed: 11, ..large.clone() };
        assert_eq!(tracker.update(report(&[file("x", 9, "text"), touched])).0, []);
        let written = WrittenFile { changed: 12, modified: 12, ..large };
        let (found, _) = tracker.update(report(&[file("x", 9, "text"), written]));
        assert_eq!((found.len(), found[0].text.as_deref()), (1, None));
    }

    #[test]
    fn what_is_recorded_is_bounded() {
        let mut tracker = begun(&[]);
        let text = "x".repeat(30 << 10);
        let many: Vec<_> = (0..500).map(|i| file(&format!("f{i:04}"), 1, &text)).collect();
        let (found, incomplete) = tracker.update(report(&many));
        assert_eq!((found.len(), incomplete), (MAX_FILES, true));
        let bytes: usize =
            found.iter().filter_map(|file| file.text.as_ref()).map(String::len).sum();
        assert!(bytes > 0 && bytes <= MAX_TURN_BYTES, "{bytes}");
        for turn in 2..200 {
            tracker.update(report(&[file("f", turn, &format!("{turn}{text}"))]));
        }
        assert!(tracker.recorded <= MAX_EPISODE_BYTES, "{}", tracker.recorded);
        let (found, _) = tracker.update(report(&[file("f", 999, &format!("new{text}"))]));
        assert_eq!((found.len(), found[0].text.as_deref()), (1, None));
    }

    #[test]
    fn an_incomplete_report_deletes_nothing() {
        let mut tracker = begun(&[file("a", 1, "1"), file("b", 1, "2")]);
        let part = Written { files: vec![file("a", 1, "1")], complete: false };
        let (found, incomplete) = tracker.update(part);
        assert_eq!((found, incomplete), (vec![], true));
    }

    #[test]
    fn binary_files_are_named_only() {
        let mut tracker = begun(&[]);
        let binary = WrittenFile { content: Some(vec![0, 159, 146, 150]), ..file("b", 1, "1234") };
        let zero = WrittenFile { content: Some(b"a\0b".to_vec()), ..file("z", 1, "123") };
        let (found, _) = tracker.update(report(&[binary, zero]));
        assert_eq!(found.iter().filter(|file| file.text.is_none()).count(), 2);
    }
}
