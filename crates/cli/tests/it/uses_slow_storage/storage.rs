//! Storage as clusters have it for homes: a FUSE file system that passes the files, directories and links of a directory
//! through, but has neither extended attributes nor sockets, named pipes and devices, and on demand no locks.
//!
//! Speaks the kernel's protocol itself, version 7.31, as much of it as this needs. Numbers and layouts are those of
//! `linux/fuse.h`.

use std::{
    collections::HashMap,
    ffi::{CString, OsStr},
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::{
            ffi::{OsStrExt, OsStringExt},
            fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink},
        },
    },
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustix::{
    fs::{AtFlags, Gid, Mode, OFlags, Uid},
    io::Errno,
    mount::{MountFlags, UnmountFlags},
};

/// Most bytes of one write.
const MAX_WRITE: u32 = 128 << 10;
const ROOT: u64 = 1;

/// Whether files can be locked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Locks {
    /// By the kernel of this machine.
    Local,
    /// Every attempt fails, as on Lustre mounted without `flock`.
    Refused,
}

/// The mounted storage, unmounted when dropped.
pub(super) struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        // The threads end with the last use of it.
        let _ = rustix::mount::unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// Mounts the storage: what is in `backing` is seen at `at`.
pub(super) fn mount(backing: &Path, at: &Path, locks: Locks) -> io::Result<Mounted> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = Arc::new(rustix::fs::open(backing, flags, Mode::empty())?);
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse")?;
    let options = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other",
        device.as_raw_fd()
    );
    let options = CString::new(options)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount("storage", at, "fuse", flags, Some(options.as_c_str()))?;
    let storage = Arc::new(Storage {
        nodes: Mutex::new(HashMap::from([(ROOT, (root, 1))])),
        files: Mutex::default(),
        next: AtomicU64::new(1),
        locks,
    });
    for _ in 0..2 {
        let (storage, device) = (Arc::clone(&storage), device.try_clone()?);
        std::thread::spawn(move || storage.serve(&device));
    }
    Ok(Mounted(at.to_owned()))
}

struct Storage {
    /// What the kernel knows, by inode, and how often it looked it up.
    nodes: Mutex<HashMap<u64, (Arc<OwnedFd>, u64)>>,
    files: Mutex<HashMap<u64, Arc<File>>>,
    next: AtomicU64,
    locks: Locks,
}

/// A request of the kernel, and who makes it.
struct Request<'a> {
    code: u32,
    node: u64,
    user: (Uid, Gid),
    body: &'a [u8],
}

impl<'a> Request<'a> {
    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.body[at..at + 4].try_into().unwrap())
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.body[at..at + 8].try_into().unwrap())
    }

    /// The names that begin here.
    fn names(&self, at: usize) -> impl Iterator<Item = &'a OsStr> + use<'a> {
        let body = self.body;
        body[at..].split(|byte| *byte == 0).map(OsStr::from_bytes)
    }

    fn name(&self, at: usize) -> &'a OsStr {
        self.names(at).next().unwrap()
    }
}

/// The parts of an answer, one after the other.
#[derive(Default)]
struct Answer(Vec<u8>);

impl Answer {
    fn u32(mut self, values: &[u32]) -> Self {
        values.iter().for_each(|value| self.0.extend(value.to_le_bytes()));
        self
    }

    fn u64(mut self, values: &[u64]) -> Self {
        values.iter().for_each(|value| self.0.extend(value.to_le_bytes()));
        self
    }
}

impl Storage {
    fn serve(&self, device: &File) {
        let mut buffer = vec![0; MAX_WRITE as usize + (64 << 10)];
        loop {
            let length = match (&mut &*device).read(&mut buffer) {
                Ok(length) => length,
                Err(error) if error.raw_os_error() == Some(Errno::NODEV.raw_os_error()) => return,
                Err(_) => continue,
            };
            let head = Request { code: 0, node: 0, user: (Uid::ROOT, Gid::ROOT), body: &buffer };
            let (number, user) =
                (head.u64(8), (Uid::from_raw(head.u32(24)), Gid::from_raw(head.u32(28))));
            let (code, node) = (head.u32(4), head.u64(16));
            let request = Request { code, node, user, body: &buffer[40..length] };
            let Some(answer) = self.answer(&request) else { continue };
            let (error, body) = match answer {
                Ok(Answer(body)) => (0, body),
                Err(error) => (-error.raw_os_error().unwrap_or(5), Vec::new()),
            };
            let length = 16 + body.len() as u32;
            let head = Answer::default().u32(&[length, error as u32]).u64(&[number]);
            let _ = (&mut &*device).write_all(&[head.0, body].concat());
        }
    }

