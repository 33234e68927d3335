//! Operations with the rights of a user of the sandbox, for callers that speak for remote clients.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Read, Seek, Write},
    os::{
        fd::OwnedFd,
        unix::{
            ffi::OsStringExt,
            fs::{DirBuilderExt, MetadataExt},
        },
    },
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, CWD, Gid, Mode, OFlags, Uid, chownat, fstat, mkdirat, openat},
    io::Errno,
};
use sandbox::{EntryKind, FileInfo, Identity, STORED_ATTRIBUTES, archive::OnStep};
use serde::{Deserialize, Serialize};

use super::{Outcome, Owner, WorkerFds, open, watch, write};
use crate::{
    init::{Report, command},
    wire::WirePath,
};

/// An operation.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Operation {
    /// Send a description over the attached stream.
    Describe(WirePath),
    /// Send the descriptions of a directory's entries over the attached stream.
    List { path: WirePath, depth: u32 },
    /// Create a directory and those above it, and describe it.
    CreateDirectory(WirePath),
    /// Move a file or directory, and describe it.
    Move { from: WirePath, to: WirePath },
    /// Remove a file or a directory with all it contains.
    Remove(WirePath),
    /// Add a user with a group and a home directory, if there is none of this name.
    AddUser { name: String, uid: u32, home: WirePath },
    /// Open a regular file for reading.
    Open(WirePath),
    /// Write the second attached stream, in frames, to a file, set attributes, and describe it over the first.
    Write { path: WirePath, attributes: Vec<(String, String)> },
    /// Send changes below a directory over the attached stream until it is closed.
    Watch { path: WirePath, recursive: bool },
}

/// A description as it travels.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WireInfo {
    path: WirePath,
    kind: EntryKind,
    size: u64,
    mode: u32,
    uid: u32,
    gid: u32,
    modified: (i64, u32),
    target: Option<WirePath>,
    attributes: Vec<(String, String)>,
}

impl From<WireInfo> for FileInfo {
    fn from(info: WireInfo) -> Self {
        Self {
            path: info.path.into(),
            kind: info.kind,
            size: info.size,
            mode: info.mode,
            uid: info.uid,
            gid: info.gid,
            modified: info.modified,
            target: info.target.map(Into::into),
            attributes: info.attributes,
        }
    }
}

/// Most bytes of a file's attributes, names included.
const MAX_ATTRIBUTES: usize = 4096;
/// Most entries of one listing.
const MAX_LISTED: usize = 100_000;

/// In a worker: performs an operation.
pub(super) fn work(
    user: &Identity,
    operation: Operation,
    fds: &mut WorkerFds,
    on_step: OnStep<'_>,
) -> io::Result<Outcome> {
    let made = match &operation {
        Operation::CreateDirectory(path) => make_directories(&PathBuf::from(path.clone()), user),
        Operation::Write { path, .. } => {
            PathBuf::from(path.clone()).parent().is_some_and(|above| make_directories(above, user))
        }
        _ => false,
    };
    command::become_user(user)?;
    let infos = match operation {
        Operation::Describe(path) => vec![describe(&PathBuf::from(path))?],
        Operation::List { path, depth } => list(&PathBuf::from(path), depth, on_step)?,
        Operation::CreateDirectory(path) if made => vec![describe(&PathBuf::from(path))?],
        Operation::CreateDirectory(path) => vec![create_directory(&PathBuf::from(path))?],
        Operation::Move { from, to } => vec![rename(&from.into(), &to.into())?],
        Operation::Remove(path) => {
            remove(&PathBuf::from(path), on_step)?;
            Vec::new()
        }
        Operation::AddUser { name, uid, home } => {
            add_user(&name, uid, &PathBuf::from(home), on_step)?;
            Vec::new()
        }
        Operation::Open(path) => return open(&PathBuf::from(path)).map(Outcome::Opened),
        Operation::Write { path, attributes } => {
            let reply = fds.stream()?;
            let mut content =
                Framed { stream: io::BufReader::new(fds.stream()?), left: 0, ended: false };
            let path = PathBuf::from(path);
            // A file of somebody else that the user may replace becomes the user's.
            let owner = if user.uid == 0 { Owner::Same } else { Owner::Writer };
            write(&path, &mut content, owner, on_step)?;
            set_attributes(&path, &attributes)?;
            send(reply, &[describe(&path)?])?;
            return Ok(Outcome::Done(Report::default()));
        }
        Operation::Watch { path, recursive } => {
            watch::watch(&PathBuf::from(path), recursive, &fds.stream()?)?;
            return Ok(Outcome::Done(Report::default()));
        }
    };
    send(fds.stream()?, &infos)?;
    Ok(Outcome::Done(Report::default()))
}

