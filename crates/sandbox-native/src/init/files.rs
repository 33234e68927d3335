//! Tasks on files. Each is done by a child of PID 1, a worker, that has no more rights than a command.
//!
//! The worker replies to the caller itself, over the same socket, and exits.

use std::{
    cell::Cell,
    ffi::OsStr,
    fs::{self, File},
    io::{self, Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::{
            ffi::OsStrExt,
            fs::{MetadataExt, PermissionsExt},
        },
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::{
    fs::{
        AtFlags, CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, ResolveFlags, fstat, fstatfs,
        openat, openat2, statfs, symlinkat, unlinkat,
    },
    io::Errno,
    process::Signal,
};
use sandbox::{
    Entry, EntryKind, Paused,
    archive::{self, OnStep},
};

use super::{
    FileTask, Init, Reply, Report,
    processes::{self, Afterwards, Stopping},
    stop::{PATIENCE, Stopper},
};
use crate::{
    diagnostics, harden,
    plan::NetworkPlan,
    sys::{self, Fork},
    wire::{self, WireError, WirePath},
};

mod layer;
mod user;
mod watch;
mod written;

pub(crate) use self::{
    user::{Operation, WireInfo},
    watch::WireChange,
    written::{MAX_REPORT, read_written},
};

/// Bytes of a file that are copied before the caller is told that the work goes on.
const PIECE: u64 = 8 << 20;

/// The running workers: process id, request, and what other processes do meanwhile.
pub(crate) struct Workers {
    running: Vec<(i32, u32, OtherProcesses)>,
    stopper: Stopper,
    /// All other processes are stopped until the caller lets them continue.
    paused: bool,
}

/// What other processes of the sandbox do while a worker runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OtherProcesses {
    Continue,
    /// They are stopped, so that the copy is consistent.
    Pause,
    /// They are watched, for as long as the caller wants.
    Watch,
}

impl Workers {
    /// None yet. Others are stopped by `stopper`.
    pub(crate) fn new(stopper: Stopper) -> Self {
        Self { running: Vec::new(), stopper, paused: false }
    }

    /// Whether any worker runs that may write.
    pub(crate) fn any_may_write(&self) -> bool {
        self.watching().count() < self.running.len()
    }

    /// The process ids of workers that only watch.
    pub(crate) fn watching(&self) -> impl Iterator<Item = i32> {
        let watch = |(_, _, others): &&(i32, u32, OtherProcesses)| *others == OtherProcesses::Watch;
        self.running.iter().filter(watch).map(|(pid, ..)| *pid)
    }

    /// Their process ids.
    pub(crate) fn pids(&self) -> Vec<i32> {
        self.running.iter().map(|(pid, ..)| *pid).collect()
    }

    /// Whether all other processes are stopped until the caller lets them continue.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused
    }

    /// Whether all other processes are stopped until a worker has copied their files.
    pub(crate) fn is_copying(&self) -> bool {
        self.running.iter().any(|(.., others)| *others == OtherProcesses::Pause)
    }

    /// How to stop processes while others are killed. Those that are paused do not continue then.
    pub(crate) fn stopping(&self) -> Stopping<'_> {
        let afterwards = match self.is_paused() || self.is_copying() {
            true => Afterwards::StayStopped,
            false => Afterwards::Continue,
        };
        Stopping { stopper: &self.stopper, workers: self.pids(), afterwards }
    }

    /// Starts a worker.
    pub(crate) fn start(
        &mut self,
        id: u32,
        task: FileTask,
        fds: Vec<OwnedFd>,
        init: &Init<'_>,
    ) -> io::Result<()> {
        let others = match task {
            FileTask::CopyUppers | FileTask::PackUppers => OtherProcesses::Pause,
            FileTask::As { operation: Operation::Watch { .. }, .. } => OtherProcesses::Watch,
            _ => OtherProcesses::Continue,
        };
        if others == OtherProcesses::Pause {
            self.stop_others()?;
        }
        match sys::fork(init.single) {
            Ok(Fork::Parent(pid)) => {
                self.running.push((pid, id, others));
                Ok(())
            }
            Ok(Fork::Child) => sys::exit_now(i32::from(!run_worker(id, task, fds, init))),
            Err(error) => {
                if others == OtherProcesses::Pause {
                    self.resume_others();
                }
                Err(error)
            }
        }
    }

    /// Handles a stopped process. A worker that a command stopped is killed: its caller would wait forever.
    pub(crate) fn stopped(&self, pid: i32) {
        if self.pids().contains(&pid) {
            processes::signal(&[pid], Signal::KILL);
        }
    }

    /// Kills the worker of a request, if there is one.
    pub(crate) fn kill(&self, id: u32) {
        if let Some((pid, ..)) = self.running.iter().find(|(_, request, _)| *request == id) {
            processes::signal(&[*pid], Signal::KILL);
        }
    }

    /// Handles the end of a process; returns the request if it was a worker.
    pub(crate) fn ended(&mut self, pid: i32) -> Option<u32> {
        let at = self.running.iter().position(|(worker, ..)| *worker == pid)?;
        let (_, id, others) = self.running.swap_remove(at);
        if others == OtherProcesses::Pause {
            self.resume_others();
        }
        Some(id)
    }

    /// Stops all other processes, or lets them continue.
    pub(crate) fn pause_others(&mut self, paused: Paused) -> io::Result<()> {
        match paused {
            Paused::No => {
                self.paused = false;
                self.resume_others();
            }
            Paused::Yes => {
                self.stop_others()?;
                self.paused = true;
            }
        }
        Ok(())
    }

    /// Stops all processes but the workers, or none.
    fn stop_others(&self) -> io::Result<()> {
        self.stopper.hold(&self.pids(), PATIENCE).inspect_err(|_| self.resume_others())
    }

    /// Lets processes be killed that are paused, until [`Workers::hold_again`]. On version 1 of control groups they end only
    /// then. None of them continues otherwise, but for those that nothing but a frozen group stops.
    pub(crate) fn let_go(&self) {
        self.stopper.release();
    }

    /// Ends what [`Workers::let_go`] began.
    pub(crate) fn hold_again(&self) {
        if self.stopping().afterwards == Afterwards::StayStopped {
            // Who could not be stopped again would be one of those that could not be killed.
            let _ = self.stopper.hold(&self.pids(), PATIENCE);
        }
    }

    /// Lets all processes continue, unless they have to stay stopped for another reason.
    fn resume_others(&self) {
        if self.stopping().afterwards == Afterwards::Continue {
            let others: Vec<_> = processes::numbers().into_iter().filter(|pid| *pid != 1).collect();
            // First, so that none that runs again sees another that is still stopped.
            processes::signal(&others, Signal::CONT);
            self.stopper.release();
        }
    }
}

