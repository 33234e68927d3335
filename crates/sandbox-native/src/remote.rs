//! [`RemoteSandbox`] for sandboxes of the native runtime.

use std::{fs::File, io, os::fd::OwnedFd, path::Path};

use sandbox::{
    Control, Error, Exit, FileEvent, FileInfo, FileOperation, Identity, Input, Paused, Process,
    Progress, RemoteRuntime, RemoteSandbox, Streams, WatchDepth,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, unix::pipe},
    sync::mpsc,
};

use crate::{
    NativeRuntime, NativeSandbox,
    handle::{FilesDone, path_error, pipe_pair},
    init::{FileTask, Operation, WireChange, WireInfo},
};

/// Longest accepted description of files, in bytes.
const MAX_DESCRIPTION: u64 = 64 << 20;
/// Longest accepted report of a change, in bytes: a path and its kind.
const MAX_CHANGE: u32 = 16 << 10;
/// Most bytes of one frame of content.
const FRAME: usize = 64 << 10;
/// Changes that wait for the receiver.
const WAITING_CHANGES: usize = 1024;

impl NativeSandbox {
    /// Performs an operation whose first stream carries descriptions.
    async fn describe(
        &self,
        user: &Identity,
        path: &Path,
        operation: Operation,
        (more, progress): (Vec<OwnedFd>, &Progress),
    ) -> Result<Vec<FileInfo>, Error> {
        let failed = Error::io("reading a description");
        let (reading, writing) = pipe_pair()?;
        let reading =
            pipe::Receiver::from_owned_fd(reading).map_err(Error::io("opening a pipe"))?;
        let task = FileTask::As { user: user.clone(), operation };
        let fds = std::iter::once(writing).chain(more).collect();
        let mut bytes = Vec::new();
        let mut reading = reading.take(MAX_DESCRIPTION);
        let read = async {
            let read = reading.read_to_end(&mut bytes).await;
            read.map(drop).map_err(failed)
        };
        // The worker writes before it reports, and may write more than the pipe holds.
        tokio::try_join!(self.files(path, task, fds, progress), read)?;
        if bytes.is_empty() {
            return Ok(Vec::new());
        }
        let infos: Vec<WireInfo> = postcard::from_bytes(&bytes)
            .map_err(io::Error::other)
            .map_err(Error::io("reading a description"))?;
        Ok(infos.into_iter().map(FileInfo::from).collect())
    }
}

impl RemoteSandbox for NativeSandbox {
    #[tracing::instrument(level = "debug", skip_all, fields(sandbox = self.plan.id))]
    async fn controlled_process(
        &self,
        process: &Process,
        streams: Streams,
        control: Control,
    ) -> Result<Exit, Error> {
        self.run_program(process, streams, control).await
    }

    #[tracing::instrument(level = "debug", skip_all, fields(sandbox = self.plan.id))]
    async fn file_operation(
        &self,
        user: &Identity,
        operation: &FileOperation,
    ) -> Result<Vec<FileInfo>, Error> {
        let wire = |path: &Path| self.inside(path).as_path().into();
        let (path, operation) = match operation {
            FileOperation::Describe(path) => (path, Operation::Describe(wire(path))),
            FileOperation::List { path, depth } => {
                (path, Operation::List { path: wire(path), depth: *depth })
            }
            FileOperation::CreateDirectory(path) => (path, Operation::CreateDirectory(wire(path))),
            FileOperation::Move { from, to } => {
                (from, Operation::Move { from: wire(from), to: wire(to) })
            }
            FileOperation::Remove(path) => (path, Operation::Remove(wire(path))),
            FileOperation::AddUser { name, uid, home } => {
                (home, Operation::AddUser { name: name.clone(), uid: *uid, home: wire(home) })
            }
        };
        self.describe(user, path, operation, (Vec::new(), &Progress::default())).await
    }

    #[tracing::instrument(level = "debug", skip_all, fields(sandbox = self.plan.id))]
    async fn read_file_as(&self, user: &Identity, path: &Path) -> Result<Input, Error> {
        let operation = Operation::Open(self.inside(path).as_path().into());
        let task = FileTask::As { user: user.clone(), operation };
        match self.files(path, task, Vec::new(), &Progress::default()).await? {
            FilesDone::Opened(fd) => Ok(Box::new(tokio::fs::File::from_std(File::from(fd)))),
            FilesDone::Finished(_) => Err(self.gone()),
        }
    }

    #[tracing::instrument(level = "debug", skip_all, fields(sandbox = self.plan.id))]
    async fn write_file_as(
        &self,
        user: &Identity,
        path: &Path,
        content: Input,
        attributes: &[(String, String)],
    ) -> Result<FileInfo, Error> {
        let (reading, writing) = pipe_pair()?;
        let progress = Progress::default();
        let feeding = tokio::spawn(send_frames(content, writing, progress.clone()));
        // Aborts it where this request is dropped.
        let _stop = AbortOnDrop(feeding.abort_handle());
        let attributes = attributes.to_vec();
        let operation = Operation::Write { path: self.inside(path).as_path().into(), attributes };
        let written = self.describe(user, path, operation, (vec![reading], &progress)).await;
        if written.is_err() {
            feeding.abort();
        }
        // The content may be part of a stream that the caller reads on.
        if let Ok(Err(error)) = feeding.await {
            // The sandbox only saw that the stream was cut off.
            return Err(Error::Io { what: "receiving the file's content".into(), source: error });
        }
        written?.pop().ok_or_else(|| self.gone())
    }