/// Connects to a port on the loopback address.
pub(super) fn connect(port: u16) -> io::Result<OwnedFd> {
    let timeout = std::time::Duration::from_secs(5);
    let v4 = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    let v6 = std::net::SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, port));
    let connected = std::net::TcpStream::connect_timeout(&v4, timeout)
        .or_else(|error| std::net::TcpStream::connect_timeout(&v6, timeout).map_err(|_| error));
    connected.map(OwnedFd::from)
}

/// A stream in frames, each preceded by its length; an empty one is the last. A stream that was cut off is an error, so
/// that no file is replaced by a part of another.
struct Framed<R> {
    stream: R,
    left: u32,
    /// The last frame was read; nothing follows, however often it is asked for.
    ended: bool,
}

impl<R: Read> Read for Framed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.ended {
            return Ok(0);
        }
        if self.left == 0 {
            let mut length = [0; 4];
            self.stream.read_exact(&mut length)?;
            self.left = u32::from_le_bytes(length);
            self.ended = self.left == 0;
        }
        let most = buffer.len().min(self.left as usize);
        if most == 0 {
            return Ok(0);
        }
        match self.stream.read(&mut buffer[..most])? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            n => {
                self.left -= u32::try_from(n).map_err(io::Error::other)?;
                Ok(n)
            }
        }
    }
}

fn send(mut stream: File, infos: &[WireInfo]) -> io::Result<()> {
    stream.write_all(&postcard::to_stdvec(infos).map_err(io::Error::other)?)
}

/// Describes what a path leads to; a link that leads nowhere is described itself.
fn describe(path: &Path) -> io::Result<WireInfo> {
    let own = fs::symlink_metadata(path)?;
    let meta = match own.is_symlink() {
        true => fs::metadata(path).unwrap_or_else(|_| own.clone()),
        false => own.clone(),
    };
    info(path, &own, &meta)
}

fn info(path: &Path, own: &fs::Metadata, meta: &fs::Metadata) -> io::Result<WireInfo> {
    let target = match own.is_symlink() {
        true => Some(fs::canonicalize(path).or_else(|_| fs::read_link(path))?),
        false => None,
    };
    let kind = match meta {
        meta if meta.is_dir() => EntryKind::Directory,
        meta if meta.is_symlink() => EntryKind::Link,
        meta if meta.is_file() => EntryKind::File,
        _ => EntryKind::Other,
    };
    Ok(WireInfo {
        path: path.into(),
        kind,
        size: meta.len(),
        mode: meta.mode() & 0o7777,
        uid: meta.uid(),
        gid: meta.gid(),
        modified: (meta.mtime(), u32::try_from(meta.mtime_nsec()).unwrap_or(0)),
        target: target.as_deref().map(WirePath::from),
        attributes: if meta.is_file() { attributes(path) } else { Vec::new() },
    })
}

