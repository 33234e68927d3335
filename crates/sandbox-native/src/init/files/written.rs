//! The files that were written below a directory: read from the upper directories of overlays, which hold nothing else. The
//! tree is a stranger's, so entries, depth, bytes and time are bounded.

use std::{
    ffi::{CStr, OsStr},
    fs::{self, File},
    io::{self, Read},
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStrExt, fs::MetadataExt},
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::fs::{AtFlags, Dir, FileType, Mode, Stat, openat, statat};
use sandbox::{
    MAX_WRITTEN, MAX_WRITTEN_CONTENT, MAX_WRITTEN_CONTENTS, NOT_REPORTED, Written, WrittenFile,
    WrittenState,
};
use serde::{Deserialize, Serialize};

use super::layer::{DIRECTORY, hides_all, open_regular};
use crate::wire::WirePath;

/// Longest report in bytes: all contents, and entries with paths of usual length.
pub(crate) const MAX_REPORT: u64 = 1 << 20;
/// Bytes of all paths, so that a report stays below that.
const MAX_PATHS: usize = 512 << 10;
/// Directories are not looked into beyond this depth: each takes a descriptor.
const MAX_DEPTH: usize = 32;
/// Entries that are looked at.
const MAX_VISITED: usize = 10_000;
/// Time that a report takes at most, but for a last step.
const MAX_TIME: Duration = Duration::from_millis(8);
/// Steps between two looks at the clock.
const STEPS: usize = 32;

#[derive(Debug, Serialize, Deserialize)]
struct WireWritten {
    files: Vec<WireFile>,
    complete: bool,
}

/// Path, state, size, changed, modified, inode, is_new, content.
type WireFile = (WirePath, WrittenState, u64, u64, u64, u64, bool, Option<Vec<u8>>);

/// The report about a directory, as it is sent. `uppers` are the writable directories, each with its mount point.
pub(super) fn report(
    directory: &Path,
    since: u64,
    uppers: &[(&Path, &OwnedFd)],
) -> io::Result<Vec<u8>> {
    let real = fs::canonicalize(directory)?;
    let mut walk = Walk {
        seen: real.clone(),
        since,
        files: Vec::new(),
        complete: true,
        visited: 0,
        paths: 0,
        contents: 0,
        end: Instant::now() + MAX_TIME,
    };
    let inner = real.strip_prefix("/").unwrap_or(&real);
    let of = uppers.iter().filter(|(target, _)| inner.starts_with(target));
    let of = of.max_by_key(|(target, _)| target.components().count());
    if let Some((target, upper)) = of
        && let Some(top) = below(upper, inner.strip_prefix(target).unwrap_or(inner))?
    {
        walk.entries(&top, Path::new(""), is_new(&top, &real), 0);
    }
    let sent = WireWritten { files: walk.files, complete: walk.complete };
    postcard::to_stdvec(&sent).map_err(io::Error::other)
}

/// Whether the image certainly has no directory in the place of one that was written: it is marked so, or the mounted one has
/// the links of a directory of its own. Those that lie over others have one link.
fn is_new(dir: &OwnedFd, mounted: &Path) -> bool {
    let of_its_own = |meta: fs::Metadata| meta.is_dir() && meta.nlink() > 1;
    hides_all(dir) || fs::symlink_metadata(mounted).is_ok_and(of_its_own)
}

/// Opens a directory of an upper directory. `None` if nothing was written there.
fn below(upper: &OwnedFd, path: &Path) -> io::Result<Option<OwnedFd>> {
    let mut at = openat(upper, ".", DIRECTORY, Mode::empty())?;
    for name in path {
        match openat(&at, name, DIRECTORY, Mode::empty()) {
            Ok(next) => at = next,
            Err(_) => return Ok(None),
        }
    }
    Ok(Some(at))
}

struct Walk {
    /// The directory as the sandbox sees it.
    seen: PathBuf,
    since: u64,
    files: Vec<WireFile>,
    complete: bool,
    visited: usize,
    paths: usize,
    contents: u64,
    end: Instant,
}

impl Walk {
    /// Adds the files of a directory, which is called `at` below the top. What cannot be read is left out.
    fn entries(&mut self, dir: &OwnedFd, at: &Path, new: bool, depth: usize) {
        let opened = openat(dir, ".", DIRECTORY, Mode::empty()).and_then(Dir::new);
        let (Ok(mut entries), true) = (opened, depth <= MAX_DEPTH) else {
            self.complete = false;
            return;
        };
        while let Some(entry) = entries.read() {
            let Ok(entry) = entry else {
                self.complete = false;
                return;
            };
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            if !self.may_go_on() {
                self.complete = false;
                return;
            }
            if let Ok(stat) = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
                self.entry(dir, at, (name, &stat), new, depth);
            }
        }
    }

    fn may_go_on(&mut self) -> bool {
        self.visited += 1;
        self.visited <= MAX_VISITED
            && self.files.len() < MAX_WRITTEN
            && self.paths < MAX_PATHS
            && (!self.visited.is_multiple_of(STEPS) || Instant::now() < self.end)
    }

    fn entry(
        &mut self,
        dir: &OwnedFd,
        at: &Path,
        (name, stat): (&CStr, &Stat),
        new: bool,
        depth: usize,
    ) {
        let path = at.join(OsStr::from_bytes(name.to_bytes()));
        let state = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let left_out = NOT_REPORTED.iter().any(|it| it.as_bytes() == name.to_bytes());
                match openat(dir, name, DIRECTORY, Mode::empty()) {
                    _ if left_out => {}
                    Ok(inner) => {
                        let new = new || is_new(&inner, &self.seen.join(&path));
                        self.entries(&inner, &path, new, depth + 1);
                    }
                    Err(_) => self.complete = false,
                }
                return;
            }
            FileType::RegularFile => WrittenState::File,
            FileType::Symlink => WrittenState::Link,
            FileType::CharacterDevice if stat.st_rdev == 0 => WrittenState::Removed,
            _ => return,
        };
        let nanoseconds = |seconds: i64, rest: u64| {
            u64::try_from(seconds).unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(rest)
        };
        let changed = nanoseconds(stat.st_ctime, stat.st_ctime_nsec);
        let modified = nanoseconds(stat.st_mtime, stat.st_mtime_nsec);
        let is_file = state == WrittenState::File;
        let size = if is_file { u64::try_from(stat.st_size).unwrap_or(0) } else { 0 };
        let fits = size <= MAX_WRITTEN_CONTENT && self.contents + size <= MAX_WRITTEN_CONTENTS;
        let content =
            (is_file && changed >= self.since && fits).then(|| content(dir, name)).flatten();
        self.contents += content.as_ref().map_or(0, |content| content.len() as u64);
        self.paths += path.as_os_str().len();
        let path = WirePath::from(path.as_path());
        self.files.push((path, state, size, changed, modified, stat.st_ino, new, content));
    }
}

