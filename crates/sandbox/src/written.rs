//! The files that a sandbox has written below a directory, as its runtime sees them. Bounded, whatever the tree is like.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Most entries of a report.
pub const MAX_WRITTEN: usize = 2000;
/// Largest file whose content is part of a report, in bytes.
pub const MAX_WRITTEN_CONTENT: u64 = 32 << 10;
/// Most bytes of all contents of a report.
pub const MAX_WRITTEN_CONTENTS: u64 = 256 << 10;

/// Directories that are left out of a report: caches and stores of tools, which change often and say little.
pub const NOT_REPORTED: [&str; 5] = [".git", "__pycache__", "node_modules", ".cache", ".venv"];

/// What a sandbox has written below a directory since it was created.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// At most [`MAX_WRITTEN`] files, in any order.
    pub files: Vec<WrittenFile>,
    /// Whether nothing was left out for lack of room or time.
    pub complete: bool,
}

/// A file that was written or removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenFile {
    /// Its path below the directory.
    pub path: PathBuf,
    /// What it is now.
    pub state: WrittenState,
    /// Size in bytes of a regular file, otherwise 0.
    pub size: u64,
    /// When it last changed in any way, in nanoseconds since 1970. Programs cannot set it.
    pub changed: u64,
    /// When its content was last written, in nanoseconds since 1970. Programs can set it.
    pub modified: u64,
    /// Its number in the file system.
    pub inode: u64,
    /// Whether the image certainly had no file of that name.
    pub is_new: bool,
    /// The content of a small regular file that changed since the moment of the request, while there is room.
    pub content: Option<Vec<u8>>,
}

/// What a written file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WrittenState {
    /// A regular file.
    File,
    /// A symbolic link.
    Link,
    /// A file of the image that was removed.
    Removed,
}
