//! [`Supervisor`]: the client. One connection for each operation.

use std::{
    io,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use sandbox::{
    Captured, CopyReport, ExecOutput, Input, Process, Protection, ShellCommand, Spec, StallGuard,
    Streams,
};
use serde::de::DeserializeOwned;
use tokio::{
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::mpsc,
    time::{sleep, timeout},
};

use crate::{
    Error, Exited, Info, Launcher, Lost, Name,
    chunks::{Chunks, Source},
    directory::{Directory, INTERVAL, PATIENCE},
    exec_client,
    frame::{self, Frame, Kind, MAX_DATA, invalid},
    message::{PROTOCOL, Request, Response, Welcome},
};

/// How long the supervisor may take to accept a connection.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest file that [`Supervisor::write`] accepts.
pub(crate) const MAX_FILE: usize = 64 << 20;
/// How often a client that waits for an answer checks that the supervisor still serves.
const CHECK_INTERVAL: Duration = Duration::from_secs(20);
/// How often a supervisor that is about to end is replaced before that counts as a failure.
const MAX_STARTS: u32 = 3;

/// The running supervisor of a state directory.
///
/// Dropping the future of an operation cancels the operation.
#[derive(Debug)]
pub struct Supervisor {
    directory: Arc<Directory>,
    info: SupervisorInfo,
    /// The connection with which the supervisor was found: it will not end before its first request.
    first: Mutex<Option<Connection>>,
}

/// Which supervisor this is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SupervisorInfo {
    /// Its process id.
    pub pid: u32,
    /// Version of its program.
    pub version: String,
}

/// What a client found.
#[derive(Debug)]
pub struct Connected<S> {
    /// The supervisor.
    pub supervisor: S,
    /// Sandboxes of a supervisor that was killed before. They are reported once.
    pub lost: Vec<Lost>,
}

/// A sandbox that was created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    /// Its name at the runtime.
    pub id: String,
    /// Which layers of protection it enforces.
    pub protection: Protection,
}

/// An open connection, after the supervisor's first message.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) reader: OwnedReadHalf,
    pub(crate) writer: OwnedWriteHalf,
}

/// The connection broke, or carried something unexpected.
pub(crate) fn broken(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::ConnectionReset => Error::Ended,
        _ => Error::Io { what: "talking to the supervisor".into(), source: error },
    }
}

impl Connection {
    pub(crate) async fn send(&mut self, frame: &Frame) -> Result<(), Error> {
        frame::write(&mut self.writer, frame).await.map_err(broken)
    }

    pub(crate) async fn receive(&mut self) -> Result<Frame, Error> {
        frame::read(&mut self.reader).await.map_err(broken)?.ok_or(Error::Ended)
    }

    async fn message<M: DeserializeOwned>(&mut self) -> Result<M, Error> {
        self.receive().await?.parse().map_err(broken)
    }

    async fn response(&mut self) -> Result<Response, Error> {
        match self.message().await? {
            Response::Failed(failure) => Err(failure.into()),
            response => Ok(response),
        }
    }
}

fn unexpected<T>(response: Response) -> Result<T, Error> {
    Err(broken(invalid(format!("the unexpected answer {response:?}"))))
}

/// Connects; `None` where nobody listens, or a supervisor is just ending.
async fn dial(directory: &Directory) -> Result<Option<(Connection, Welcome)>, Error> {
    let deadline = Instant::now() + WELCOME_TIMEOUT;
    let stream = loop {
        match UnixStream::connect(directory.socket()).await {
            Ok(stream) => break stream,
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => return Ok(None),
                // Too many clients wait already.
                io::ErrorKind::WouldBlock if Instant::now() < deadline => sleep(INTERVAL).await,
                _ => {
                    return Err(Error::Io {
                        what: "connecting to the supervisor".into(),
                        source: error,
                    });
                }
            },
        }
    };
    let peer = stream.peer_cred().map_err(Error::io("checking the supervisor's user"))?;
    if peer.uid() != rustix::process::geteuid().as_raw() {
        return Err(Error::Peer { path: directory.path().to_owned(), uid: peer.uid() });
    }
    let (reader, writer) = stream.into_split();
    let mut connection = Connection { reader, writer };
    match timeout(WELCOME_TIMEOUT, connection.message()).await {
        Ok(Ok(welcome)) => Ok(Some((connection, welcome))),
        Ok(Err(Error::Ended)) => Ok(None),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(Error::Silent { log: directory.log_path() }),
    }
}