    #[tracing::instrument(level = "debug", skip_all, fields(sandbox = self.plan.id))]
    async fn watch(
        &self,
        user: &Identity,
        path: &Path,
        depth: WatchDepth,
    ) -> Result<mpsc::Receiver<FileEvent>, Error> {
        let (reading, writing) = pipe_pair()?;
        let mut changes =
            pipe::Receiver::from_owned_fd(reading).map_err(Error::io("reading changes"))?;
        let operation = Operation::Watch {
            path: self.inside(path).as_path().into(),
            recursive: depth == WatchDepth::Recursive,
        };
        let task = FileTask::As { user: user.clone(), operation };
        self.begin_files(task, writing).await?;
        let first = async { Ok(next_change(&mut changes).await) };
        match self.answered("a directory to be watched", first).await? {
            Ok(WireChange::Watching) => {}
            Ok(WireChange::Failed(error)) => return Err(path_error(path, error.into())),
            Ok(WireChange::Changed { .. }) | Err(_) => return Err(self.gone()),
        }
        let (sender, receiver) = mpsc::channel(WAITING_CHANGES);
        tokio::spawn(async move {
            loop {
                let change = tokio::select! {
                    change = next_change(&mut changes) => change,
                    () = sender.closed() => return,
                };
                let Ok(WireChange::Changed { name, kind }) = change else { return };
                if sender.send(FileEvent { name: name.into(), kind }).await.is_err() {
                    return;
                }
            }
        });
        Ok(receiver)
    }

    #[tracing::instrument(level = "debug", skip_all, fields(sandbox = self.plan.id, ?paused))]
    async fn set_paused(&self, paused: Paused) -> Result<(), Error> {
        self.pause(paused).await
    }

    #[tracing::instrument(level = "debug", skip_all, fields(sandbox = self.plan.id, port))]
    async fn connect(&self, port: u16) -> Result<TcpStream, Error> {
        let name = format!("port {port}");
        let task = FileTask::Connect(port);
        match self.files(Path::new(&name), task, Vec::new(), &Progress::default()).await? {
            FilesDone::Opened(fd) => {
                let stream = std::net::TcpStream::from(fd);
                stream.set_nonblocking(true).map_err(Error::io("connecting"))?;
                TcpStream::from_std(stream).map_err(Error::io("connecting"))
            }
            FilesDone::Finished(_) => Err(self.gone()),
        }
    }
}

/// Ends a task.
struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Sends content in frames, each preceded by its length; the last one is empty. Where the content fails, there is no last
/// one. That the other side stops reading is not an error: it says why itself.
async fn send_frames(mut content: Input, pipe: OwnedFd, progress: Progress) -> io::Result<()> {
    let mut pipe = pipe::Sender::from_owned_fd(pipe)?;
    let mut buffer = vec![0u8; FRAME];
    loop {
        // However slow the client is, the sandbox is not at fault.
        progress.set_busy(true);
        let length = content.read(&mut buffer).await;
        progress.set_busy(false);
        let length = length?;
        let _ = progress.step();
        let prefix = u32::try_from(length).map_err(io::Error::other)?.to_le_bytes();
        let sent = match pipe.write_all(&prefix).await {
            Ok(()) => pipe.write_all(&buffer[..length]).await,
            Err(error) => Err(error),
        };
        if length == 0 || sent.is_err() {
            return Ok(());
        }
    }
}

impl RemoteRuntime for NativeRuntime {
    async fn has_image(&self, name: &str) -> Result<bool, Error> {
        let (store, name) = (self.store().clone(), name.to_owned());
        let found = tokio::task::spawn_blocking(move || store.contains(&name)).await;
        let found = found.map_err(io::Error::other).map_err(Error::io("looking for an image"))?;
        let what = "looking for an image".into();
        found.map_err(|error| Error::Service { what, source: Box::new(error) })
    }

    async fn remove_image(&self, name: &str) -> Result<bool, Error> {
        let (store, name) = (self.store().clone(), name.to_owned());
        let removed = tokio::task::spawn_blocking(move || store.remove(&name)).await;
        match removed.map_err(io::Error::other).map_err(Error::io("removing an image"))? {
            Ok(()) => Ok(true),
            Err(image::Error::Unknown { .. }) => Ok(false),
            Err(error) => {
                Err(Error::Service { what: "removing an image".into(), source: Box::new(error) })
            }
        }
    }
}

async fn next_change(changes: &mut pipe::Receiver) -> io::Result<WireChange> {
    let length = changes.read_u32_le().await?;
    if length > MAX_CHANGE {
        return Err(io::Error::other("a report that is too long"));
    }
    let mut body = vec![0; length as usize];
    changes.read_exact(&mut body).await?;
    postcard::from_bytes(&body).map_err(io::Error::other)
}