/// In the forked child: does the task and replies. Returns whether the reply was sent.
fn run_worker(id: u32, task: FileTask, fds: Vec<OwnedFd>, init: &Init<'_>) -> bool {
    sys::survive_file_size_limit();
    rustix::process::umask(Mode::from_raw_mode(0o022));
    harden::prefer_for_killing(init.own.proc.as_fd());
    let mut fds = match WorkerFds::keep(&task, fds, init) {
        Ok(fds) => fds,
        Err(error) => {
            diagnostics::report(&format!("a file worker cannot start: {error}"));
            return false;
        }
    };
    let done = init
        .hardening
        .apply(harden::Confined::FileWorker)
        .and_then(|()| bound_memory())
        .and_then(|()| work(id, task, &mut fds, init));
    let (reply, file) = match done {
        Ok(Outcome::Done(report)) => (Reply::Finished { id, report }, None),
        Ok(Outcome::Opened(file)) => (Reply::Opened { id }, Some(file)),
        Err(error) => (Reply::Refused { id, error: WireError::from(&error) }, None),
    };
    let opened: Vec<_> = file.iter().map(AsFd::as_fd).collect();
    wire::send(fds.socket.as_fd(), &reply, &opened).is_ok()
}

/// Most memory of a worker. It is not in the group of commands, which could have the kernel kill it, so the limit on
/// their memory does not hold for it.
const MAX_MEMORY: u64 = 256 << 20;

fn bound_memory() -> io::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let most = getrlimit(Resource::Data).maximum.map_or(MAX_MEMORY, |most| most.min(MAX_MEMORY));
    Ok(setrlimit(Resource::Data, Rlimit { current: Some(most), maximum: Some(most) })?)
}

/// The only descriptors of a worker. It must have no others: a link in the sandbox may lead into `/proc/self/fd`.
struct WorkerFds {
    socket: OwnedFd,
    streams: std::vec::IntoIter<OwnedFd>,
    uppers: Vec<OwnedFd>,
}

