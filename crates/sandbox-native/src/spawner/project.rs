//! Project quotas for what sandboxes write: a disk limit that the kernel enforces on a file system they share.
//!
//! A project is a number. All that a sandbox writes belongs to the project of its directory, and the kernel lets nobody in
//! another user namespace change that. Which numbers are taken is recorded by the kernel alone: it counts the files of every
//! project, the sandbox's directory among them. So no two programs have the same one, whatever their home, and a number is
//! free again once the last file is removed, even if the program that took it was killed.

use std::{
    fs::{self, File},
    hash::{BuildHasher, RandomState},
    io,
    os::fd::AsFd,
    path::Path,
};

use super::Storage;
use crate::sys::quota::{self, Held, ProjectLimits};

/// The numbers that sandboxes take: far above those that administrators and container runtimes assign.
const FIRST: u32 = 1 << 30;
const COUNT: u32 = 1 << 30;
/// Tries to find a number that no other program takes meanwhile.
const TRIES: u32 = 64;
/// Bytes of the limit for each file, and the least number of files.
const PER_FILE: u64 = 8192;
const FEWEST_FILES: u64 = 4096;
/// What the directories of an empty sandbox take is not missing from its limit.
const OVERHEAD: ProjectLimits = ProjectLimits { bytes: 256 << 10, files: 128 };

/// What is missing for project quotas on the file system of this directory; `None` if nothing is.
pub(crate) fn missing(privileged: bool, storage: Storage, state: &Path) -> Option<String> {
    if !privileged {
        return Some("only root may set project quotas".into());
    }
    if storage == Storage::Memory {
        return Some("the state directory's file system cannot hold the files of sandboxes".into());
    }
    let Ok(dir) = File::open(state) else {
        return Some("the state directory is not readable".into());
    };
    if !quota::is_enforced(dir.as_fd()) {
        return Some(advice(rustix::fs::fstatfs(&dir).map_or(0, |stat| stat.f_type)).into());
    }
    let error = quota::held(dir.as_fd(), FIRST).err()?;
    Some(format!("the kernel refuses to read project quotas: {error}"))
}

/// How to get project quotas on a file system of this type.
fn advice(kind: i64) -> &'static str {
    const EXT4: i64 = 0xef53;
    const XFS: i64 = 0x5846_5342;
    match kind {
        EXT4 => {
            "the state directory's file system, an ext4, is not mounted with prjquota; while it is not mounted, \
             `tune2fs -O project -Q prjquota DEVICE` prepares it"
        }
        XFS => "the state directory's file system, an XFS, is not mounted with prjquota",
        _ => "the state directory's file system has none; ext4 and XFS have, mounted with prjquota",
    }
}

/// Makes a new, empty directory a project of its own with this limit on bytes.
pub(crate) fn limit(dir: &Path, bytes: u64) -> io::Result<()> {
    let dir = File::open(dir)?;
    let project = claim(&dir)?;
    let limits = ProjectLimits {
        bytes: bytes.saturating_add(OVERHEAD.bytes),
        files: (bytes / PER_FILE).max(FEWEST_FILES) + OVERHEAD.files,
    };
    quota::limit(dir.as_fd(), project, limits)
}

/// Finds a number that nothing belongs to, and makes the directory belong to it.
fn claim(dir: &File) -> io::Result<u32> {
    let random = RandomState::new();
    for i in 0..TRIES {
        let project = FIRST + (random.hash_one(i) as u32) % COUNT;
        if quota::held(dir.as_fd(), project)? != Held::default() {
            continue;
        }
        quota::set_project(dir.as_fd(), Some(project))?;
        // Another program may have chosen the same number just now. Then both see two files and try others.
        if quota::held(dir.as_fd(), project)?.files == 1 {
            return Ok(project);
        }
        quota::set_project(dir.as_fd(), None)?;
    }
    Err(io::Error::other("no project number is free"))
}

/// Lifts the limit of a sandbox's directory, if it is a project: nothing writes to it any more. Must precede the removal of its
/// files: with the last of them its number is free for others, and their limit must not be lifted.
pub(crate) fn release(dir: &Path) {
    let Ok(dir) = File::open(dir) else { return };
    if let Ok(Some(project)) = quota::inherited_project(dir.as_fd())
        && (FIRST..FIRST + COUNT).contains(&project)
    {
        let _ = quota::limit(dir.as_fd(), project, ProjectLimits::default());
    }
}

/// The same for all directories of a dead spawner.
pub(crate) fn release_all(run_dir: &Path) {
    let entries = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten();
    for dir in entries(&run_dir.join("state")) {
        release(&dir.path());
    }
    let trash = |name: &std::ffi::OsStr| name.as_encoded_bytes().starts_with(b"trash-");
    for dir in entries(run_dir).filter(|entry| trash(&entry.file_name())) {
        release(&dir.path());
    }
}