    /// The answer; `None` to what has none.
    fn answer(&self, request: &Request<'_>) -> Option<io::Result<Answer>> {
        let done = |done: io::Result<()>| done.map(|()| Answer::default());
        Some(match request.code {
            2 => {
                self.forget(request.node, request.u64(0));
                return None;
            }
            42 => {
                for at in 0..request.u32(0) as usize {
                    self.forget(request.u64(8 + 16 * at), request.u64(16 + 16 * at));
                }
                return None;
            }
            36 => return None,
            1 => self.find(request.node, request.name(0)),
            3 => self.attributes(request.node),
            4 => self.change(request),
            5 => self.read_link(request.node),
            6 | 8 | 9 | 35 => self.create(request),
            10 => done(self.remove(request, AtFlags::empty())),
            11 => done(self.remove(request, AtFlags::REMOVEDIR)),
            12 => done(self.rename(request)),
            13 => self.link(request),
            14 => self.open(request),
            15 => self.read(request),
            16 => self.write(request),
            17 => {
                let blocks = 1 << 28;
                let counts = [blocks, blocks, blocks, 1 << 20, 1 << 20];
                let sizes = [4096, 255, 4096, 0, 0, 0, 0, 0, 0, 0];
                Ok(Answer::default().u64(&counts).u32(&sizes))
            }
            18 => {
                self.files.lock().unwrap().remove(&request.u64(0));
                Ok(Answer::default())
            }
            20 | 25 | 29 | 30 | 34 => Ok(Answer::default()),
            21..=24 => Err(Errno::OPNOTSUPP.into()),
            26 => Ok(self.start(request)),
            27 => Ok(Answer::default().u64(&[0]).u32(&[0, 0])),
            28 => self.list(request),
            // Locks among them, where the kernel asks for them.
            _ => Err(Errno::NOSYS.into()),
        })
    }

    fn start(&self, request: &Request<'_>) -> Answer {
        let big_writes = 1 << 5;
        // Both kinds of locks are ours to refuse, or the kernel's to make.
        let locks = if self.locks == Locks::Refused { 1 << 1 | 1 << 10 } else { 0 };
        let answer = Answer::default().u32(&[7, 31, request.u32(8), big_writes | locks]);
        // The fifth number has two halves: requests in the background, and from when on they wait.
        answer.u32(&[12 | 9 << 16, MAX_WRITE, 1, 32, 0]).u32(&[0; 7])
    }

    fn node(&self, node: u64) -> io::Result<Arc<OwnedFd>> {
        let nodes = self.nodes.lock().unwrap();
        Ok(Arc::clone(&nodes.get(&node).ok_or(Errno::STALE)?.0))
    }

    /// A path to the node itself.
    fn path(&self, node: u64) -> io::Result<PathBuf> {
        Ok(format!("/proc/self/fd/{}", self.node(node)?.as_raw_fd()).into())
    }

    fn forget(&self, node: u64, count: u64) {
        let mut nodes = self.nodes.lock().unwrap();
        if let Some((_, lookups)) = nodes.get_mut(&node) {
            *lookups = lookups.saturating_sub(count);
            if *lookups == 0 && node != ROOT {
                nodes.remove(&node);
            }
        }
    }

