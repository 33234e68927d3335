//! Watches a directory for changes, in a worker that runs until nobody reads the reports.

use std::{
    collections::HashMap,
    ffi::OsStr,
    fs::{self, File},
    io::{self, Write},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::inotify::{self, ReadFlags, WatchFlags},
};
use sandbox::FileEventKind;
use serde::{Deserialize, Serialize};

use super::{CREATING, REPLACING};
use crate::wire::{WireError, WirePath};

/// A report of the watcher: first whether it watches, then changes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum WireChange {
    Watching,
    Failed(WireError),
    Changed { name: WirePath, kind: FileEventKind },
}

/// Most directories watched at once.
const MAX_DIRECTORIES: usize = 8192;

struct Watcher {
    inotify: OwnedFd,
    top: PathBuf,
    recursive: bool,
    /// The watched directories, by the kernel's number.
    directories: HashMap<i32, PathBuf>,
    /// Files that our own workers are writing and have just renamed: whether they are new, by the kernel's cookie.
    renamed: HashMap<u32, bool>,
}

/// Watches until the stream's reader is gone.
pub(super) fn watch(path: &Path, recursive: bool, stream: &File) -> io::Result<()> {
    match Watcher::start(path, recursive) {
        Ok(watcher) => watcher.run(stream),
        Err(error) => report(stream, &WireChange::Failed(WireError::from(&error))),
    }
}

/// Sends a report, preceded by its length.
fn report(mut stream: &File, change: &WireChange) -> io::Result<()> {
    let body = postcard::to_stdvec(change).map_err(io::Error::other)?;
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_le_bytes(), body.as_slice()].concat())
}

impl Watcher {
    fn start(path: &Path, recursive: bool) -> io::Result<Self> {
        if !fs::metadata(path)?.is_dir() {
            return Err(io::Error::from_raw_os_error(libc::ENOTDIR));
        }
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let (inotify, top) = (inotify::init(flags)?, path.to_owned());
        let mut watcher =
            Self { inotify, top, recursive, directories: HashMap::new(), renamed: HashMap::new() };
        watcher.add(path, &mut |_| Ok(()))?;
        Ok(watcher)
    }

    fn run(mut self, stream: &File) -> io::Result<()> {
        report(stream, &WireChange::Watching)?;
        loop {
            let mut fds = [
                PollFd::new(&self.inotify, PollFlags::IN),
                PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::empty()),
            ];
            match poll(&mut fds, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if !fds[1].revents().is_empty() {
                return Ok(());
            }
            self.forward(stream)?;
        }
    }

    /// Watches a directory, and those in it where that is wanted. `seen` gets what is in a new directory already.
    fn add(
        &mut self,
        dir: &Path,
        seen: &mut impl FnMut(&Path) -> io::Result<()>,
    ) -> io::Result<()> {
        let flags = WatchFlags::CREATE
            | WatchFlags::MODIFY
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::ATTRIB
            | WatchFlags::ONLYDIR;
        if self.directories.len() >= MAX_DIRECTORIES {
            return Err(io::Error::other(format!("more than {MAX_DIRECTORIES} directories")));
        }
        let number = inotify::add_watch(&self.inotify, dir, flags)?;
        self.directories.insert(number, dir.to_owned());
        if !self.recursive {
            return Ok(());
        }
        for entry in fs::read_dir(dir)?.flatten() {
            seen(&entry.path())?;
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                match self.add(&entry.path(), seen) {
                    // Removed meanwhile, or not ours to read.
                    Err(error)
                        if matches!(
                            error.kind(),
                            io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
                        ) => {}
                    other => other?,
                }
            }
        }
        Ok(())
    }

    /// Forwards the events that have arrived.
    fn forward(&mut self, stream: &File) -> io::Result<()> {
        let mut buffer = [MaybeUninit::<u8>::uninit(); 16 << 10];
        let mut events = Vec::new();
        {
            let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
            loop {
                match reader.next() {
                    Ok(event) => {
                        let name = event.file_name().map(|name| name.to_bytes().to_vec());
                        events.push((event.wd(), event.events(), event.cookie(), name));
                    }
                    Err(rustix::io::Errno::AGAIN) => break,
                    Err(error) => return Err(error.into()),
                }
                // A busy directory must not keep the reader from being asked whether it still listens.
                if events.len() >= 1024 && reader.is_buffer_empty() {
                    break;
                }
            }
        }
        for (number, what, cookie, name) in events {
            if what.contains(ReadFlags::IGNORED) {
                self.directories.remove(&number);
                continue;
            }
            let (Some(dir), Some(name)) = (self.directories.get(&number), name) else { continue };
            let path = dir.join(OsStr::from_bytes(&name));
            let Some(kind) = kind_of(what) else { continue };
            if name.starts_with(REPLACING.as_bytes()) {
                // A file that is being written is not reported before it has its name.
                if kind == FileEventKind::Renamed {
                    self.renamed.clear();
                    self.renamed.insert(cookie, name.starts_with(CREATING.as_bytes()));
                }
                continue;
            }
            let top = self.top.clone();
            let changed = |path: &Path, kind| {
                let name = path.strip_prefix(&top).unwrap_or(path);
                report(stream, &WireChange::Changed { name: name.into(), kind })
            };
            if let Some(is_new) = self.renamed.remove(&cookie).filter(|_| cookie != 0) {
                if is_new {
                    changed(&path, FileEventKind::Created)?;
                    changed(&path, FileEventKind::AttributesChanged)?;
                }
                changed(&path, FileEventKind::Written)?;
                continue;
            }
            changed(&path, kind)?;
            let is_new = kind == FileEventKind::Created && what.contains(ReadFlags::ISDIR);
            if self.recursive && is_new {
                // What was created in it before it was watched would be missed otherwise.
                let _ = self.add(&path, &mut |path| changed(path, FileEventKind::Created));
            }
        }
        Ok(())
    }
}

fn kind_of(what: ReadFlags) -> Option<FileEventKind> {
    let any = |flags| what.intersects(flags);
    Some(if any(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
        FileEventKind::Created
    } else if any(ReadFlags::MODIFY) {
        FileEventKind::Written
    } else if any(ReadFlags::DELETE) {
        FileEventKind::Removed
    } else if any(ReadFlags::MOVED_FROM) {
        FileEventKind::Renamed
    } else if any(ReadFlags::ATTRIB) {
        FileEventKind::AttributesChanged
    } else {
        return None;
    })
}
