//! The programs that run in one sandbox for clients.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http_server::MemoryBudget;
use sandbox::{Control, Exit, Process, RemoteSandbox, Status, Streams, TerminalSize};
use tokio::{
    io::AsyncReadExt,
    sync::{mpsc, oneshot, watch},
};

use crate::{
    error::{ApiError, Code},
    input::{self, Piece},
    live::Live,
    output_log::{CHUNK, OutputLog, Reader, Stream},
    process_types::{ProcessConfig, Selector},
    sandbox_log::{Level, SandboxLog},
    users::User,
};

/// How a program ended, or why it could not run.
pub(crate) type End = Result<Exit, String>;

/// A program.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) pid: u32,
    pub(crate) config: ProcessConfig,
    pub(crate) tag: Option<String>,
    pub(crate) log: Arc<OutputLog<End>>,
    stdin: Mutex<Option<mpsc::Sender<Piece>>>,
    memory: MemoryBudget,
    size: Option<watch::Sender<TerminalSize>>,
    signals: mpsc::Sender<i32>,
}

/// What a client wants to start.
pub(crate) struct Start {
    pub(crate) config: ProcessConfig,
    pub(crate) tag: Option<String>,
    pub(crate) terminal: Option<TerminalSize>,
    pub(crate) stdin: bool,
    pub(crate) timeout: Option<Duration>,
    pub(crate) user: User,
}

/// The programs by number.
#[derive(Debug, Default)]
pub(crate) struct Programs(Mutex<BTreeMap<u32, Arc<Running>>>);

/// How long the result of a program is kept for a client that lost its connection.
const KEPT: Duration = Duration::from_secs(60);
/// Most programs, ended ones included.
const MOST: usize = 1024;
/// Size of the buffer between a program and its log.
const BUFFER: usize = CHUNK;
/// Bytes of all buffers of a program: for two streams, on both sides of what is between.
const BUFFERS: usize = 4 * BUFFER;

impl Programs {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<Running>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that run.
    pub(crate) fn list(&self) -> Vec<Arc<Running>> {
        self.lock().values().filter(|running| running.log.ended().is_none()).cloned().collect()
    }

    /// The program a client means, even if it has ended a moment ago.
    pub(crate) fn find(&self, selector: &Selector) -> Result<Arc<Running>, ApiError> {
        let programs = self.lock();
        let found = match (selector.pid, &selector.tag) {
            (Some(pid), _) => programs.get(&pid),
            (None, Some(tag)) => {
                let mut tagged =
                    programs.values().rev().filter(|running| running.tag.as_ref() == Some(tag));
                let last = tagged.clone().next();
                tagged.find(|running| running.log.ended().is_none()).or(last)
            }
            (None, None) => return Err(ApiError::invalid("a process needs a pid or a tag")),
        };
        found.cloned().ok_or_else(|| {
            let what = match (selector.pid, &selector.tag) {
                (Some(pid), _) => format!("pid {pid}"),
                (None, tag) => format!("tag {}", tag.as_deref().unwrap_or_default()),
            };
            ApiError::not_found(format!("process with {what} not found"))
        })
    }

    /// Like [`Programs::find`], but it must run.
    pub(crate) fn find_running(&self, selector: &Selector) -> Result<Arc<Running>, ApiError> {
        let running = self.find(selector)?;
        match running.log.ended() {
            None => Ok(running),
            Some(_) => {
                Err(ApiError::not_found(format!("process with pid {} has ended", running.pid)))
            }
        }
    }
}