impl WorkerFds {
    fn keep(task: &FileTask, streams: Vec<OwnedFd>, init: &Init<'_>) -> io::Result<Self> {
        let mut all = vec![init.socket.try_clone_to_owned()?];
        let count = streams.len();
        all.extend(streams);
        if matches!(task, FileTask::CopyUppers | FileTask::PackUppers | FileTask::Written { .. }) {
            for upper in init.uppers {
                all.push(upper.try_clone()?);
            }
        }
        // SAFETY: this child of PID 1 ends by `exit_now` in `Workers::start`. Until then it uses the result, and of
        // `init` the plan and the hardening, which hold no descriptors.
        let mut kept = unsafe { sys::keep_only(all) }?.into_iter();
        let socket = kept.next().ok_or_else(|| io::Error::other("no socket"))?;
        // SAFETY: the socket is part of the result, which `run_worker` holds until it returns; only `exit_now` follows.
        unsafe { diagnostics::report_over(socket.as_fd()) };
        let streams = kept.by_ref().take(count).collect::<Vec<_>>().into_iter();
        Ok(Self { socket, streams, uppers: kept.collect() })
    }

    fn stream(&mut self) -> io::Result<File> {
        self.streams.next().map(File::from).ok_or_else(|| io::Error::other("no stream"))
    }
}

enum Outcome {
    Done(Report),
    Opened(OwnedFd),
}

/// Tells the caller that a task goes on, once in a while: after a part of the work, so that a worker that does nothing
/// tells nothing.
struct Pulse {
    socket: OwnedFd,
    id: u32,
    last: Cell<Instant>,
}

impl Pulse {
    /// Often enough for the shortest patience, of seconds.
    const INTERVAL: Duration = Duration::from_millis(200);

    fn beat(&self) -> io::Result<()> {
        if self.last.get().elapsed() < Self::INTERVAL {
            return Ok(());
        }
        self.last.set(Instant::now());
        wire::send(self.socket.as_fd(), &Reply::Working { id: self.id }, &[])
    }
}

fn work(id: u32, task: FileTask, fds: &mut WorkerFds, init: &Init<'_>) -> io::Result<Outcome> {
    let done = |()| Outcome::Done(Report::default());
    let pulse = Pulse { socket: fds.socket.try_clone()?, id, last: Cell::new(Instant::now()) };
    let on_step = || pulse.beat();
    let on_step: OnStep<'_> = &on_step;
    match task {
        FileTask::Open(path) => open(&PathBuf::from(path)).map(Outcome::Opened),
        FileTask::Write(path) => {
            write(&PathBuf::from(path), &mut fds.stream()?, Owner::Same, on_step).map(done)
        }
        FileTask::List(path) => list(&PathBuf::from(path), fds.stream()?, on_step).map(done),
        FileTask::Written { directory, since } => {
            let targets = init.plan.overlays.iter().map(|overlay| overlay.target.as_path());
            let uppers = targets.zip(&fds.uppers).collect::<Vec<_>>();
            let report = written::report(&PathBuf::from(directory), since, &uppers)?;
            fds.stream()?.write_all(&report).map(done)
        }
        FileTask::Unpack => unpack(fds.stream()?, on_step).map(done),
        FileTask::Pack(path) => {
            pack(&PathBuf::from(path), fds.stream()?, on_step).map(Outcome::Done)
        }
        FileTask::As { user, operation } => user::work(&user, operation, fds, on_step),
        FileTask::Connect(port) => user::connect(port).map(Outcome::Opened),
        FileTask::CopyUppers => {
            for upper in std::mem::take(&mut fds.uppers) {
                layer::copy(upper.as_fd(), fds.stream()?.as_fd(), on_step)?;
            }
            Ok(done(()))
        }
        FileTask::PackUppers => {
            let targets = init.plan.overlays.iter().map(|overlay| overlay.target.as_path());
            let stream = fds.stream()?;
            // Written for this sandbox; it would be written again.
            let own = matches!(init.plan.network, NetworkPlan::Host | NetworkPlan::Internet)
                .then(|| Path::new("etc/resolv.conf"));
            layer::pack(targets.zip(&fds.uppers), own, stream, on_step).map(done)
        }
    }
}

/// Opens a regular file. Neither waits for pipes nor opens devices, and opens nothing in `/proc`, where the files of
/// this process itself would be.
fn open(path: &Path) -> io::Result<OwnedFd> {
    let meta = fs::metadata(path)?;
    if meta.is_dir() {
        return Err(io::Error::from_raw_os_error(libc::EISDIR));
    }
    if !meta.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS)?;
    if fstatfs(&file)?.f_type == PROC_SUPER_MAGIC {
        return Err(io::Error::other("files of /proc can only be read by a command"));
    }
    // The file may have been replaced since it was checked.
    let opened = FileType::from_raw_mode(fstat(&file)?.st_mode);
    if opened != FileType::RegularFile {
        return Err(io::Error::other("not a regular file"));
    }
    Ok(file)
}

