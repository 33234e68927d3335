//! The operations on sandboxes, except running programs.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use sandbox::{Captured, ExecOutput, Input, Runtime, Sandbox, ShellCommand, Spec, Usage};
use tokio::{
    io::AsyncReadExt,
    net::unix::{OwnedReadHalf, OwnedWriteHalf},
    time::timeout,
};

use super::{
    Server,
    connection::hang_up,
    registry::{Activity, Entry, Reservation, Traits},
};
use crate::{
    Name,
    error::Failure,
    frame::{self, Frame, Kind, MAX_DATA},
    message::{Evaluated, Extent, Info, Request, Response, State, WirePath},
};

/// How long a sandbox may take to report its use.
const USAGE_TIMEOUT: Duration = Duration::from_secs(2);

impl<R: Runtime> Server<R> {
    /// Answers a request that has an answer and nothing else.
    pub(super) async fn answer(&self, request: Request) -> Response {
        let answered = match request {
            Request::Create { name, spec, idle_timeout } => {
                self.create(&name, &spec, idle_timeout).await
            }
            Request::CopyIn { name, host, path, entry } => {
                self.copy_in(&name, host.into(), path.into(), entry.map(Into::into)).await
            }
            Request::CopyOut { name, path, host } => {
                let (path, host) = (PathBuf::from(path), PathBuf::from(host));
                self.with(&name, async |sandbox| sandbox.copy_out(&path, &host).await)
                    .await
                    .map(|report| Response::Copied(report.into()))
            }
            Request::Fork { name, new } => self.fork(&name, &new).await,
            Request::Save { name, image } => self
                .with(&name, async |sandbox| sandbox.snapshot(&image).await)
                .await
                .map(|()| Response::Done),
            Request::Remove { name } => self.remove(&name).await,
            Request::List => Ok(self.list().await),
            Request::Stop => {
                self.claim.note("a client asks to stop");
                self.registry.begin_to_end();
                self.registry.until_empty().await;
                Ok(Response::Done)
            }
            Request::Exec(_)
            | Request::Shell { .. }
            | Request::Read { .. }
            | Request::Write { .. } => Err(Failure::Rejected("unexpected here".into())),
        };
        answered.unwrap_or_else(Response::Failed)
    }

    /// Performs an operation on a sandbox, cancelled if the sandbox is removed meanwhile.
    pub(super) async fn with<T>(
        &self,
        name: &Name,
        operation: impl AsyncFnOnce(&R::Sandbox) -> Result<T, sandbox::Error>,
    ) -> Result<T, Failure> {
        let running = self.registry.begin(name)?;
        let removed = || Failure::Removed(name.clone());
        tokio::select! {
            done = async {
                let sandbox = running.entry.sandbox.read().await;
                let sandbox = sandbox.as_ref().ok_or_else(removed)?;
                operation(sandbox).await.map_err(|error| Failure::from(&error))
            } => done,
            () = running.entry.removed.cancelled() => Err(removed()),
        }
    }

    async fn create(
        &self,
        name: &Name,
        spec: &Spec,
        idle_timeout: Option<Duration>,
    ) -> Result<Response, Failure> {
        let reserved = self.registry.reserve(name)?;
        let created = self.runtime.create(spec).await;
        if let Err(sandbox::Error::Gone(why)) = &created {
            // The runtime itself is gone, and with it every sandbox.
            self.claim.note(&format!("the runtime has failed: {why}"));
            self.registry.break_down();
        }
        let sandbox = created.map_err(|error| Failure::from(&error))?;
        let (image, network) = (spec.image.to_string(), spec.network.clone());
        let traits = Traits { image, network, idle_timeout, stall_timeout: spec.stall_timeout };
        self.register(reserved, sandbox, traits).await
    }

    async fn register(
        &self,
        reserved: Reservation<R::Sandbox>,
        sandbox: R::Sandbox,
        traits: Traits,
    ) -> Result<Response, Failure> {
        let (id, protection) = (sandbox.id().to_owned(), sandbox.protection().clone());
        if let Err(unwanted) = reserved.fill(sandbox, traits) {
            // It is destroyed with its runtime in any case.
            let _ = unwanted.destroy().await;
            return Err(Failure::Ending);
        }
        self.record();
        Ok(Response::Created { id, protection })
    }

    async fn fork(&self, name: &Name, new: &Name) -> Result<Response, Failure> {
        let reserved = self.registry.reserve(new)?;
        let traits = self.registry.begin(name)?.entry.traits.clone();
        let fork = self.with(name, async |sandbox| sandbox.fork().await).await?;
        self.register(reserved, fork, traits).await
    }

    async fn remove(&self, name: &Name) -> Result<Response, Failure> {
        let entry = self.registry.take(name)?;
        self.destroy(&entry).await;
        Ok(Response::Done)
    }

    async fn list(&self) -> Response {
        let entries = self.registry.all_active();
        let infos = entries.iter().map(|(entry, activity)| info(entry, *activity));
        Response::Sandboxes(futures_util::future::join_all(infos).await)
    }

    async fn copy_in(
        &self,
        name: &Name,
        host: PathBuf,
        path: PathBuf,
        entry: Option<PathBuf>,
    ) -> Result<Response, Failure> {
        let report = self
            .with(name, async |sandbox| {
                let path = match entry {
                    Some(entry) if is_directory(sandbox, &path).await? => path.join(entry),
                    _ => path,
                };
                sandbox.copy_in(&host, &path).await
            })
            .await?;
        Ok(Response::Copied(report.into()))
    }

