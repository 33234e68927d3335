//! Descriptions of files in a sandbox, and reports of copies.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

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
    /// Size of the files it has written.
    pub disk: Option<ByteSize>,
}

/// Report of a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyReport {
    /// Number of regular files copied.
    pub files: u64,
    /// Their size in bytes.
    pub bytes: u64,
    /// Entries that were skipped.
    pub skipped: Vec<Skipped>,
    /// Links that lead out of the copied tree and were copied as they are, without what they lead to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outward_links: Vec<PathBuf>,
}

/// An entry that a copy skipped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Its path within the copied tree.
    pub path: PathBuf,
    /// The reason.
    pub why: String,
}