/// Resolves the path of a file to be written: follows links and creates missing directories.
fn destination(path: &Path) -> io::Result<PathBuf> {
    let real = match fs::canonicalize(path) {
        Ok(real) => real,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let (parent, name) = (path.parent(), path.file_name());
            let (Some(parent), Some(name)) = (parent, name) else {
                return Err(io::Error::other("the path has no file name"));
            };
            fs::create_dir_all(parent)?;
            fs::canonicalize(parent)?.join(name)
        }
        Err(error) => return Err(error),
    };
    let parent = real.parent().unwrap_or(Path::new("/"));
    if statfs(parent)?.f_type == PROC_SUPER_MAGIC {
        return Err(io::Error::other("files of /proc can only be written by a command"));
    }
    Ok(real)
}

/// Prefixes of the names of files that are being written.
const REPLACING: &str = ".lis-write-";
const CREATING: &str = ".lis-write-new-";

fn write(
    path: &Path,
    content: &mut impl Read,
    owner: Owner,
    on_step: OnStep<'_>,
) -> io::Result<()> {
    let target = destination(path)?;
    let existing = target.symlink_metadata().ok();
    match &existing {
        Some(meta) if meta.is_dir() => return Err(io::Error::from_raw_os_error(libc::EISDIR)),
        // For example a dangling link, whose target is not created.
        Some(meta) if !meta.is_file() => return Err(io::Error::other("not a regular file")),
        _ => {}
    }
    // Watchers tell by the name that it is ours, and whether the file is new.
    let mut name = std::ffi::OsString::from(match existing {
        Some(_) => REPLACING,
        None => CREATING,
    });
    name.push(std::process::id().to_string());
    let partial = target.with_file_name(name);
    let result = write_new(&partial, content, existing.as_ref(), owner, on_step)
        .and_then(|()| fs::rename(&partial, &target));
    if result.is_err() {
        let _ = fs::remove_file(&partial);
    }
    result
}

/// Whose a file is that replaces another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// The owner of the one it replaces.
    Same,
    /// Who writes it.
    Writer,
}

fn write_new(
    at: &Path,
    content: &mut impl Read,
    like: Option<&fs::Metadata>,
    owner: Owner,
    on_step: OnStep<'_>,
) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).open(at)?;
    while io::copy(&mut content.by_ref().take(PIECE), &mut file)? > 0 {
        on_step()?;
    }
    let mode = like.map_or(0o644, |meta| meta.mode() & 0o7777);
    if let (Some(meta), Owner::Same) = (like, owner) {
        std::os::unix::fs::fchown(&file, Some(meta.uid()), Some(meta.gid()))?;
    }
    file.set_permissions(fs::Permissions::from_mode(mode))
}

/// Most entries of a listing. The caller holds it in memory.
const MAX_LISTED: usize = 100_000;
/// Longest listing in bytes: such entries with names of usual length.
pub(crate) const MAX_LISTING: u64 = 4 << 20;

/// A directory has too many entries for a listing.
#[derive(Debug, thiserror::Error)]
#[error("it has too many entries to be listed; a command can count or search them")]
struct TooManyEntries(#[source] io::Error);

fn too_many_entries() -> io::Error {
    let large = io::Error::from_raw_os_error(libc::EFBIG);
    io::Error::new(large.kind(), TooManyEntries(large))
}

fn list(path: &Path, mut stream: File, on_step: OnStep<'_>) -> io::Result<()> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(path)? {
        on_step()?;
        let entry = entry?;
        let Ok(meta) = entry.metadata() else { continue };
        if entries.len() == MAX_LISTED {
            return Err(too_many_entries());
        }
        let kind = if meta.is_dir() {
            EntryKind::Directory
        } else if meta.is_symlink() {
            EntryKind::Link
        } else if meta.is_file() {
            EntryKind::File
        } else {
            EntryKind::Other
        };
        let name = entry.file_name();
        let size = if meta.is_file() { meta.len() } else { 0 };
        entries.push((WirePath::from(Path::new(&name)), kind, size, meta.mode() & 0o7777));
    }
    let listing = postcard::to_stdvec(&entries).map_err(io::Error::other)?;
    if listing.len() as u64 > MAX_LISTING {
        return Err(too_many_entries());
    }
    stream.write_all(&listing)
}

/// Decodes what [`list`] sent; sorts by name.
pub(crate) fn read_list(bytes: &[u8]) -> io::Result<Vec<Entry>> {
    let raw: Vec<(WirePath, EntryKind, u64, u32)> =
        postcard::from_bytes(bytes).map_err(io::Error::other)?;
    let mut entries: Vec<_> = raw
        .into_iter()
        .map(|(name, kind, size, mode)| Entry { name: name.into(), kind, size, mode })
        .collect();
    entries.sort_by(|a, b| a.name.as_os_str().as_bytes().cmp(b.name.as_os_str().as_bytes()));
    Ok(entries)
}

