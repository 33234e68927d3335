//! [`NativeSandbox`]: a running sandbox, as its owner uses it. Every operation is a request to the sandbox's PID 1.

mod program;

use std::{
    fs::File,
    io::{self, Read, Seek},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use sandbox::{
    ByteSize, Control, CopyReport, Entry, Error, ExecOutput, Exit, ImageRef, Input, Paused,
    Process, Progress, Protection, RefusedConnections, RequestError, Sandbox, ShellCommand, Spec,
    Streams, Usage, Written, archive,
};
use tokio::{
    sync::{Mutex, mpsc},
    task::JoinHandle,
    time::{sleep, sleep_until},
};

use crate::{
    init::{
        Ending, FileTask, MAX_LISTING, MAX_REPORT, Reply, Report, Request, Task, read_list,
        read_written,
    },
    link::{Call, Link, Numbered},
    plan::{Plan, Uppers},
    proxy::Proxy,
    pump::{self, Collector},
    runtime::Shared,
    transfer::{CompleteStream, Transfer, Verdict},
    wire::{self, WirePath},
};

/// How often to ask again for a command to be started.
const BUSY_CHECK: Duration = Duration::from_millis(5);

/// How many times as long as the charge for an entry its headers can be: two paths of 4 KiB, in blocks of their own.
const HEADERS_PER_CHARGE: u64 = 48;

impl Numbered for Reply {
    fn number(&self) -> Option<u32> {
        match self {
            Self::Ready { .. } | Self::NotReady(_) | Self::Stopped(_) | Self::Diagnostic(_) => None,
            Self::Busy { id }
            | Self::Started { id, .. }
            | Self::Ended { id, .. }
            | Self::Opened { id }
            | Self::Working { id }
            | Self::Finished { id, .. }
            | Self::Refused { id, .. }
            | Self::WorkerKilled { id }
            | Self::Peak { id, .. }
            | Self::Usage { id, .. } => Some(*id),
        }
    }

    fn stop_reason(&self) -> Option<&str> {
        match self {
            Self::Stopped(why) => Some(why),
            _ => None,
        }
    }

    fn diagnostic(&self) -> Option<&str> {
        match self {
            Self::Diagnostic(text) => Some(text),
            _ => None,
        }
    }
}

/// A sandbox of the native runtime.
pub struct NativeSandbox {
    pub(crate) plan: Plan,
    pub(crate) spec: Spec,
    pub(crate) protection: Protection,
    pub(crate) shared: Arc<Shared>,
    pub(crate) link: Link<Reply>,
    pub(crate) proxy: Option<Proxy>,
    /// Prevents the image's layers from being removed.
    pub(crate) lease: Option<image::Lease>,
    /// Held while a shell command runs: there is one shell.
    pub(crate) shell: Mutex<()>,
}

/// A command in progress.
struct Command<'a> {
    call: Call<'a, Reply>,
    guard: Guard<'a>,
    /// When it was started.
    begun: Instant,
    /// The process id of a program.
    pid: u32,
    /// Signals for it.
    signals: Option<mpsc::Receiver<i32>>,
}

/// Kills the command or file worker when dropped before its end was seen.
struct Guard<'a> {
    link: &'a Link<Reply>,
    id: u32,
    ended: bool,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.link.send_later(Request { id: 0, task: Task::Kill { running: self.id } });
        }
    }
}

fn unexpected(reply: &Reply) -> Error {
    Error::Gone(format!("unexpected reply from PID 1: {reply:?}"))
}

/// A failure at a path inside the sandbox: the path's fault, or the machine's.
pub(crate) fn path_error(path: &Path, source: io::Error) -> Error {
    match is_machine_fault(&source) {
        true => Error::Io { what: path.display().to_string(), source },
        false => Error::Path { path: path.to_owned(), source },
    }
}

/// A failure at a path of the host: the path's fault, or the machine's.
fn host_path_error(path: &Path, source: io::Error) -> Error {
    match is_machine_fault(&source) {
        true => Error::Io { what: path.display().to_string(), source },
        false => Error::HostPath { path: path.to_owned(), source },
    }
}

/// Whether the system lacked a resource, so that no other path would have done better.
fn is_machine_fault(error: &io::Error) -> bool {
    use io::ErrorKind::{OutOfMemory, QuotaExceeded, StorageFull};
    matches!(error.kind(), OutOfMemory | QuotaExceeded | StorageFull)
        || matches!(error.raw_os_error(), Some(libc::EIO | libc::EMFILE | libc::ENFILE))
}