/// Connects once it is certain whether there is a supervisor, be it starting or ending. To be called by the holder of
/// [`Directory::starting`].
async fn settle(directory: &Directory) -> Result<Option<(Connection, Welcome)>, Error> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = dial(directory).await? {
            return Ok(Some(found));
        }
        if !directory.is_claimed()? {
            return Ok(None);
        }
        if Instant::now() > deadline {
            return Err(Error::Silent { log: directory.log_path() });
        }
        sleep(INTERVAL).await;
    }
}

/// Starts a supervisor and connects to it. To be called by the holder of [`Directory::starting`].
async fn launch(
    directory: &Directory,
    launcher: &Launcher,
) -> Result<Option<(Connection, Welcome)>, Error> {
    match launcher.launch(directory).await {
        Ok(()) => dial(directory).await,
        // Perhaps a client was killed while it started one, which has become the supervisor meanwhile.
        Err(error @ Error::NotStarted { .. }) if directory.is_claimed()? => {
            settle(directory).await?.map_or(Err(error), |found| Ok(Some(found)))
        }
        Err(error) => Err(error),
    }
}

/// Asks a supervisor of any version to end, and waits until it has.
async fn stop(mut connection: Connection) -> Result<(), Error> {
    connection.send(&Frame::message(&Request::Stop).map_err(broken)?).await?;
    // Its answer may be in a form of another version; only its end matters.
    while frame::read(&mut connection.reader).await.is_ok_and(|frame| frame.is_some()) {}
    Ok(())
}

impl Supervisor {
    /// Connects to the supervisor of a state directory, if one is running.
    ///
    /// # Errors
    /// [`Error::Version`] if it is of a version that this program does not understand.
    pub async fn connect(home: &Path) -> Result<Connected<Option<Self>>, Error> {
        let nothing = |lost| Connected { supervisor: None, lost };
        let Some(directory) = Directory::open(home)? else { return Ok(nothing(Vec::new())) };
        let directory = Arc::new(directory);
        let mut found = dial(&directory).await?;
        if found.is_none() && directory.has_traces() {
            let _starting = directory.starting().await?;
            found = settle(&directory).await?;
            if found.is_none() {
                return Ok(nothing(directory.take_lost()));
            }
        }
        let Some((connection, welcome)) = found else { return Ok(nothing(Vec::new())) };
        let supervisor = match check(&welcome) {
            Ok(()) => Some(Self::new(directory, connection, &welcome)),
            Err(_) if welcome.sandboxes == 0 => None,
            Err(error) => return Err(error),
        };
        Ok(Connected { supervisor, lost: Vec::new() })
    }

    /// Connects to the supervisor of a state directory; starts one if none is running. Of any number of clients that do so
    /// at once, one starts a supervisor.
    ///
    /// # Errors
    /// [`Error::Version`] if one with sandboxes is of a version that this program does not understand; one without is
    /// replaced.
    pub async fn connect_or_start(
        home: &Path,
        launcher: &Launcher,
    ) -> Result<Connected<Self>, Error> {
        let directory = Arc::new(Directory::create(home)?);
        let mut lost = Vec::new();
        for _ in 0..MAX_STARTS {
            let mut found = dial(&directory).await?;
            if found.is_none() {
                let _starting = directory.starting().await?;
                found = settle(&directory).await?;
                if found.is_none() {
                    lost.extend(directory.take_lost());
                    found = launch(&directory, launcher).await?;
                }
            }
            let Some((connection, welcome)) = found else { continue };
            match check(&welcome) {
                Ok(()) => {
                    let supervisor = Self::new(directory, connection, &welcome);
                    return Ok(Connected { supervisor, lost });
                }
                Err(_) if welcome.sandboxes == 0 => stop(connection).await?,
                Err(error) => return Err(error),
            }
        }
        Err(Error::Silent { log: directory.log_path() })
    }