/// Lists a directory, breadth first. Directories behind links are not entered.
fn list(top: &Path, depth: u32, on_step: OnStep<'_>) -> io::Result<Vec<WireInfo>> {
    let mut found = Vec::new();
    let mut level = vec![top.to_owned()];
    for below in (0..depth.max(1)).rev() {
        let mut next = Vec::new();
        for dir in &level {
            let entries = match fs::read_dir(dir) {
                Ok(entries) => entries,
                // Below the top, a directory that cannot be read is listed without its entries.
                Err(_) if dir != top => continue,
                Err(error) => return Err(error),
            };
            for entry in entries.flatten() {
                on_step()?;
                let path = entry.path();
                let Ok(own) = fs::symlink_metadata(&path) else { continue };
                let meta = fs::metadata(&path).unwrap_or_else(|_| own.clone());
                let Ok(info) = info(&path, &own, &meta) else { continue };
                if found.len() == MAX_LISTED {
                    return Err(io::Error::other(format!("more than {MAX_LISTED} entries")));
                }
                found.push(info);
                if below > 0 && own.is_dir() {
                    next.push(path);
                }
            }
        }
        level = next;
        if level.is_empty() {
            break;
        }
    }
    found.sort_by(|a, b| PathBuf::from(a.path.clone()).cmp(&PathBuf::from(b.path.clone())));
    Ok(found)
}

/// As root: makes directories that are missing on a path, for a user who may not, as the protocol's clients expect it: they
/// upload as `user` to directories such as `/tests`. The user owns what is made. Whether the last one was made.
///
/// Only in directories that belong to root and nobody else may write to, so that nothing there can be replaced meanwhile, and
/// not behind links: whoever made a link on the way must not choose where a directory of theirs appears. Whatever else is
/// missing the user makes, or is refused.
fn make_directories(path: &Path, user: &Identity) -> bool {
    user.uid != 0 && try_make_directories(path, user).unwrap_or(false)
}

fn try_make_directories(path: &Path, user: &Identity) -> io::Result<bool> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at = openat(CWD, "/", flags, Mode::empty())?;
    let mut made = false;
    for part in path.components() {
        let name = match part {
            Component::RootDir | Component::CurDir => continue,
            Component::Normal(name) => name,
            Component::ParentDir | Component::Prefix(_) => return Ok(false),
        };
        at = match openat(&at, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => {
                let above = fstat(&at)?;
                // Others may enter it, and only root may write to it.
                if above.st_uid != 0 || above.st_mode & 0o023 != 0o001 {
                    return Ok(false);
                }
                mkdirat(&at, name, Mode::from_raw_mode(0o755))?;
                let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
                chownat(&at, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
                made = true;
                openat(&at, name, flags, Mode::empty())?
            }
            opened => {
                made = false;
                opened?
            }
        };
    }
    Ok(made)
}

fn create_directory(path: &Path) -> io::Result<WireInfo> {
    if let Ok(meta) = fs::metadata(path) {
        let errno = if meta.is_dir() { libc::EEXIST } else { libc::ENOTDIR };
        return Err(io::Error::from_raw_os_error(errno));
    }
    fs::DirBuilder::new().recursive(true).mode(0o755).create(path)?;
    describe(path)
}

fn rename(from: &PathBuf, to: &PathBuf) -> io::Result<WireInfo> {
    fs::symlink_metadata(from)?;
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent)?;
    }
    match fs::rename(from, to) {
        // Between the overlays of one sandbox; a command such as `mv` copies then.
        Err(error) if error.raw_os_error() == Some(libc::EXDEV) => copy_and_remove(from, to)?,
        other => other?,
    }
    describe(to)
}

/// Moves a regular file to another file system.
fn copy_and_remove(from: &Path, to: &Path) -> io::Result<()> {
    if !fs::symlink_metadata(from)?.is_file() {
        return Err(io::Error::from_raw_os_error(libc::EXDEV));
    }
    fs::copy(from, to)?;
    fs::remove_file(from)
}

/// Deepest directory that is removed with all above it.
const MAX_DEPTH: u32 = 512;