    fn find(&self, parent: u64, name: &OsStr) -> io::Result<Answer> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(self.node(parent)?, name, flags, Mode::empty())?;
        let (node, attributes) = stat(&fd)?;
        let mut nodes = self.nodes.lock().unwrap();
        nodes.entry(node).or_insert_with(|| (Arc::new(fd), 0)).1 += 1;
        // Valid for a second.
        let mut answer = Answer::default().u64(&[node, 0, 1, 1]).u32(&[0, 0]);
        answer.0.extend(attributes.0);
        Ok(answer)
    }

    fn attributes(&self, node: u64) -> io::Result<Answer> {
        let mut answer = Answer::default().u64(&[1]).u32(&[0, 0]);
        answer.0.extend(stat(&*self.node(node)?)?.1.0);
        Ok(answer)
    }

    fn change(&self, request: &Request<'_>) -> io::Result<Answer> {
        let (valid, node, path) =
            (request.u32(0), self.node(request.node)?, self.path(request.node)?);
        let has = |bit: u32| valid & bit != 0;
        if has(2) || has(4) {
            let user = has(2).then(|| Uid::from_raw(request.u32(76)));
            let group = has(4).then(|| Gid::from_raw(request.u32(80)));
            rustix::fs::chownat(&*node, "", user, group, AtFlags::EMPTY_PATH)?;
        }
        if has(1) {
            fs::set_permissions(&path, fs::Permissions::from_mode(request.u32(68) & 0o7777))?;
        }
        if has(8) {
            OpenOptions::new().write(true).open(&path)?.set_len(request.u64(16))?;
        }
        let is_link = fs::symlink_metadata(fs::read_link(&path)?).is_ok_and(|at| at.is_symlink());
        if (has(16) || has(32)) && !is_link {
            let time = |seconds, nanos| match has(128 | 256) {
                true => SystemTime::now(),
                false => UNIX_EPOCH + Duration::new(request.u64(seconds), request.u32(nanos)),
            };
            let mut times = fs::FileTimes::new();
            if has(16) {
                times = times.set_accessed(time(32, 56));
            }
            if has(32) {
                times = times.set_modified(time(40, 60));
            }
            File::open(&path)?.set_times(times)?;
        }
        self.attributes(request.node)
    }

    fn read_link(&self, node: u64) -> io::Result<Answer> {
        let target = rustix::fs::readlinkat(&*self.node(node)?, "", Vec::new())?;
        Ok(Answer(target.into_bytes()))
    }

    /// Makes a link, a file or a directory of the user who asks.
    fn create(&self, request: &Request<'_>) -> io::Result<Answer> {
        let parent = self.node(request.node)?;
        let mode = |mode: u32, umask: u32| Mode::from_raw_mode(mode & !umask & 0o7777);
        let new = OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (name, file) = match request.code {
            6 => {
                let mut names = request.names(0);
                let (name, target) = (names.next().unwrap(), names.next().unwrap());
                symlink(target, self.path(request.node)?.join(name))?;
                (name, None)
            }
            8 => {
                // Sockets, pipes and devices.
                if ![0, 0o100_000].contains(&(request.u32(0) & 0o170_000)) {
                    return Err(Errno::PERM.into());
                }
                let (name, mode) = (request.name(16), mode(request.u32(0), request.u32(8)));
                rustix::fs::openat(&parent, name, new | OFlags::EXCL, mode)?;
                (name, None)
            }
            9 => {
                let name = request.name(8);
                rustix::fs::mkdirat(&parent, name, mode(request.u32(0), request.u32(4)))?;
                (name, None)
            }
            _ => {
                let exclusive = OFlags::from_bits_truncate(request.u32(0)) & OFlags::EXCL;
                let (name, mode) = (request.name(16), mode(request.u32(4), request.u32(8)));
                let file = rustix::fs::openat(&parent, name, new | exclusive, mode)?;
                (name, Some(File::from(file)))
            }
        };
        let (user, group) = request.user;
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::chownat(&parent, name, Some(user), Some(group), flags)?;
        let found = self.find(request.node, name)?;
        Ok(match file {
            None => found,
            Some(file) => found.u64(&[self.keep(file)]).u32(&[0, 0]),
        })
    }

    fn keep(&self, file: File) -> u64 {
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        self.files.lock().unwrap().insert(handle, Arc::new(file));
        handle
    }

    fn file(&self, handle: u64) -> io::Result<Arc<File>> {
        Ok(Arc::clone(self.files.lock().unwrap().get(&handle).ok_or(Errno::BADF)?))
    }

    fn remove(&self, request: &Request<'_>, flags: AtFlags) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(self.node(request.node)?, request.name(0), flags)?)
    }

    fn rename(&self, request: &Request<'_>) -> io::Result<()> {
        let (from, to) = (self.node(request.node)?, self.node(request.u64(0))?);
        let mut names = request.names(8);
        let (old, new) = (names.next().unwrap(), names.next().unwrap());
        Ok(rustix::fs::renameat(from, old, to, new)?)
    }

    fn link(&self, request: &Request<'_>) -> io::Result<Answer> {
        let (file, dir) = (self.path(request.u64(0))?, self.node(request.node)?);
        let flags = AtFlags::SYMLINK_FOLLOW;
        rustix::fs::linkat(rustix::fs::CWD, file, dir, request.name(8), flags)?;
        self.find(request.node, request.name(8))
    }

    fn open(&self, request: &Request<'_>) -> io::Result<Answer> {
        let flags = request.u32(0);
        let mut options = OpenOptions::new();
        options.read(flags & 3 != 1).write(flags & 3 != 0);
        options.custom_flags((flags & OFlags::TRUNC.bits()) as i32);
        let file = options.open(self.path(request.node)?)?;
        Ok(Answer::default().u64(&[self.keep(file)]).u32(&[0, 0]))
    }

    fn read(&self, request: &Request<'_>) -> io::Result<Answer> {
        let (file, offset) = (self.file(request.u64(0))?, request.u64(8));
        let (mut bytes, mut length) = (vec![0; request.u32(16) as usize], 0);
        while length < bytes.len() {
            match file.read_at(&mut bytes[length..], offset + length as u64)? {
                0 => break,
                more => length += more,
            }
        }
        bytes.truncate(length);
        Ok(Answer(bytes))
    }

    fn write(&self, request: &Request<'_>) -> io::Result<Answer> {
        let data = &request.body[40..40 + request.u32(16) as usize];
        self.file(request.u64(0))?.write_all_at(data, request.u64(8))?;
        Ok(Answer::default().u32(&[data.len() as u32, 0]))
    }

    fn list(&self, request: &Request<'_>) -> io::Result<Answer> {
        let (offset, most) = (request.u64(8) as usize, request.u32(16) as usize);
        let mut entries = vec![(ROOT, 4, b".".to_vec()), (ROOT, 4, b"..".to_vec())];
        for entry in fs::read_dir(self.path(request.node)?)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            let kind = match (kind.is_dir(), kind.is_symlink()) {
                (true, _) => 4,
                (_, true) => 10,
                _ => 8,
            };
            let inode = entry.metadata().map_or(ROOT, |about| about.ino());
            entries.push((inode, kind, entry.file_name().into_vec()));
        }
        let mut answer = Answer::default();
        for (at, (inode, kind, name)) in entries.into_iter().enumerate().skip(offset) {
            if answer.0.len() + 24 + name.len().next_multiple_of(8) > most {
                break;
            }
            answer = answer.u64(&[inode, at as u64 + 1]).u32(&[name.len() as u32, kind]);
            answer.0.extend(name);
            answer.0.resize(answer.0.len().next_multiple_of(8), 0);
        }
        Ok(answer)
    }
}

/// The number and the attributes of an open node.
fn stat(fd: impl AsFd) -> io::Result<(u64, Answer)> {
    let stat = rustix::fs::statat(fd, "", AtFlags::EMPTY_PATH)?;
    let times = [stat.st_atime, stat.st_mtime, stat.st_ctime].map(|time| time as u64);
    let nanos = [stat.st_atime_nsec, stat.st_mtime_nsec, stat.st_ctime_nsec];
    let answer = Answer::default()
        .u64(&[stat.st_ino, stat.st_size as u64, stat.st_blocks as u64])
        .u64(&times)
        .u32(&nanos.map(|nanos| nanos as u32))
        .u32(&[stat.st_mode, stat.st_nlink as u32, stat.st_uid, stat.st_gid, 0, 4096, 0]);
    Ok((stat.st_ino, answer))
}