    /// Ends the supervisor of a state directory, whatever its version, with all its sandboxes. Returns whether there was
    /// one.
    pub async fn stop(home: &Path) -> Result<bool, Error> {
        let Some(directory) = Directory::open(home)? else { return Ok(false) };
        let Some((connection, _)) = dial(&directory).await? else { return Ok(false) };
        stop(connection).await.map(|()| true)
    }

    fn new(directory: Arc<Directory>, connection: Connection, welcome: &Welcome) -> Self {
        let info = SupervisorInfo { pid: welcome.pid, version: welcome.version.clone() };
        Self { directory, info, first: Mutex::new(Some(connection)) }
    }

    /// Which supervisor this is.
    pub fn info(&self) -> &SupervisorInfo {
        &self.info
    }

    /// Opens a connection and sends a request.
    async fn request(&self, request: &Request) -> Result<Connection, Error> {
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut connection = match first {
            Some(connection) => connection,
            None => dial(&self.directory).await?.ok_or(Error::Ended)?.0,
        };
        let frame = Frame::message(request)
            .map_err(|error| Error::Rejected(format!("the request cannot be sent: {error}")))?;
        match frame::write(&mut connection.writer, &frame).await {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                Err(Error::Rejected(format!("the request is too long: {error}")))
            }
            written => written.map_err(broken).map(|()| connection),
        }
    }

    async fn ask(&self, request: &Request) -> Result<Response, Error> {
        self.while_served(async { self.request(request).await?.response().await }).await
    }

    /// Awaits an operation, which takes as long as it takes, while the supervisor accepts connections. It bounds the time
    /// of what it does itself.
    async fn while_served<T>(
        &self,
        operation: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let silent = async {
            loop {
                sleep(CHECK_INTERVAL).await;
                // Where nobody listens, the operation ends by itself: its connection is closed.
                if let Err(error @ Error::Silent { .. }) = dial(&self.directory).await {
                    return error;
                }
            }
        };
        tokio::select! {
            done = operation => done,
            error = silent => Err(error),
        }
    }

    async fn done(&self, request: &Request) -> Result<(), Error> {
        match self.ask(request).await? {
            Response::Done => Ok(()),
            other => unexpected(other),
        }
    }

    /// Creates a sandbox, which is removed after being idle for this long. A relative path of an image is relative to the
    /// root directory.
    pub async fn create(
        &self,
        name: &Name,
        spec: &Spec,
        idle_timeout: Option<Duration>,
    ) -> Result<Created, Error> {
        let (name, spec) = (name.clone(), Box::new(spec.clone()));
        match self.ask(&Request::Create { name, spec, idle_timeout }).await? {
            Response::Created { id, protection } => Ok(Created { id, protection }),
            other => unexpected(other),
        }
    }

    /// Runs a program and forwards its streams. The program is killed if this future is dropped.
    pub async fn exec(
        &self,
        name: &Name,
        process: &Process,
        streams: Streams,
    ) -> Result<Exited, Error> {
        let request = exec_client::request(name, process, &streams);
        let running = async {
            let connection = self.request(&Request::Exec(request)).await?;
            exec_client::run(connection, streams).await
        };
        self.while_served(running).await
    }

    /// Evaluates a command in the sandbox's shell, whose state persists from command to command. Output beyond the usual
    /// capture is counted, not kept.
    pub async fn shell(&self, name: &Name, command: &ShellCommand) -> Result<ExecOutput, Error> {
        command.validate()?;
        let script = String::from_utf8(command.script.clone())
            .map_err(|_| Error::Rejected("the command is not UTF-8".into()))?;
        let request = Request::Shell { name: name.clone(), script, timeout: command.timeout };
        let evaluated = async {
            let mut connection = self.request(&request).await?;
            let (mut out, mut err) = (Vec::new(), Vec::new());
            loop {
                let frame = connection.receive().await?;
                match frame.kind {
                    Kind::Output => out.extend_from_slice(&frame.bytes),
                    Kind::Errors => err.extend_from_slice(&frame.bytes),
                    _ => match frame.parse().map_err(broken)? {
                        Response::Evaluated(done) => {
                            let captured = |mut head: Vec<u8>, extent: crate::message::Extent| {
                                let tail = head.split_off(extent.head.min(head.len()));
                                Captured { head, tail, total: extent.total }
                            };
                            return Ok(ExecOutput {
                                stdout: captured(out, done.stdout),
                                stderr: captured(err, done.stderr),
                                status: done.status,
                                cause: done.cause,
                                duration: done.duration,
                                shell_lost: done.shell_lost,
                            });
                        }
                        Response::Failed(failure) => return Err(failure.into()),
                        other => return unexpected(other),
                    },
                }
            }
        };
        self.while_served(evaluated).await
    }

    /// Opens a regular file for reading. The content arrives as it is read.
    pub async fn read(&self, name: &Name, path: &Path) -> Result<Input, Error> {
        let request = Request::Read { name: name.clone(), path: path.into() };
        let opened = async {
            let mut connection = self.request(&request).await?;
            match connection.response().await? {
                Response::Opened { stall_timeout } => Ok((connection, stall_timeout)),
                other => unexpected(other),
            }
        };
        let (mut connection, stall_timeout) = self.while_served(opened).await?;
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(async move {
            loop {
                let chunk = match connection.receive().await {
                    Ok(frame) if frame.kind == Kind::Output => Ok(frame.bytes),
                    Ok(frame) => match frame.parse() {
                        Ok(Response::Done) => return,
                        Ok(Response::Failed(failure)) => {
                            Err(io::Error::other(error_text::chain(&Error::from(failure))))
                        }
                        Ok(other) => Err(invalid(format!("the unexpected answer {other:?}"))),
                        Err(error) => Err(error),
                    },
                    Err(error) => Err(io::Error::other(error_text::chain(&error))),
                };
                let last = chunk.is_err();
                if sender.send(chunk).await.is_err() || last {
                    return;
                }
            }
        });
        let content = Box::new(Chunks::new(Source::Bounded(receiver), |_| ()));
        Ok(Box::new(StallGuard::new(content, stall_timeout)))
    }

    /// Writes a file atomically, creating missing directories.
    ///
    /// # Errors
    /// [`Error::Rejected`] for more than 64 MiB; [`Supervisor::copy_in`] has no such limit.
    pub async fn write(&self, name: &Name, path: &Path, contents: &[u8]) -> Result<(), Error> {
        if contents.len() > MAX_FILE {
            let text = format!("the file has {} bytes, more than {MAX_FILE}", contents.len());
            return Err(Error::Rejected(text));
        }
        let request = Request::Write { name: name.clone(), path: path.into() };
        let written = async {
            let mut connection = self.request(&request).await?;
            let sending = async {
                for part in contents.chunks(MAX_DATA).chain([&[][..]]) {
                    let frame = Frame { kind: Kind::Input, bytes: part.to_vec() };
                    frame::write(&mut connection.writer, &frame).await?;
                }
                io::Result::Ok(())
            };
            // The supervisor may refuse before it has everything; its answer says why.
            let sent = sending.await;
            match connection.response().await {
                Ok(Response::Done) => Ok(()),
                Ok(other) => unexpected(other),
                Err(Error::Ended) => Err(sent.map_err(broken).err().unwrap_or(Error::Ended)),
                Err(error) => Err(error),
            }
        };
        self.while_served(written).await
    }

    /// Copies a file or tree of the host, named by an absolute path, to this path; if that is a directory and `entry` is
    /// given, to this name in it.
    pub async fn copy_in(
        &self,
        name: &Name,
        host: &Path,
        path: &Path,
        entry: Option<&Path>,
    ) -> Result<CopyReport, Error> {
        let (name, host, path) = (name.clone(), host.into(), path.into());
        let entry = entry.map(Into::into);
        match self.ask(&Request::CopyIn { name, host, path, entry }).await? {
            Response::Copied(report) => Ok(report.into()),
            other => unexpected(other),
        }
    }

    /// Copies a file or tree of a sandbox to exactly this absolute path on the host.
    pub async fn copy_out(
        &self,
        name: &Name,
        path: &Path,
        host: &Path,
    ) -> Result<CopyReport, Error> {
        let (name, path, host) = (name.clone(), path.into(), host.into());
        match self.ask(&Request::CopyOut { name, path, host }).await? {
            Response::Copied(report) => Ok(report.into()),
            other => unexpected(other),
        }
    }

    /// Creates a second sandbox with the same specification, idle timeout and files, but without processes and shell
    /// state.
    pub async fn fork(&self, name: &Name, new: &Name) -> Result<Created, Error> {
        match self.ask(&Request::Fork { name: name.clone(), new: new.clone() }).await? {
            Response::Created { id, protection } => Ok(Created { id, protection }),
            other => unexpected(other),
        }
    }

    /// Saves the files of a sandbox as an image.
    pub async fn save(&self, name: &Name, image: &str) -> Result<(), Error> {
        self.done(&Request::Save { name: name.clone(), image: image.to_owned() }).await
    }

    /// Kills everything in a sandbox and removes it.
    pub async fn remove(&self, name: &Name) -> Result<(), Error> {
        self.done(&Request::Remove { name: name.clone() }).await
    }

    /// Lists the sandboxes, sorted by name.
    pub async fn list(&self) -> Result<Vec<Info>, Error> {
        match self.ask(&Request::List).await? {
            Response::Sandboxes(found) => Ok(found),
            other => unexpected(other),
        }
    }
}

