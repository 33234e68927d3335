//! Files inside a sandbox, as callers see them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// One entry of a directory inside a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The name within its directory.
    pub name: PathBuf,
    /// What it is. Links are not followed.
    pub kind: EntryKind,
    /// Size in bytes, for files.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
}

/// What a directory entry is.
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

/// What a copy of a tree did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyReport {
    /// Regular files copied.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What was left out, and why.
    pub skipped: Vec<Skipped>,
}

/// Something a copy left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Its path within the copied tree.
    pub path: PathBuf,
    /// Why it was left out.
    pub why: String,
}
