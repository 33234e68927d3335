//! [`NativeSandbox`]: a running sandbox, as its owner uses it. Every operation is a request to the sandbox's PID 1.

use std::{
    fs::File,
    io::{self, Seek},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use sandbox::{
    ByteSize, CopyReport, Entry, Error, ExecOutput, Exit, ImageRef, Input, Process, Protection,
    RefusedConnections, Sandbox, ShellCommand, Skipped, Spec, Streams, Usage, archive,
};
use tokio::{
    sync::{Mutex, oneshot},
    task::JoinHandle,
    time::{sleep_until, timeout},
};

use crate::{
    init::{Ending, FileTask, Reply, Report, Request, Task, read_list},
    link::{Call, Link, Numbered},
    plan::{Plan, Uppers},
    proxy::Proxy,
    pump::{self, Collector, Terminal},
    runtime::Shared,
    wire,
};

/// How long to wait for output after its program has ended.
const OUTPUT_GRACE: Duration = Duration::from_millis(50);

/// Longest accepted directory listing, in bytes.
const MAX_LISTING: u64 = 64 << 20;
/// How long PID 1 may take for a reply that should take milliseconds.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

impl Numbered for Reply {
    fn number(&self) -> Option<u32> {
        match self {
            Self::Ready | Self::NotReady(_) | Self::Stopped(_) | Self::Diagnostic(_) => None,
            Self::Started { id }
            | Self::Ended { id, .. }
            | Self::Opened { id }
            | Self::Finished { id, .. }
            | Self::Refused { id, .. }
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
}

/// Kills the command when dropped before its end was seen.
struct Guard<'a> {
    link: &'a Link<Reply>,
    id: u32,
    ended: bool,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if !self.ended {
            let _ = self.link.send_now(&Request { id: 0, task: Task::Kill { running: self.id } });
        }
    }
}

fn unexpected(reply: &Reply) -> Error {
    Error::Gone(format!("unexpected reply from PID 1: {reply:?}"))
}

/// A failure at a path inside the sandbox: the path's fault, or the machine's.
fn path_error(path: &Path, source: io::Error) -> Error {
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

/// A reader that closes a program's output early is not an error.
fn unless_closed(error: io::Error) -> Result<(), Error> {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(Error::Io { what: "forwarding the program's output".into(), source: error }),
    }
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

/// A stream that ends only once its writer is known to have finished. A stream that was cut off fails instead, and so
/// does one that is longer than allowed.
struct CompleteStream {
    stream: io::BufReader<File>,
    verdict: std::sync::mpsc::Receiver<()>,
    left: u64,
}

/// What a sandbox has changed, as a tar stream with OCI whiteouts. Reading fails if the sandbox ends before the stream is
/// complete.
pub struct LayerStream(CompleteStream);

impl io::Read for LayerStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

/// Reports to the [`CompleteStream`] that its writer has finished.
fn confirm_if_complete<T>(written: &Result<T, Error>, confirm: &std::sync::mpsc::Sender<()>) {
    if written.is_ok() {
        // A reader asks once for every end of file it sees, which may be more than once.
        for _ in 0..8 {
            let _ = confirm.send(());
        }
    }
}

impl io::Read for CompleteStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.stream.read(buffer)? {
            0 if !buffer.is_empty() => match self.verdict.recv() {
                Ok(()) => Ok(0),
                Err(_) => Err(io::Error::other("the sandbox ended before the stream was complete")),
            },
            n => {
                self.left = self.left.checked_sub(n as u64).ok_or_else(|| {
                    io::Error::other("the files are larger than the sandbox's disk limit allows")
                })?;
                Ok(n)
            }
        }
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
        let (confirm, verdict) = std::sync::mpsc::channel();
        // Headers of many small files take space as well.
        let left = self.most().saturating_mul(2);
        let saving = tokio::task::spawn_blocking(move || {
            let stream = io::BufReader::with_capacity(1 << 16, File::from(reading));
            save(LayerStream(CompleteStream { stream, verdict, left }))
        });
        let packed = self.files(Path::new("/"), FileTask::PackUppers, vec![writing]).await;
        confirm_if_complete(&packed, &confirm);
        drop(confirm);
        let saved = saving.await.map_err(|error| failed(Box::new(error)))?;
        packed?;
        saved.map_err(|error| failed(Box::new(error)))
    }

    /// The error for a PID 1 that has ended, with what it reported.
    fn gone(&self) -> Error {
        match self.link.stopped() {
            Some(why) => Error::HostFull(why.to_owned()),
            None => Error::Gone(self.link.log().explain("its first process has ended")),
        }
    }

    async fn start(
        &self,
        task: Task,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(Command<'_>, Vec<OwnedFd>), Error> {
        let mut call = self.link.call();
        let mut guard = Guard { link: &self.link, id: call.id, ended: false };
        let request = Request { id: call.id, task };
        self.link.send(&request, fds).await.map_err(|_| self.gone())?;
        let reply = match timeout(REPLY_TIMEOUT, call.reply()).await {
            Ok(reply) => reply,
            Err(_) => return Err(self.give_up().await),
        };
        match reply.ok_or_else(|| self.gone())? {
            (Reply::Started { .. }, fds) => Ok((Command { call, guard }, fds)),
            (Reply::Refused { error, .. }, _) => {
                guard.ended = true;
                let what = "starting a command in the sandbox".into();
                Err(Error::Io { what, source: error.into() })
            }
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Destroys a sandbox whose PID 1 does not answer, and returns the error to report.
    async fn give_up(&self) -> Error {
        let _ = self.shared.destroy(&self.plan.id).await;
        Error::Gone(format!(
            "it did not answer for {} s and was destroyed",
            REPLY_TIMEOUT.as_secs()
        ))
    }

    /// Sends a request that PID 1 answers by itself, without a child.
    async fn ask(&self, task: Task) -> Result<Reply, Error> {
        let mut call = self.link.call();
        let request = Request { id: call.id, task };
        self.link.send(&request, &[]).await.map_err(|_| self.gone())?;
        match timeout(REPLY_TIMEOUT, call.reply()).await {
            Ok(reply) => reply.map(|(reply, _)| reply).ok_or_else(|| self.gone()),
            Err(_) => Err(self.give_up().await),
        }
    }

    async fn kill(&self, id: u32) -> Result<(), Error> {
        let request = Request { id: 0, task: Task::Kill { running: id } };
        self.link.send(&request, &[]).await.map_err(|_| self.gone())
    }

    /// Waits until a command has ended; kills it at the deadline.
    async fn ending(
        &self,
        command: &mut Command<'_>,
        deadline: Option<Instant>,
    ) -> Result<Ending, Error> {
        let Command { call, guard } = command;
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
                () = sleep_until(deadline.unwrap_or(far).into()) => {
                    if killed {
                        guard.ended = true;
                        return Err(self.give_up().await);
                    }
                    killed = true;
                    deadline = Some(Instant::now() + REPLY_TIMEOUT);
                    self.kill(call.id).await?;
                }
            }
        }
    }

    /// Has a file task done. The descriptors are sent along and closed on this side.
    async fn files(
        &self,
        path: &Path,
        task: FileTask,
        fds: Vec<OwnedFd>,
    ) -> Result<FilesDone, Error> {
        let mut call = self.link.call();
        let request = Request { id: call.id, task: Task::Files(task) };
        let borrowed: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        self.link.send(&request, &borrowed).await.map_err(|_| self.gone())?;
        drop(fds);
        match call.reply().await.ok_or_else(|| self.gone())? {
            (Reply::Finished { report, .. }, _) => Ok(FilesDone::Finished(report)),
            (Reply::Opened { .. }, fds) => {
                fds.into_iter().next().map(FilesDone::Opened).ok_or_else(|| self.gone())
            }
            (Reply::Refused { error, .. }, _) => Err(path_error(path, error.into())),
            (other, _) => Err(unexpected(&other)),
        }
    }

    fn inside(&self, path: &Path) -> PathBuf {
        self.plan.workdir.join(path)
    }

    async fn run_in_terminal(
        &self,
        command: &mut Command<'_>,
        terminal: OwnedFd,
        (input, output): (Input, sandbox::Output),
        mut size: tokio::sync::watch::Receiver<sandbox::TerminalSize>,
        deadline: Option<Instant>,
    ) -> Result<Ending, Error> {
        let terminal = Terminal::new(terminal).map_err(Error::io("opening the terminal"))?;
        let mut show = std::pin::pin!(terminal.show(output));
        let mut shown = false;
        let talk = async {
            let resize = async {
                loop {
                    let now = *size.borrow_and_update();
                    let _ = terminal.resize(now);
                    if size.changed().await.is_err() {
                        return std::future::pending::<()>().await;
                    }
                }
            };
            let _ = tokio::join!(terminal.type_in(input), resize);
        };
        let ending = tokio::select! {
            ending = self.ending(command, deadline) => ending,
            _ = async {
                let _ = show.as_mut().await;
                shown = true;
                std::future::pending::<()>().await
            } => Err(self.gone()),
            () = talk => Err(self.gone()),
        };
        if !shown {
            let _ = tokio::time::timeout(OUTPUT_GRACE, show).await;
        }
        ending
    }
}

enum FilesDone {
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

fn pipe_pair() -> Result<(OwnedFd, OwnedFd), Error> {
    let (reading, writing) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(io::Error::from)
        .map_err(Error::io("making a pipe"))?;
    // Only for speed: it fails where the user's share of pipe memory is spent.
    let _ = rustix::pipe::fcntl_setpipe_size(&writing, pump::PIPE_SIZE);
    Ok((reading, writing))
}

async fn joined<T>(task: JoinHandle<io::Result<T>>) -> io::Result<T> {
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
        let begun = Instant::now();
        let (mut call, fds) = self.start(Task::Shell, &[script.as_fd()]).await?;
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
        process.validate()?;
        let begun = Instant::now();
        let deadline = process.timeout.and_then(|timeout| begun.checked_add(timeout));
        let terminal = match &streams {
            Streams::Terminal { size, .. } => Some(*size.borrow()),
            Streams::Pipes { .. } => None,
        };
        let task = Task::Program {
            argv: process.argv.clone(),
            env: process.env.clone(),
            workdir: process.workdir.as_ref().map(|dir| self.inside(dir).as_path().into()),
            terminal,
        };
        let ending = match streams {
            Streams::Terminal { input, output, size } => {
                let (mut call, fds) = self.start(task, &[]).await?;
                let fd = fds.into_iter().next().ok_or_else(|| self.gone())?;
                self.run_in_terminal(&mut call, fd, (input, output), size, deadline).await?
            }
            Streams::Pipes { stdin, stdout, stderr } => {
                let (child_in, feeder) = match stdin {
                    Some(input) => {
                        let (reading, writing) = pipe_pair()?;
                        (reading, Some(tokio::spawn(pump::feed(input, writing))))
                    }
                    None => (
                        File::open("/dev/null").map_err(Error::io("opening /dev/null"))?.into(),
                        None,
                    ),
                };
                let (out, child_out) = pipe_pair()?;
                let (err, child_err) = pipe_pair()?;
                let child = [child_in.as_fd(), child_out.as_fd(), child_err.as_fd()];
                let (mut call, _) = self.start(task, &child).await?;
                drop((child_in, child_out, child_err));
                let (out_ended, ended) = oneshot::channel();
                let out = tokio::spawn(pump::forward(out, stdout, ended));
                let (err_ended, ended) = oneshot::channel();
                let err = tokio::spawn(pump::forward(err, stderr, ended));
                let ending = self.ending(&mut call, deadline).await;
                drop((out_ended, err_ended));
                if let Some(feeder) = feeder {
                    feeder.abort();
                }
                let (out, err) = tokio::join!(joined(out), joined(err));
                let ending = ending?;
                out.and(err).or_else(unless_closed)?;
                ending
            }
        };
        Ok(Exit { status: ending.status, cause: ending.cause, duration: begun.elapsed() })
    }

    #[tracing::instrument(level = "debug", skip_all, fields(sandbox = self.plan.id, path = %path.display()))]
    async fn read_file(&self, path: &Path) -> Result<Input, Error> {
        let task = FileTask::Open(self.inside(path).as_path().into());
        match self.files(path, task, Vec::new()).await? {
            FilesDone::Opened(fd) => Ok(Box::new(tokio::fs::File::from_std(File::from(fd)))),
            FilesDone::Finished(_) => Err(self.gone()),
        }
    }

    #[tracing::instrument(level = "debug", skip_all, fields(sandbox = self.plan.id, path = %path.display()))]
    async fn write_file(&self, path: &Path, contents: &[u8]) -> Result<(), Error> {
        let mut file = wire::memory_file(contents).map_err(Error::io("storing the file"))?;
        file.rewind().map_err(Error::io("storing the file"))?;
        let task = FileTask::Write(self.inside(path).as_path().into());
        self.files(path, task, vec![file.into()]).await.map(drop)
    }

    #[tracing::instrument(level = "debug", skip_all, fields(sandbox = self.plan.id, path = %path.display()))]
    async fn list(&self, path: &Path) -> Result<Vec<Entry>, Error> {
        let (reading, writing) = pipe_pair()?;
        let read = tokio::task::spawn_blocking(move || {
            let mut bytes = Vec::new();
            let listing = File::from(reading);
            io::Read::read_to_end(&mut io::Read::take(listing, MAX_LISTING), &mut bytes)
                .map(|_| bytes)
        });
        let task = FileTask::List(self.inside(path).as_path().into());
        self.files(path, task, vec![writing]).await?;
        let bytes = joined(read).await.map_err(Error::io("reading a listing"))?;
        read_list(&bytes).map_err(Error::io("reading a listing"))
    }

    #[tracing::instrument(level = "debug", skip_all, fields(sandbox = self.plan.id, path = %path.display()))]
    async fn copy_in(&self, host: &Path, path: &Path) -> Result<CopyReport, Error> {
        let meta = tokio::fs::metadata(host).await;
        meta.map_err(|source| Error::HostPath { path: host.to_owned(), source })?;
        let (reading, writing) = pipe_pair()?;
        let (from, name) = (host.to_owned(), self.inside(path));
        let pack = tokio::task::spawn_blocking(move || {
            archive::pack(&from, &name, io::BufWriter::with_capacity(1 << 16, File::from(writing)))
        });
        let unpacked = self.files(path, FileTask::Unpack, vec![reading]).await;
        let packed = joined(pack).await;
        unpacked?;
        packed.map_err(|error| host_path_error(host, error))
    }

    #[tracing::instrument(level = "debug", skip_all, fields(sandbox = self.plan.id, path = %path.display()))]
    async fn copy_out(&self, path: &Path, host: &Path) -> Result<CopyReport, Error> {
        let (reading, writing) = pipe_pair()?;
        let to = host.to_owned();
        let (confirm, verdict) = std::sync::mpsc::channel();
        // Holes and hard links can make a tree far larger than the space it takes inside.
        let most = self.most();
        let unpack = tokio::task::spawn_blocking(move || {
            let stream = io::BufReader::with_capacity(1 << 16, File::from(reading));
            archive::unpack_at_most(most, CompleteStream { stream, verdict, left: u64::MAX }, &to)
        });
        let task = FileTask::Pack(self.inside(path).as_path().into());
        let packed = self.files(path, task, vec![writing]).await;
        confirm_if_complete(&packed, &confirm);
        drop(confirm);
        let unpacked = joined(unpack).await;
        // Where the reader failed, the writer only saw a closed pipe.
        let mut report = match (unpacked, &packed) {
            (Ok(report), _) => report,
            // Nothing arrived: the sandbox's error, returned below, has the cause.
            (Err(_), Err(Error::Path { source, .. }))
                if source.kind() != io::ErrorKind::BrokenPipe =>
            {
                CopyReport::default()
            }
            (Err(error), _) => return Err(host_path_error(host, error)),
        };
        let packed = packed?.report();
        report.skipped.extend(
            packed.skipped.into_iter().map(|(path, why)| Skipped { path: path.into(), why }),
        );
        Ok(report)
    }

    #[tracing::instrument(level = "debug", skip_all, fields(sandbox = self.plan.id))]
    async fn fork(&self) -> Result<Self, Error> {
        let id = self.shared.next_id();
        let plan = Plan { id: id.clone(), uppers: Uppers::Prepared, ..self.plan.clone() };
        let dirs = self.shared.prepare(&plan).await?;
        let mut prepared = Prepared { shared: &self.shared, id: Some(id) };
        self.files(Path::new("/"), FileTask::CopyUppers, dirs).await?;
        prepared.id = None;
        self.shared.create(plan, self.spec.clone(), self.lease.clone()).await
    }

    #[tracing::instrument(level = "debug", skip_all, fields(sandbox = self.plan.id, image = name))]
    async fn snapshot(&self, name: &str) -> Result<(), Error> {
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
        match self.ask(Task::Freeze).await? {
            Reply::Finished { .. } => Ok(()),
            Reply::Refused { error, .. } => Err(Error::Io {
                what: "making the sandbox's files read-only".into(),
                source: error.into(),
            }),
            other => Err(unexpected(&other)),
        }
    }

    async fn peak_memory(&self) -> Result<Option<ByteSize>, Error> {
        match self.ask(Task::PeakMemory).await? {
            Reply::Peak { bytes, .. } => Ok(bytes.map(ByteSize)),
            other => Err(unexpected(&other)),
        }
    }

    async fn usage(&self) -> Result<Usage, Error> {
        match self.ask(Task::Usage).await? {
            Reply::Usage { memory, disk, .. } => {
                Ok(Usage { memory: memory.map(ByteSize), disk: disk.map(ByteSize) })
            }
            other => Err(unexpected(&other)),
        }
    }

    fn refused_connections(&self) -> Vec<RefusedConnections> {
        self.proxy.as_ref().map(Proxy::refused).unwrap_or_default()
    }

    #[tracing::instrument(level = "debug", skip_all, fields(sandbox = self.plan.id))]
    async fn destroy(self) -> Result<(), Error> {
        self.shared.destroy(&self.plan.id).await
    }
}