fn check(welcome: &Welcome) -> Result<(), Error> {
    if welcome.protocol == PROTOCOL {
        return Ok(());
    }
    Err(Error::Version {
        ours: env!("CARGO_PKG_VERSION").to_owned(),
        theirs: welcome.version.clone(),
        pid: welcome.pid,
        sandboxes: welcome.sandboxes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A supervisor that welcomes the first client, and does nothing from then on.
    #[tokio::test(start_paused = true)]
    async fn a_silent_supervisor_is_an_error() {
        let home = tempfile::tempdir().unwrap();
        let claim = crate::Claim::new(home.path()).unwrap();
        let listener = claim.listen().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let welcome = Welcome { protocol: PROTOCOL, version: "1".into(), pid: 1, sandboxes: 1 };
            frame::write(&mut stream, &Frame::message(&welcome).unwrap()).await.unwrap();
            let _silent = (stream, listener);
            std::future::pending::<()>().await;
        });
        let supervisor = Supervisor::connect(home.path()).await.unwrap().supervisor.unwrap();
        let begun = tokio::time::Instant::now();
        let ended = supervisor.list().await;
        assert!(matches!(ended, Err(Error::Silent { .. })), "{ended:?}");
        assert_eq!(begun.elapsed().as_secs(), (CHECK_INTERVAL + WELCOME_TIMEOUT).as_secs());
    }

    /// The content of a file may make no progress for as long as its sandbox was told.
    #[tokio::test]
    async fn a_read_stalls_as_long_as_its_sandbox_may() {
        let home = tempfile::tempdir().unwrap();
        let claim = crate::Claim::new(home.path()).unwrap();
        let listener = claim.listen().unwrap();
        let stall_timeout = Duration::from_millis(300);
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let welcome = Welcome { protocol: PROTOCOL, version: "1".into(), pid: 1, sandboxes: 1 };
            frame::write(&mut stream, &Frame::message(&welcome).unwrap()).await.unwrap();
            let (mut reader, mut writer) = stream.split();
            frame::read(&mut reader).await.unwrap();
            let opened = Frame::message(&Response::Opened { stall_timeout }).unwrap();
            frame::write(&mut writer, &opened).await.unwrap();
            std::future::pending::<()>().await;
        });
        let supervisor = Supervisor::connect(home.path()).await.unwrap().supervisor.unwrap();
        let name = "box".parse().unwrap();
        let mut file = supervisor.read(&name, Path::new("f")).await.unwrap();
        let read = tokio::io::AsyncReadExt::read_u8(&mut file);
        let read = timeout(sandbox::STALL_TIMEOUT / 2, read).await.unwrap();
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