impl Running {
    /// Starts a program, and returns it with a reader of its output from the beginning.
    pub(crate) async fn start<S: RemoteSandbox>(
        live: &Arc<Live<S>>,
        start: Start,
    ) -> Result<(Arc<Self>, Reader<End>), ApiError> {
        if live.programs.lock().len() >= MOST {
            let message = format!("a sandbox runs at most {MOST} programs");
            return Err(ApiError::new(Code::TooMany, message));
        }
        let log = OutputLog::new(live.kept_output, BUFFERS, live.memory.permit());
        let log = Arc::new(log.ok_or_else(no_memory)?);
        let reader = Reader::new(&log, None);
        let (streams, pipes) = Pipes::new(start.terminal, start.stdin);
        let (started, pid) = oneshot::channel();
        let (signal, signals) = mpsc::channel(8);
        let process = process(live, &start);
        process.validate()?;
        let control = Control {
            user: Some(start.user.identity.clone()),
            started: Some(started),
            signals: Some(signals),
        };
        let task = tokio::spawn(run(Arc::clone(live), process, streams, control));
        let Ok(pid) = pid.await else {
            // It ended before it ran.
            return Err(match task.await {
                Ok(Err(error)) => error,
                _ => live.gone(),
            });
        };
        let running = Arc::new(Self {
            pid,
            config: start.config,
            tag: start.tag,
            log,
            stdin: Mutex::new(pipes.stdin),
            memory: live.memory.clone(),
            size: pipes.size,
            signals: signal,
        });
        live.programs.lock().insert(pid, Arc::clone(&running));
        let command = std::iter::once(&running.config.cmd).chain(&running.config.args);
        let command = command.take(8).map(|word| word.chars().take(256).collect::<String>());
        let command = command.collect::<Vec<_>>().join(" ");
        let fields = [("pid", pid.to_string()), ("cmd", command), ("user", start.user.name)];
        live.log.add(Level::Info, "program started", fields);
        let (live, kept) = (Arc::clone(live), Arc::clone(&running));
        tokio::spawn(async move {
            let log = &kept.log;
            let forward = async {
                let copies =
                    pipes.outputs.into_iter().map(|(stream, from)| copy(stream, from, log));
                let copies = futures_util::future::join_all(copies);
                // A client that does not read must not keep a killed sandbox.
                tokio::select! {
                    _ = copies => {}
                    () = live.ended() => {}
                }
            };
            let ((), end) = tokio::join!(forward, task);
            let end = match end {
                Ok(Ok(exit)) => Ok(exit),
                Ok(Err(error)) => Err(error.message),
                Err(_) => Err("the server failed".into()),
            };
            log_end(&live.log, kept.pid, &end);
            log.end(end);
            kept.stdin().take();
            // By number alone it could be another program by then.
            tokio::select! {
                () = tokio::time::sleep(KEPT) => {}
                () = live.ended() => {}
            }
            let mut programs = live.programs.lock();
            if programs.get(&kept.pid).is_some_and(|now| Arc::ptr_eq(now, &kept)) {
                programs.remove(&kept.pid);
            }
        });
        Ok((running, reader))
    }

    fn stdin(&self) -> MutexGuard<'_, Option<mpsc::Sender<Piece>>> {
        self.stdin.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends input, waiting until the program takes it.
    pub(crate) async fn send(&self, bytes: Bytes) -> Result<(), ApiError> {
        let sender = self.stdin().clone();
        let closed = || ApiError::new(Code::Conflict, "the program's input is closed");
        let sender = sender.ok_or_else(closed)?;
        let mut permit = self.memory.permit();
        permit.grow(bytes.len()).ok_or_else(no_memory)?;
        sender.send(Piece::new(bytes, permit)).await.map_err(|_| closed())
    }

    /// Ends its input.
    pub(crate) fn close_input(&self) -> Result<(), ApiError> {
        if self.size.is_some() {
            let message = "a terminal's input cannot be closed; send the character 0x04";
            return Err(ApiError::invalid(message));
        }
        self.stdin().take();
        Ok(())
    }

    /// Changes the size of its terminal.
    pub(crate) fn resize(&self, size: TerminalSize) -> Result<(), ApiError> {
        let sender = self.size.as_ref();
        let sender = sender.ok_or_else(|| ApiError::invalid("the program has no terminal"))?;
        sender.send_replace(size);
        Ok(())
    }

    /// Whether it has a terminal.
    pub(crate) fn has_terminal(&self) -> bool {
        self.size.is_some()
    }

    /// Sends a signal. After one that cannot be ignored, the program's end is waited for.
    pub(crate) async fn signal(&self, number: i32) {
        let _ = self.signals.send(number).await;
        if number == 9 {
            let _ = tokio::time::timeout(Duration::from_secs(1), self.log.closed()).await;
        }
    }
}

