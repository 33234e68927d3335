//! Descriptions of files in a sandbox, and reports of copies.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize, Serializer};

use crate::ByteSize;

/// One entry of a directory inside a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The name within its directory.
    pub name: PathBuf,
    /// Its kind. Links are not followed.
    pub kind: EntryKind,
    /// Size in bytes of a regular file, otherwise 0.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
}

/// Kind of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A device, socket or pipe.
    Other,
}

/// What a sandbox uses at one moment; `None` where it is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Memory of all its processes together, including files in memory.
    pub memory: Option<ByteSize>,
    /// The part of that memory which caches files, and is freed when it is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<ByteSize>,
    /// Size of the files it has written.
    pub disk: Option<ByteSize>,
    /// Time that processors have worked for it since it was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<std::time::Duration>,
}

/// Report of a copy.
///
/// A tree may have millions of entries that are not copied: at most 1,000 are listed, with at most 512 KiB of paths, and
/// the others counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyReport {
    /// Number of regular files copied.
    pub files: u64,
    /// Their size in bytes.
    pub bytes: u64,
    /// Entries that were skipped.
    pub skipped: Vec<Skipped>,
    /// Number of entries that were skipped and are not listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_skipped: u64,
    /// Links that lead out of the copied tree and were copied as they are, without what they lead to.
    #[serde(default, skip_serializing_if = "Vec::is_empty", serialize_with = "lossy_paths")]
    pub outward_links: Vec<PathBuf>,
    /// Number of such links that are not listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_outward_links: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Most entries of a kind that a report lists.
const MAX_LISTED: usize = 1000;
/// Most bytes of their paths and reasons.
const MAX_LISTED_BYTES: usize = 512 << 10;

impl CopyReport {
    /// Adds an entry that was skipped: to the list, or to the count where the list is full.
    pub fn skip(&mut self, path: PathBuf, why: impl Into<String>) {
        let entry = Skipped { path, why: why.into() };
        let bytes = |entry: &Skipped| entry.path.as_os_str().len() + entry.why.len();
        add(&mut self.skipped, &mut self.more_skipped, entry, bytes);
    }

    /// Adds a link that leads out of the tree: to the list, or to the count where the list is full.
    pub fn note_outward_link(&mut self, path: PathBuf) {
        let bytes = |path: &PathBuf| path.as_os_str().len();
        add(&mut self.outward_links, &mut self.more_outward_links, path, bytes);
    }

    /// Number of entries that were skipped, listed or not.
    pub fn skipped_count(&self) -> u64 {
        self.more_skipped.saturating_add(self.skipped.len() as u64)
    }

    /// Number of links that lead out of the tree, listed or not.
    pub fn outward_link_count(&self) -> u64 {
        self.more_outward_links.saturating_add(self.outward_links.len() as u64)
    }
}

/// Adds an entry to a list that is not full, else counts it. Once one was counted, so are all that follow.
fn add<T>(list: &mut Vec<T>, more: &mut u64, entry: T, bytes: impl Fn(&T) -> usize) {
    let fits = |list: &[T]| {
        list.len() < MAX_LISTED
            && list.iter().map(&bytes).sum::<usize>() + bytes(&entry) <= MAX_LISTED_BYTES
    };
    if *more == 0 && fits(list) {
        list.push(entry);
    } else {
        *more = more.saturating_add(1);
    }
}

/// An entry that a copy skipped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Its path within the copied tree.
    #[serde(serialize_with = "lossy_path")]
    pub path: PathBuf,
    /// The reason.
    pub why: String,
}

/// Writes a path, with what is not UTF-8 replaced: a command chooses the names of its files, and none may prevent a report.
pub fn lossy_path<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

/// Like [`lossy_path`], for several.
pub fn lossy_paths<S: Serializer>(paths: &[PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(paths.iter().map(|path| path.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_of_millions_stays_small() {
        let mut report = CopyReport::default();
        for i in 0..5000 {
            report.skip(format!("f{i}").into(), "a socket");
            report.note_outward_link(format!("l{i}").into());
        }
        assert_eq!((report.skipped.len(), report.more_skipped), (MAX_LISTED, 4000));
        assert_eq!((report.skipped_count(), report.outward_link_count()), (5000, 5000));
        assert_eq!(report.skipped[999].path, PathBuf::from("f999"));

        let mut long = CopyReport::default();
        for _ in 0..300 {
            long.skip("d/".repeat(2000).into(), "a socket");
        }
        long.skip("x".into(), "a socket");
        let listed: usize = long.skipped.iter().map(|entry| entry.path.as_os_str().len()).sum();
        assert!(listed <= MAX_LISTED_BYTES && long.skipped_count() == 301, "{listed}");
        assert!(long.skipped.iter().all(|entry| entry.path != *"x"));
    }

    #[test]
    fn reports_of_older_versions_can_be_read() {
        let old = r#"{"files":1,"bytes":2,"skipped":[{"path":"p","why":"a socket"}]}"#;
        let report: CopyReport = serde_json::from_str(old).unwrap();
        assert_eq!((report.skipped_count(), report.outward_link_count()), (1, 0));
        assert_eq!(serde_json::to_string(&report).unwrap(), old);
    }
}