    /// Writes a file.
    pub(super) async fn write(&self, name: &Name, path: WirePath, contents: Vec<u8>) -> Response {
        let path = PathBuf::from(path);
        let written =
            self.with(name, async |sandbox| sandbox.write_file(&path, &contents).await).await;
        written.map_or_else(Response::Failed, |()| Response::Done)
    }

    /// Sends the content of a file.
    pub(super) async fn read(
        &self,
        name: &Name,
        path: WirePath,
        reader: OwnedReadHalf,
        mut writer: OwnedWriteHalf,
    ) -> io::Result<()> {
        let path = PathBuf::from(path);
        let sending = async {
            let stall_timeout = self.registry.begin(name).map(|one| one.entry.traits.stall_timeout);
            let opened = self.with(name, async |sandbox| sandbox.read_file(&path).await).await;
            let opened = stall_timeout.and_then(|time| opened.map(|file| (file, time)));
            let response = match opened {
                Ok((file, stall_timeout)) => {
                    let opened = Response::Opened { stall_timeout };
                    frame::write(&mut writer, &Frame::message(&opened)?).await?;
                    send_file(file, &mut writer).await?
                }
                Err(failure) => Response::Failed(failure),
            };
            frame::write(&mut writer, &Frame::message(&response)?).await
        };
        tokio::select! {
            sent = sending => sent,
            gone = hang_up(reader) => gone,
        }
    }

    /// Evaluates a script in the sandbox's shell, and sends its captured output.
    pub(super) async fn shell(
        &self,
        name: &Name,
        script: String,
        timeout: Duration,
        reader: OwnedReadHalf,
        mut writer: OwnedWriteHalf,
    ) -> io::Result<()> {
        let command = ShellCommand::new(script).timeout(timeout);
        let evaluating = self.with(name, async |sandbox| sandbox.shell(&command).await);
        let output = tokio::select! {
            output = evaluating => output,
            gone = hang_up(reader) => return gone,
        };
        let response = match output {
            Ok(ExecOutput { stdout, stderr, status, cause, duration, shell_lost }) => {
                let (stdout, stderr) = (
                    send_captured(&mut writer, Kind::Output, &stdout).await?,
                    send_captured(&mut writer, Kind::Errors, &stderr).await?,
                );
                let done = Evaluated { status, cause, duration, shell_lost, stdout, stderr };
                Response::Evaluated(done)
            }
            Err(failure) => Response::Failed(failure),
        };
        frame::write(&mut writer, &Frame::message(&response)?).await
    }
}

async fn send_captured(
    writer: &mut OwnedWriteHalf,
    kind: Kind,
    captured: &Captured,
) -> io::Result<Extent> {
    for part in captured.head.chunks(MAX_DATA).chain(captured.tail.chunks(MAX_DATA)) {
        frame::write(writer, &Frame { kind, bytes: part.to_vec() }).await?;
    }
    Ok(Extent { head: captured.head.len(), total: captured.total })
}

/// Sends a file until its end; returns the last message.
async fn send_file(mut file: Input, writer: &mut OwnedWriteHalf) -> io::Result<Response> {
    let mut buffer = vec![0u8; MAX_DATA];
    loop {
        match file.read(&mut buffer).await {
            Ok(0) => return Ok(Response::Done),
            Ok(n) => {
                let frame = Frame { kind: Kind::Output, bytes: buffer[..n].to_vec() };
                frame::write(writer, &frame).await?;
            }
            Err(error) => {
                let error = sandbox::Error::Io { what: "reading the file".into(), source: error };
                return Ok(Response::Failed((&error).into()));
            }
        }
    }
}

async fn is_directory<S: Sandbox>(sandbox: &S, path: &Path) -> Result<bool, sandbox::Error> {
    match sandbox.list(path).await {
        Ok(_) => Ok(true),
        // A directory with too many entries to be listed.
        Err(sandbox::Error::Path { source, .. })
            if source.kind() == io::ErrorKind::FileTooLarge =>
        {
            Ok(true)
        }
        Err(sandbox::Error::Path { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

async fn info<S: Sandbox>(entry: &Entry<S>, activity: Activity) -> Info {
    let usage = async {
        match entry.sandbox.read().await.as_ref() {
            Some(sandbox) => sandbox.usage().await,
            None => Ok(Usage::default()),
        }
    };
    let (usage, gone) = match timeout(USAGE_TIMEOUT, usage).await {
        Ok(Ok(usage)) => (usage, false),
        Ok(Err(error)) => (Usage::default(), error.is_gone()),
        Err(_) => (Usage::default(), false),
    };
    let busy = activity.operations > 0;
    Info {
        name: entry.name.clone(),
        id: entry.id.clone(),
        image: entry.traits.image.clone(),
        created: entry.created,
        state: match (gone, busy) {
            (true, _) => State::Gone,
            (false, true) => State::Busy,
            (false, false) => State::Idle,
        },
        idle: if busy { Duration::ZERO } else { activity.since.elapsed() },
        idle_timeout: entry.traits.idle_timeout,
        usage,
    }
}