/// The error of requests for which the server has no memory left.
pub(crate) fn no_memory() -> ApiError {
    let message = "the server has no memory left for output, input and lists; try again later";
    ApiError::new(Code::TooMany, message)
}

/// The process with everything a client's program expects in its environment.
fn process<S: RemoteSandbox>(live: &Live<S>, start: &Start) -> Process {
    let ProcessConfig { cmd, args, envs, cwd } = &start.config;
    let argv = std::iter::once(cmd).chain(args).cloned();
    let own = [
        ("HOME", start.user.home.as_str()),
        ("USER", &start.user.name),
        ("LOGNAME", &start.user.name),
        ("E2B_SANDBOX", "true"),
        ("E2B_SANDBOX_ID", &live.id),
        ("E2B_TEMPLATE_ID", &live.template),
    ];
    let own = own.map(|(name, value)| (name.to_owned(), value.to_owned())).into_iter();
    let given = live.env.iter().chain(envs).map(|(name, value)| (name.clone(), value.clone()));
    let terminal = start.terminal.map(|_| ("TERM".to_owned(), "xterm-256color".to_owned()));
    let workdir = start.user.resolve(cwd.as_deref().unwrap_or("~"));
    Process {
        env: own.chain(terminal).chain(given).collect(),
        workdir: Some(workdir),
        timeout: start.timeout,
        ..Process::new(argv)
    }
}

/// Runs a program until it ends or its sandbox does.
async fn run<S: RemoteSandbox>(
    live: Arc<Live<S>>,
    process: Process,
    streams: Streams,
    control: Control,
) -> Result<Exit, ApiError> {
    tokio::select! {
        exit = live.sandbox.controlled_process(&process, streams, control) => live.checked(exit),
        () = live.ended() => Err(live.gone()),
    }
}

/// Notes how a program ended.
fn log_end(log: &SandboxLog, pid: u32, end: &End) {
    let (level, how) = match end {
        Ok(exit) if exit.status == Status::Exited(0) => (Level::Info, "exit code 0".to_owned()),
        Ok(Exit { status: Status::Exited(code), .. }) => (Level::Warn, format!("exit code {code}")),
        Ok(Exit { status: Status::Signaled(signal), .. }) => {
            (Level::Warn, format!("signal {signal}"))
        }
        Ok(Exit { status: Status::TimedOut, .. }) => (Level::Warn, "time limit".to_owned()),
        Err(why) => (Level::Error, why.clone()),
    };
    log.add(level, "program ended", [("pid", pid.to_string()), ("status", how)]);
}

/// Our ends of a program's streams.
struct Pipes {
    stdin: Option<mpsc::Sender<Piece>>,
    size: Option<watch::Sender<TerminalSize>>,
    outputs: Vec<(Stream, tokio::io::DuplexStream)>,
}

impl Pipes {
    fn new(terminal: Option<TerminalSize>, stdin: bool) -> (Streams, Self) {
        let (sender, input) = input::channel();
        let (ours, output) = tokio::io::duplex(BUFFER);
        match terminal {
            Some(size) => {
                let (size, sizes) = watch::channel(size);
                let outputs = vec![(Stream::Terminal, ours)];
                let streams = Streams::Terminal {
                    input: Box::new(input),
                    output: Box::new(output),
                    size: sizes,
                };
                (streams, Self { stdin: Some(sender), size: Some(size), outputs })
            }
            None => {
                let (errors, stderr) = tokio::io::duplex(BUFFER);
                let outputs = vec![(Stream::Stdout, ours), (Stream::Stderr, errors)];
                let streams = Streams::Pipes {
                    stdin: if stdin { Some(Box::new(input)) } else { None },
                    stdout: Box::new(output),
                    stderr: Box::new(stderr),
                };
                (streams, Self { stdin: stdin.then_some(sender), size: None, outputs })
            }
        }
    }
}

async fn copy(stream: Stream, mut from: tokio::io::DuplexStream, log: &OutputLog<End>) {
    let mut buffer = vec![0; BUFFER];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        log.push(stream, &buffer[..length]).await;
    }
}