/// Directories prepared for a fork; removed on drop unless the fork was created.
struct Prepared<'a> {
    shared: &'a Shared,
    id: Option<String>,
}

impl Drop for Prepared<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.shared.destroy_later(id);
        }
    }
}

/// What a sandbox has changed, as a tar stream with OCI whiteouts. Reading fails if the sandbox ends before the stream is
/// complete.
pub struct LayerStream(CompleteStream);

impl io::Read for LayerStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl NativeSandbox {
    /// Most bytes that one copy may bring to the host: holes and hard links take no space inside, but would outside.
    fn most(&self) -> u64 {
        self.plan.limits.disk.map_or(u64::MAX, |disk| disk.bytes().max(64 << 20))
    }

    /// Streams what the sandbox has changed, as one layer of an OCI image, to `save`, which runs on a thread of its own.
    /// While the files are read, the sandbox's processes are paused.
    pub async fn save_layer<T: Send + 'static>(
        &self,
        save: impl FnOnce(LayerStream) -> Result<T, image::Error> + Send + 'static,
    ) -> Result<T, Error> {
        let failed = |source| Error::Service { what: "saving the image".into(), source };
        let (reading, writing) = pipe_pair()?;
        let progress = Progress::default();
        // Headers of many small files take space as well.
        let (stream, verdict) = self.incoming(reading, &progress, self.most().saturating_mul(2))?;
        let saving = tokio::task::spawn_blocking(move || save(LayerStream(stream)));
        let cancel = progress.cancel_on_drop();
        let task = FileTask::PackUppers;
        let packed = self.files(Path::new("/"), task, vec![writing], &progress).await;
        match &packed {
            Ok(_) => verdict.complete(),
            Err(_) => drop(cancel),
        }
        drop(verdict);
        // Storing the layer waits for nothing but this machine.
        let saved = saving.await.map_err(|error| failed(Box::new(error)))?;
        match (packed, saved) {
            // The worker sees a closed pipe because storing failed.
            (Err(Error::Path { source, .. } | Error::Io { source, .. }), Err(error))
                if source.kind() == io::ErrorKind::BrokenPipe =>
            {
                Err(failed(Box::new(error)))
            }
            (Err(error), _) => Err(error),
            (Ok(_), saved) => saved.map_err(|error| failed(Box::new(error))),
        }
    }

    /// The caller's end of a stream from a file worker, with at most this many bytes.
    fn incoming(
        &self,
        pipe: OwnedFd,
        progress: &Progress,
        most: u64,
    ) -> Result<(CompleteStream, Verdict), Error> {
        let transfer = Transfer::new(pipe, progress).map_err(Error::io("preparing a pipe"))?;
        Ok(CompleteStream::new(transfer, most))
    }

    /// What a file task sends over its stream, at most so many bytes.
    async fn small_answer(&self, path: &Path, task: FileTask, most: u64) -> Result<Vec<u8>, Error> {
        let (reading, writing) = pipe_pair()?;
        let progress = Progress::default();
        let answer = Transfer::new(reading, &progress).map_err(Error::io("preparing a pipe"))?;
        let read = tokio::task::spawn_blocking(move || {
            let mut bytes = Vec::new();
            answer.take(most).read_to_end(&mut bytes).map(|_| bytes)
        });
        let _cancel = progress.cancel_on_drop();
        self.files(path, task, vec![writing], &progress).await?;
        joined(read).await.map_err(Error::io("reading an answer about files"))
    }

    /// The error for a PID 1 that has ended, with what it reported.
    pub(crate) fn gone(&self) -> Error {
        match self.link.stopped() {
            Some(why) => Error::HostFull(why.to_owned()),
            None => Error::Gone(self.link.log().explain("its first process has ended")),
        }
    }

    /// Has a command started, once processes that are stopped for a copy of their files continue.
    async fn start(
        &self,
        task: Task,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(Command<'_>, Vec<OwnedFd>), Error> {
        let mut request = Request { id: 0, task };
        loop {
            let begun = Instant::now();
            let mut call = self.link.call();
            let mut guard = Guard { link: &self.link, id: call.id, ended: false };
            request.id = call.id;
            let started = async {
                self.link.send(&request, fds).await.map_err(|_| self.gone())?;
                call.reply().await.ok_or_else(|| self.gone())
            };
            match self.answered("a command to start", started).await? {
                (Reply::Started { pid, .. }, fds) => {
                    return Ok((Command { call, guard, begun, pid, signals: None }, fds));
                }
                (Reply::Busy { .. }, _) => guard.ended = true,
                (Reply::Refused { error, .. }, _) => {
                    guard.ended = true;
                    let what = "starting a command in the sandbox".into();
                    return Err(Error::Io { what, source: error.into() });
                }
                (other, _) => return Err(unexpected(&other)),
            }
            drop((call, guard));
            sleep(BUSY_CHECK).await;
        }
    }

    /// How long a request may make no progress.
    fn patience(&self) -> Duration {
        self.spec.stall_timeout
    }

    /// Destroys a sandbox that does not do what is waited for, and returns the error to report.
    async fn give_up(&self, waiting_for: impl Into<String>) -> Error {
        let limit = self.patience();
        let _ = self.shared.destroy(&self.plan.id, limit).await;
        Error::Stalled { waiting_for: waiting_for.into(), limit }
    }

    /// Awaits a reply that PID 1 sends without delay.
    pub(crate) async fn answered<T>(
        &self,
        waiting_for: &str,
        reply: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        tokio::select! {
            reply = reply => reply,
            () = sandbox::patience(self.patience()) => Err(self.give_up(waiting_for).await),
        }
    }

    /// Sends a request that PID 1 answers by itself, without a child.
    async fn ask(&self, waiting_for: &str, task: Task) -> Result<Reply, Error> {
        let mut call = self.link.call();
        let request = Request { id: call.id, task };
        let reply = async {
            self.link.send(&request, &[]).await.map_err(|_| self.gone())?;
            call.reply().await.map(|(reply, _)| reply).ok_or_else(|| self.gone())
        };
        self.answered(waiting_for, reply).await
    }

    async fn kill(&self, id: u32) -> Result<(), Error> {
        let request = Request { id: 0, task: Task::Kill { running: id } };
        let sent = async { self.link.send(&request, &[]).await.map_err(|_| self.gone()) };
        self.answered("a command to be killed", sent).await
    }

    /// Waits until a command has ended; kills it at the deadline.
    async fn ending(
        &self,
        command: &mut Command<'_>,
        deadline: Option<Instant>,
    ) -> Result<Ending, Error> {
        let Command { call, guard, signals, .. } = command;
        let far = Instant::now() + Duration::from_secs(365 * 24 * 3600);
        let mut deadline = deadline;
        let mut killed = false;
        loop {
            tokio::select! {
                reply = call.reply() => {
                    guard.ended = true;
                    return match reply {
                        Some((Reply::Ended { ending, .. }, _)) => Ok(ending),
                        Some((other, _)) => Err(unexpected(&other)),
                        None => Err(self.gone()),
                    };
                }
                signal = next_signal(signals) => {
                    let task = Task::Signal { running: call.id, signal };
                    let request = Request { id: 0, task };
                    let sent = async {
                        self.link.send(&request, &[]).await.map_err(|_| self.gone())
                    };
                    self.answered("a signal to be sent", sent).await?;
                }
                () = sleep_until(deadline.unwrap_or(far).into()) => {
                    if killed {
                        guard.ended = true;
                        return Err(self.give_up("the end of a command at its time limit").await);
                    }
                    killed = true;
                    deadline = Some(Instant::now() + self.patience());
                    self.kill(call.id).await?;
                }
            }
        }
    }

    /// Has a file task done. The descriptors are sent along and closed on this side. Each report of the worker is a step.
    pub(crate) async fn files(
        &self,
        path: &Path,
        task: FileTask,
        fds: Vec<OwnedFd>,
        progress: &Progress,
    ) -> Result<FilesDone, Error> {
        let mut call = self.link.call();
        let mut guard = Guard { link: &self.link, id: call.id, ended: false };
        let waiting_for = format!("{} {}", task.purpose(), path.display());
        let request = Request { id: call.id, task: Task::Files(task) };
        let answered = async {
            let borrowed: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
            self.link.send(&request, &borrowed).await.map_err(|_| self.gone())?;
            drop(borrowed);
            drop(fds);
            loop {
                match call.reply().await.ok_or_else(|| self.gone())? {
                    // One that was cancelled is noticed by who works on it.
                    (Reply::Working { .. }, _) => drop(progress.step()),
                    other => return Ok(other),
                }
            }
        };
        let reply = tokio::select! {
            reply = answered => reply,
            () = progress.stalled(self.patience()) => Err(self.give_up(&waiting_for).await),
        };
        guard.ended = true;
        match reply? {
            (Reply::Finished { report, .. }, _) => Ok(FilesDone::Finished(report)),
            (Reply::Opened { .. }, fds) => {
                fds.into_iter().next().map(FilesDone::Opened).ok_or_else(|| self.gone())
            }
            (Reply::Refused { error, .. }, _) => Err(path_error(path, error.into())),
            // A fault of what runs in the sandbox or of the machine, whatever the path is.
            (Reply::WorkerKilled { .. }, _) => {
                let source = io::Error::other("the file worker was killed");
                Err(Error::Io { what: format!("waited for {waiting_for}"), source })
            }
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Stops all processes, or lets them continue.
    pub(crate) async fn pause(&self, paused: Paused) -> Result<(), Error> {
        match self.ask("processes to stop or continue", Task::Pause(paused)).await? {
            Reply::Finished { .. } => Ok(()),
            Reply::Refused { error, .. } => {
                Err(Error::Io { what: "stopping the processes".into(), source: error.into() })
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Has a file task begun that reports over its stream alone, and lasts until that is closed.
    pub(crate) async fn begin_files(&self, task: FileTask, stream: OwnedFd) -> Result<(), Error> {
        let request = Request { id: 0, task: Task::Files(task) };
        let sent =
            async { self.link.send(&request, &[stream.as_fd()]).await.map_err(|_| self.gone()) };
        self.answered("a task to begin", sent).await
    }

    pub(crate) fn inside(&self, path: &Path) -> PathBuf {
        self.plan.workdir.join(path)
    }
}

/// The next signal for a program; never returns once there can be none.
async fn next_signal(signals: &mut Option<mpsc::Receiver<i32>>) -> i32 {
    if let Some(receiver) = signals {
        if let Some(signal) = receiver.recv().await {
            return signal;
        }
        *signals = None;
    }
    std::future::pending().await
}

pub(crate) enum FilesDone {
    Finished(Report),
    Opened(OwnedFd),
}

impl FilesDone {
    fn report(self) -> Report {
        match self {
            Self::Finished(report) => report,
            Self::Opened(_) => Report::default(),
        }
    }
}

pub(crate) fn pipe_pair() -> Result<(OwnedFd, OwnedFd), Error> {
    let (reading, writing) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(io::Error::from)
        .map_err(Error::io("making a pipe"))?;
    // Only for speed: it fails where the user's share of pipe memory is spent.
    let _ = rustix::pipe::fcntl_setpipe_size(&writing, pump::PIPE_SIZE);
    Ok((reading, writing))
}

pub(crate) async fn joined<T>(task: JoinHandle<io::Result<T>>) -> io::Result<T> {
    task.await.map_err(io::Error::other).and_then(|result| result)
}

impl Sandbox for NativeSandbox {
    fn id(&self) -> &str {
        &self.plan.id
    }

    fn protection(&self) -> &Protection {
        &self.protection
    }

    #[tracing::instrument(level = "debug", skip_all, fields(sandbox = self.plan.id))]
    async fn shell(&self, command: &ShellCommand) -> Result<ExecOutput, Error> {
        command.validate()?;
        let _one = self.shell.lock().await;
        let mut script =
            wire::memory_file(&command.script).map_err(Error::io("storing the command"))?;
        script.rewind().map_err(Error::io("storing the command"))?;
        let (mut call, fds) = self.start(Task::Shell, &[script.as_fd()]).await?;
        let begun = call.begun;
        let mut fds = fds.into_iter();
        let mut collector = || {
            let fd = fds.next().ok_or_else(|| self.gone())?;
            Collector::new(fd, command.cap).map_err(Error::io("reading output"))
        };
        let (mut out, mut err) = (collector()?, collector()?);
        let ending = {
            let deadline = begun.checked_add(command.timeout);
            let mut ending = std::pin::pin!(self.ending(&mut call, deadline));
            loop {
                tokio::select! {
                    ending = &mut ending => break ending?,
                    () = out.fill() => {}
                    () = err.fill() => {}
                }
            }
        };
        let duration = begun.elapsed();
        let (stdout, stderr) = tokio::join!(out.finish(), err.finish());
        let Ending { status, cause, shell_lost } = ending;
        Ok(ExecOutput { stdout, stderr, status, cause, duration, shell_lost })
    }

    #[tracing::instrument(level = "debug", skip_all, fields(sandbox = self.plan.id))]
    async fn process(&self, process: &Process, streams: Streams) -> Result<Exit, Error> {
        self.run_program(process, streams, Control::default()).await
    }
    #[tracing::instrument(level = "debug", skip_all, fields(sandbox = self.plan.id, path = %path.display()))]
    async fn read_file(&self, path: &Path) -> Result<Input, Error> {
        let task = FileTask::Open(self.inside(path).as_path().into());
        match self.files(path, task, Vec::new(), &Progress::default()).await? {
            FilesDone::Opened(fd) => Ok(Box::new(tokio::fs::File::from_std(File::from(fd)))),
            FilesDone::Finished(_) => Err(self.gone()),
        }
    }

    #[tracing::instrument(level = "debug", skip_all, fields(sandbox = self.plan.id, path = %path.display()))]
    async fn write_file(&self, path: &Path, contents: &[u8]) -> Result<(), Error> {
        let mut file = wire::memory_file(contents).map_err(Error::io("storing the file"))?;
        file.rewind().map_err(Error::io("storing the file"))?;
        let task = FileTask::Write(self.inside(path).as_path().into());
        self.files(path, task, vec![file.into()], &Progress::default()).await.map(drop)
    }

    #[tracing::instrument(level = "debug", skip_all, fields(sandbox = self.plan.id, path = %path.display()))]
    async fn list(&self, path: &Path) -> Result<Vec<Entry>, Error> {
        let task = FileTask::List(self.inside(path).as_path().into());
        let bytes = self.small_answer(path, task, MAX_LISTING).await?;
        read_list(&bytes).map_err(Error::io("reading a listing"))
    }

    #[tracing::instrument(level = "debug", skip_all, fields(sandbox = self.plan.id, path = %path.display()))]
    async fn copy_in(&self, host: &Path, path: &Path) -> Result<CopyReport, Error> {
        let meta = tokio::fs::metadata(host).await;
        meta.map_err(|source| Error::HostPath { path: host.to_owned(), source })?;
        let (reading, writing) = pipe_pair()?;
        let (from, name) = (host.to_owned(), self.inside(path));
        let progress = Progress::default();
        let stream = Transfer::new(writing, &progress).map_err(Error::io("preparing a pipe"))?;
        let steps = progress.clone();
        let pack = tokio::task::spawn_blocking(move || {
            let stream = io::BufWriter::with_capacity(1 << 16, stream);
            archive::pack(&from, &name, stream, &|| steps.step())
        });
        let cancel = progress.cancel_on_drop();
        let unpacked = self.files(path, FileTask::Unpack, vec![reading], &progress).await;
        if unpacked.is_err() {
            drop(cancel);
        }
        let packed = joined(pack).await;
        unpacked?;
        packed.map_err(|error| host_path_error(host, error))
    }

    #[tracing::instrument(level = "debug", skip_all, fields(sandbox = self.plan.id, path = %path.display()))]
    async fn copy_out(&self, path: &Path, host: &Path) -> Result<CopyReport, Error> {
        let (reading, writing) = pipe_pair()?;
        let to = host.to_owned();
        // Holes and hard links can make a tree far larger than the space it takes inside.
        let most = self.most();
        let progress = Progress::default();
        let streamed = most.saturating_mul(HEADERS_PER_CHARGE);
        let (stream, verdict) = self.incoming(reading, &progress, streamed)?;
        let steps = progress.clone();
        let unpack = tokio::task::spawn_blocking(move || {
            archive::unpack(most, stream, &to, &|| steps.step())
        });
        let cancel = progress.cancel_on_drop();
        let task = FileTask::Pack(self.inside(path).as_path().into());
        let packed = self.files(path, task, vec![writing], &progress).await;
        match &packed {
            Ok(_) => verdict.complete(),
            Err(error) if error.is_gone() => drop(cancel),
            Err(_) => {}
        }
        drop(verdict);
        let unpacked = joined(unpack).await;
        // Where the reader failed, the writer only saw a closed pipe.
        let mut report = match (unpacked, &packed) {
            (Ok(report), _) => report,
            // Nothing arrived: the sandbox's error, returned below, has the cause.
            (Err(_), Err(Error::Path { source, .. } | Error::Io { source, .. }))
                if source.kind() != io::ErrorKind::BrokenPipe =>
            {
                CopyReport::default()
            }
            (Err(_), Err(error)) if error.is_gone() => CopyReport::default(),
            (Err(error), _) => return Err(host_path_error(host, error)),
        };
        let packed = packed?.report();
        for (path, why) in packed.skipped {
            report.skip(path.into(), why);
        }
        report.more_skipped = report.more_skipped.saturating_add(packed.more_skipped);
        Ok(report)
    }

    #[tracing::instrument(level = "debug", skip_all, fields(sandbox = self.plan.id))]
    async fn fork(&self) -> Result<Self, Error> {
        let id = self.shared.next_id();
        let plan = Plan { id: id.clone(), uppers: Uppers::Prepared, ..self.plan.clone() };
        let mut prepared = Prepared { shared: &self.shared, id: Some(id) };
        let dirs = self.shared.prepare(&plan, self.patience()).await?;
        let copied = Progress::default();
        self.files(Path::new("/"), FileTask::CopyUppers, dirs, &copied).await?;
        prepared.id = None;
        self.shared.create(plan, self.spec.clone(), self.lease.clone()).await
    }

    #[tracing::instrument(level = "debug", skip_all, fields(sandbox = self.plan.id, image = name))]
    async fn snapshot(&self, name: &str) -> Result<(), Error> {
        let refused =
            |why: image::NameError| RequestError::SnapshotRejected { message: why.to_string() };
        image::check_name(name).map_err(refused)?;
        let store = self.shared.store.clone();
        let (image, name) = (self.spec.image.clone(), name.to_owned());
        let commit = move |layer: LayerStream| match image {
            ImageRef::Host => store.commit(&name, None, layer),
            ImageRef::Name(base) => store.commit(&name, Some(&base), layer),
            ImageRef::Dir(dir) => store.commit_on_dir(&name, &dir, layer),
        };
        self.save_layer(commit).await.map(drop)
    }

    #[tracing::instrument(level = "debug", skip_all, fields(sandbox = self.plan.id))]
    async fn freeze(&self) -> Result<(), Error> {
        // A running shell command is waited for, not interrupted.
        let _one = self.shell.lock().await;
        match self.ask("the files to become read-only", Task::Freeze).await? {
            Reply::Finished { .. } => Ok(()),
            Reply::Refused { error, .. } => Err(Error::Io {
                what: "making the sandbox's files read-only".into(),
                source: error.into(),
            }),
            other => Err(unexpected(&other)),
        }
    }

    async fn peak_memory(&self) -> Result<Option<ByteSize>, Error> {
        match self.ask("the memory use", Task::PeakMemory).await? {
            Reply::Peak { bytes, .. } => Ok(bytes.map(ByteSize)),
            other => Err(unexpected(&other)),
        }
    }

    async fn usage(&self) -> Result<Usage, Error> {
        match self.ask("the use of memory and disk", Task::Usage).await? {
            Reply::Usage { memory, cache, disk, cpu_us, .. } => Ok(Usage {
                memory: memory.map(ByteSize),
                cache: cache.map(ByteSize),
                disk: disk.map(ByteSize),
                cpu: Some(Duration::from_micros(cpu_us)),
            }),
            other => Err(unexpected(&other)),
        }
    }

    #[tracing::instrument(level = "debug", skip_all, fields(sandbox = self.plan.id, path = %directory.display()))]
    async fn written(&self, directory: &Path, since: u64) -> Result<Option<Written>, Error> {
        let inside = WirePath::from(self.inside(directory).as_path());
        let task = FileTask::Written { directory: inside, since };
        let bytes = self.small_answer(directory, task, MAX_REPORT).await?;
        read_written(&bytes).map(Some).map_err(Error::io("reading changed files"))
    }

    fn refused_connections(&self) -> Vec<RefusedConnections> {
        self.proxy.as_ref().map(Proxy::refused).unwrap_or_default()
    }

    #[tracing::instrument(level = "debug", skip_all, fields(sandbox = self.plan.id))]
    async fn destroy(self) -> Result<(), Error> {
        let limit = self.patience();
        self.shared.destroy(&self.plan.id, limit).await
    }
}