fn remove(path: &Path, on_step: OnStep<'_>) -> io::Result<()> {
    match remove_tree(path, MAX_DEPTH, on_step) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn remove_tree(path: &Path, depth: u32, on_step: OnStep<'_>) -> io::Result<()> {
    on_step()?;
    if !fs::symlink_metadata(path)?.is_dir() {
        return fs::remove_file(path);
    }
    let below = depth.checked_sub(1).ok_or_else(|| io::Error::other("it is nested too deeply"))?;
    for entry in fs::read_dir(path)? {
        remove_tree(&entry?.path(), below, on_step)?;
    }
    fs::remove_dir(path)
}

fn add_user(name: &str, uid: u32, home: &Path, on_step: OnStep<'_>) -> io::Result<()> {
    if name.is_empty() || name.contains([':', '\n']) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let place = home.to_str().filter(|home| !home.contains([':', '\n']));
    let place = place.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
    let line = format!("{name}:x:{uid}:{uid}::{place}:/bin/bash");
    let added = add_line("/etc/passwd", &line, on_step)?;
    if !added {
        return Ok(());
    }
    add_line("/etc/group", &format!("{name}:x:{uid}:"), on_step)?;
    fs::create_dir_all(home)?;
    std::os::unix::fs::lchown(home, Some(uid), Some(uid))
}

/// Adds a line to a list of users or groups, unless there is one of the same name. Whether it was added.
fn add_line(file: &str, line: &str, on_step: OnStep<'_>) -> io::Result<bool> {
    let path = Path::new(file);
    let mut text = Vec::new();
    if path.exists() {
        File::from(open(path)?).take(MAX_LIST + 1).read_to_end(&mut text)?;
        if text.len() as u64 > MAX_LIST {
            // Written back, it would be cut off.
            return Err(io::Error::other(format!("{file} is longer than {MAX_LIST} bytes")));
        }
    }
    let name = |line: &[u8]| line.split(|byte| *byte == b':').next().map(<[u8]>::to_vec);
    if text.split(|byte| *byte == b'\n').any(|old| name(old) == name(line.as_bytes())) {
        return Ok(false);
    }
    if text.last().is_some_and(|last| *last != b'\n') {
        text.push(b'\n');
    }
    text.extend_from_slice(line.as_bytes());
    text.push(b'\n');
    let mut content = crate::wire::memory_file(&text)?;
    content.rewind()?;
    write(path, &mut content, Owner::Same, on_step)?;
    Ok(true)
}

/// Most bytes of a list of users.
const MAX_LIST: u64 = 1 << 20;

/// Our attributes of a file; none where the file system has none.
fn attributes(path: &Path) -> Vec<(String, String)> {
    let mut buffer = vec![0u8; 64 << 10];
    let Ok(length) = rustix::fs::listxattr(path, &mut buffer[..]) else { return Vec::new() };
    let names = buffer[..length].split(|byte| *byte == 0).map(|name| name.to_vec());
    let ours = names.filter(|name| name.starts_with(STORED_ATTRIBUTES.as_bytes()));
    ours.filter_map(|name| {
        let key = String::from_utf8(name[STORED_ATTRIBUTES.len()..].to_vec()).ok()?;
        let mut value = vec![0u8; MAX_ATTRIBUTES];
        let length = rustix::fs::getxattr(path, OsString::from_vec(name), &mut value[..]).ok()?;
        value.truncate(length);
        Some((key, String::from_utf8(value).ok()?))
    })
    .collect()
}

/// Replaces our attributes of a file.
fn set_attributes(path: &Path, wanted: &[(String, String)]) -> io::Result<()> {
    for (key, _) in attributes(path) {
        rustix::fs::removexattr(path, format!("{STORED_ATTRIBUTES}{key}"))?;
    }
    let flags = rustix::fs::XattrFlags::empty();
    for (key, value) in wanted {
        rustix::fs::setxattr(path, format!("{STORED_ATTRIBUTES}{key}"), value.as_bytes(), flags)?;
    }
    Ok(())
}