/// The content of a small file. `None` if it is not what it was a moment ago.
fn content(dir: &OwnedFd, name: &CStr) -> Option<Vec<u8>> {
    let file = File::from(open_regular(dir, name).ok()?);
    let mut bytes = Vec::new();
    file.take(MAX_WRITTEN_CONTENT + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= MAX_WRITTEN_CONTENT).then_some(bytes)
}

/// Decodes what [`report`] sent. It comes from a sandbox: its bounds are checked again, and paths must lie below the
/// directory.
pub(crate) fn read_written(bytes: &[u8]) -> io::Result<Written> {
    let sent: WireWritten = postcard::from_bytes(bytes).map_err(io::Error::other)?;
    if sent.files.len() > MAX_WRITTEN {
        return Err(io::Error::other("the report has too many files"));
    }
    let mut files = Vec::with_capacity(sent.files.len());
    for (path, state, size, changed, modified, inode, is_new, content) in sent.files {
        let path = PathBuf::from(path);
        let plain = path.components().all(|it| matches!(it, std::path::Component::Normal(_)));
        if !plain || path.as_os_str().is_empty() {
            return Err(io::Error::other("the report has a path that leads elsewhere"));
        }
        files.push(WrittenFile { path, state, size, changed, modified, inode, is_new, content });
    }
    Ok(Written { files, complete: sent.complete })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    fn opened(dir: &Path) -> OwnedFd {
        openat(rustix::fs::CWD, dir, DIRECTORY, Mode::empty()).unwrap()
    }

    fn reported(dir: &Path, since: u64) -> Written {
        let upper = opened(Path::new("/"));
        let upper = upper.as_fd().try_clone_to_owned().unwrap();
        read_written(&report(dir, since, &[(Path::new(""), &upper)]).unwrap()).unwrap()
    }

    #[test]
    fn files_are_reported_with_small_contents() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        fs::create_dir_all(dir.path().join(".git")).unwrap();
        fs::write(dir.path().join("a/b/small"), "text").unwrap();
        fs::write(dir.path().join("large"), vec![b'x'; 40_000]).unwrap();
        fs::write(dir.path().join(".git/HEAD"), "not this").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("link")).unwrap();
        let written = reported(dir.path(), 0);
        let mut names: Vec<_> = written.files.iter().map(|it| it.path.to_str().unwrap()).collect();
        names.sort_unstable();
        assert_eq!(names, ["a/b/small", "large", "link"]);
        assert!(written.complete);
        for file in &written.files {
            let content = file.content.as_deref();
            assert_eq!(content, file.path.ends_with("small").then_some(&b"text"[..]), "{file:?}");
        }
        let later = reported(dir.path(), u64::MAX);
        assert!(later.files.iter().all(|file| file.content.is_none()));
        assert_eq!(later.files.len(), 3);
    }

    #[test]
    fn large_and_deep_trees_are_cut() {
        let dir = tempfile::tempdir().unwrap();
        let mut deep = dir.path().join("d");
        for _ in 0..40 {
            deep.push("d");
        }
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("x"), "").unwrap();
        assert!(!reported(dir.path(), 0).complete);
        fs::remove_dir_all(dir.path().join("d")).unwrap();
        for i in 0..MAX_WRITTEN + 10 {
            fs::write(dir.path().join(i.to_string()), "x").unwrap();
        }
        let written = reported(dir.path(), 0);
        assert!(!written.complete && written.files.len() <= MAX_WRITTEN);
        assert!(report(dir.path(), 0, &[]).unwrap().len() < 10);
    }

    #[test]
    fn paths_that_lead_elsewhere_are_refused() {
        for path in ["", "/etc/passwd", "../x", "a/../../x"] {
            let file =
                (WirePath::from(Path::new(path)), WrittenState::File, 0, 0, 0, 0, true, None);
            let sent = WireWritten { files: vec![file], complete: true };
            let bytes = postcard::to_stdvec(&sent).unwrap();
            assert!(read_written(&bytes).is_err(), "{path}");
        }
        assert!(read_written(b"nonsense").is_err());
    }
}