/// Unpacks a tar stream of the host whose names are paths from the root.
fn unpack(stream: File, on_step: OnStep<'_>) -> io::Result<()> {
    let mut archive = tar::Archive::new(io::BufReader::with_capacity(1 << 16, stream));
    let mut buffer = vec![0u8; 1 << 18];
    let mut at = OpenDirectory::default();
    for entry in archive.entries()? {
        on_step()?;
        let mut entry = entry?;
        let path = Path::new("/").join(entry.path()?);
        let mode = entry.header().mode()? & 0o7777;
        let kind = entry.header().entry_type();
        if kind.is_dir() {
            if !path.is_dir() {
                fs::create_dir_all(&path)?;
            }
            fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
            continue;
        }
        let (dir, name) = at.of(&path)?;
        if kind.is_symlink() {
            let to =
                entry.link_name()?.ok_or_else(|| io::Error::other("a link without a target"))?;
            replacing(dir, name, || symlinkat(&*to, dir, name))?;
        } else if kind.is_file() {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            // The descriptor is writable even if the mode is not: modes are checked when a file is opened.
            let make = || openat(dir, name, flags, Mode::from_raw_mode(mode));
            let mut file = File::from(replacing(dir, name, make)?);
            if mode & 0o022 != 0 {
                file.set_permissions(fs::Permissions::from_mode(mode))?;
            }
            loop {
                match entry.read(&mut buffer)? {
                    0 => break,
                    n => file.write_all(&buffer[..n])?,
                }
                on_step()?;
            }
            if let Ok(modified) = entry.header().mtime() {
                let age = std::time::Duration::from_secs(modified);
                let _ = std::time::UNIX_EPOCH.checked_add(age).map(|time| file.set_modified(time));
            }
        }
    }
    Ok(())
}

/// Creates an entry of a directory, replacing a file of that name.
fn replacing<T>(
    dir: &OwnedFd,
    name: &OsStr,
    make: impl Fn() -> rustix::io::Result<T>,
) -> rustix::io::Result<T> {
    match make() {
        Err(Errno::EXIST) => {
            unlinkat(dir, name, AtFlags::empty())?;
            make()
        }
        other => other,
    }
}

/// The directory that files are unpacked into, opened once for all of them.
#[derive(Default)]
struct OpenDirectory {
    open: Option<(PathBuf, OwnedFd)>,
}

impl OpenDirectory {
    /// Opens the directory of a path, creating it if missing; returns it and the name in it.
    fn of<'a>(&mut self, path: &'a Path) -> io::Result<(&OwnedFd, &'a OsStr)> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::Error::other("the path has no file name"));
        };
        let known = matches!(&self.open, Some((dir, _)) if dir == parent);
        if !known {
            fs::create_dir_all(parent)?;
            // As a directory: it may have been replaced by a pipe, which would be waited for.
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let opened = openat(CWD, parent, flags, Mode::empty())?;
            if fstatfs(&opened)?.f_type == PROC_SUPER_MAGIC {
                return Err(io::Error::other("files of /proc can only be written by a command"));
            }
            self.open = Some((parent.to_owned(), opened));
        }
        match &self.open {
            Some((_, dir)) => Ok((dir, name)),
            None => Err(io::Error::other("no directory is open")),
        }
    }
}

fn pack(path: &Path, stream: File, on_step: OnStep<'_>) -> io::Result<Report> {
    let real = fs::canonicalize(path)?;
    let meta = real.metadata()?;
    if !meta.is_dir() && !meta.is_file() {
        return Err(io::Error::other("not a file or directory"));
    }
    if real.starts_with("/proc") || real.starts_with("/dev") {
        return Err(io::Error::other("devices and processes cannot be copied"));
    }
    let left_out = [Path::new("/proc"), Path::new("/dev"), Path::new("/sys")];
    let stream = io::BufWriter::with_capacity(1 << 16, stream);
    let report = archive::pack_sandbox(&left_out, &real, Path::new("copied"), stream, on_step)?;
    let below = |path: &Path| path.strip_prefix("copied").unwrap_or(path).to_owned();
    Ok(Report {
        files: report.files,
        bytes: report.bytes,
        skipped: report
            .skipped
            .iter()
            .map(|s| (WirePath::from(below(&s.path).as_path()), s.why.clone()))
            .collect(),
        more_skipped: report.more_skipped,
    })
}
