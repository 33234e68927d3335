//! PID 1 of a sandbox: serves the caller's requests, reaps children, enforces the disk limit.
//!
//! It has rights over the sandbox's own namespaces and nothing else; by the time it runs it cannot reach the host's file
//! system. It has one thread with one loop, [`Server::poll_once`].

mod command;
mod disk;
mod files;
mod freeze;
mod internet;
mod ipc;
mod pipes;
mod processes;
mod program;
mod shell;
mod sockets;
mod stop;

use std::{
    fs::File,
    io,
    net::{Ipv4Addr, TcpListener},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::PathBuf,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, WaitOptions, WaitStatus, wait},
};
use sandbox::{Cause, DiskQuota, Identity, Paused, Status, TerminalSize};
use serde::{Deserialize, Serialize};

pub(crate) use self::files::{
    MAX_LISTING, MAX_REPORT, Operation, WireChange, WireInfo, read_list, read_written,
};
pub(crate) use self::internet::{RESOLV_CONF, Relay};
use self::{
    disk::DiskWatch, files::Workers, pipes::Pipes, program::Programs, shell::Shell,
    sockets::SocketWatch, stop::Stopper,
};
use crate::{
    cgroup::{self, Counters, Entrance},
    diagnostics,
    harden::Hardening,
    mounts::{Failure, PrivateMounts, Step},
    plan::{NetworkPlan, Plan},
    reserve,
    spawner::WireFailure,
    sys::{self, SingleThreaded},
    wire::{self, WireError, WirePath},
};

/// A request of the caller to PID 1. Replies repeat its number.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) id: u32,
    pub(crate) task: Task,
}

/// The kinds of request.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Task {
    /// Evaluate the script in the attached memory file. Answered by `Started` with both outputs, then `Ended`.
    Shell,
    /// Start a program; the packet carries its three streams, or none for a terminal. Answered by `Started`
    /// (with the terminal), then `Ended`.
    Program {
        argv: Vec<String>,
        env: Vec<(String, String)>,
        workdir: Option<WirePath>,
        terminal: Option<TerminalSize>,
        user: Option<Identity>,
    },
    /// Send a signal to the process group of the running program of this number. Not answered.
    Signal { running: u32, signal: i32 },
    /// Kill everything the running request of this number started. It then ends as timed out; one on files as failed.
    Kill { running: u32 },
    /// Work on files, done by a child of PID 1. Answered by `Opened`, `Finished` or `Refused`.
    Files(FileTask),
    /// Stop all processes, or let them continue. Answered by `Finished` or `Refused`.
    Pause(Paused),
    /// Make every file read-only. Answered by `Finished` or `Refused`.
    Freeze,
    /// Report the peak memory use. Answered by `Peak`.
    PeakMemory,
    /// Report what is in use now. Answered by `Usage`.
    Usage,
}

/// A task on files.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FileTask {
    /// Open a regular file for reading.
    Open(WirePath),
    /// Write the attached stream's content to a file, whole or not at all.
    Write(WirePath),
    /// Send a directory's entries over the attached stream.
    List(WirePath),
    /// Send the files that were written below a directory over the attached stream, with the content of those that
    /// changed since then.
    Written { directory: WirePath, since: u64 },
    /// Unpack the attached tar stream at the root.
    Unpack,
    /// Pack a tree as tar into the attached stream.
    Pack(WirePath),
    /// Copy everything written so far into the attached directories, one for each overlay.
    CopyUppers,
    /// Pack everything written so far as an image layer into the attached stream.
    PackUppers,
    /// An operation with the rights of a user.
    As { user: Identity, operation: Operation },
    /// Connect to a port on the loopback address, and send the socket.
    Connect(u16),
}

impl FileTask {
    /// What the caller waits for, in front of a path.
    pub(crate) fn purpose(&self) -> &'static str {
        match self {
            Self::Open(_) => "a file to be opened:",
            Self::Write(_) => "a file to be written:",
            Self::List(_) => "the entries of",
            Self::Written { .. } => "the changed files of",
            Self::Unpack => "files to be copied to",
            Self::Pack(_) => "the files of",
            Self::CopyUppers => "the files of a fork, from",
            Self::PackUppers => "the files of an image, from",
            Self::As { .. } => "an operation on",
            Self::Connect(_) => "a connection to",
        }
    }
}

/// A message of PID 1 to the caller.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// The sandbox is set up. Carries listening sockets, the proxy's first, where the network is proxied or public
    /// addresses can be reached. In the latter case `relay` says which of them programs reach without the proxy.
    Ready { relay: Option<Relay> },
    /// The sandbox could not be set up.
    NotReady(WireFailure),
    /// No command can be started now, because all processes are stopped while their files are copied. The caller asks again.
    Busy { id: u32 },
    /// The command runs; the packet carries its streams. `pid` is that of a program, and 0 for the shell.
    Started { id: u32, pid: u32 },
    /// The command ended.
    Ended { id: u32, ending: Ending },
    /// The packet carries the opened file.
    Opened { id: u32 },
    /// The task is not done, but a part of it since the last message.
    Working { id: u32 },
    /// The task is done.
    Finished { id: u32, report: Report },
    /// The task failed.
    Refused { id: u32, error: WireError },
    /// The worker of the task was killed: by a command, or for lack of memory.
    WorkerKilled { id: u32 },
    /// The peak memory use in bytes, where the kernel counts it.
    Peak { id: u32, bytes: Option<u64> },
    /// Memory, the part of it that caches files, and written files in bytes, where they are counted; and the time that
    /// processors have worked, in microseconds.
    Usage { id: u32, memory: Option<u64>, cache: Option<u64>, disk: Option<u64>, cpu_us: u64 },
    /// PID 1 ends the sandbox, because the host's file system is nearly full.
    Stopped(String),
    /// PID 1 or a file worker is about to end because of a bug, or failed where no request waits for it.
    Diagnostic(String),
}

/// The report of a copy, as it travels between processes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    /// Skipped entries, with the reason.
    pub(crate) skipped: Vec<(WirePath, String)>,
    /// Number of skipped entries that are not listed.
    pub(crate) more_skipped: u64,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Ending {
    pub(crate) status: Status,
    pub(crate) cause: Option<Cause>,
    /// The shell's state was lost.
    pub(crate) shell_lost: bool,
}

/// Everything a new PID 1 needs.
pub(crate) struct Init<'a> {
    pub(crate) single: SingleThreaded,
    pub(crate) socket: BorrowedFd<'a>,
    /// The writable directories of the overlays, in the order of the plan.
    pub(crate) uppers: &'a [OwnedFd],
    /// These, and the directories in which the kernel prepares what it moves there.
    pub(crate) written: &'a [OwnedFd],
    /// Shows the space of the host's file system, where they do not.
    pub(crate) space: Option<&'a OwnedFd>,
    pub(crate) counters: &'a Counters,
    /// Into the control group of commands.
    pub(crate) commands: &'a Entrance,
    pub(crate) own: PrivateMounts,
    pub(crate) hardening: Hardening,
    pub(crate) plan: Plan,
}

/// Serves until the caller is gone. Returns only if it could not start.
pub(crate) fn run(init: Init<'_>) -> Failure {
    match Server::new(init) {
        Err(failure) => failure,
        Ok(mut server) => {
            // The kernel kills every process of the sandbox when its PID 1 exits.
            while match server.poll_once() {
                Ok(more) => more,
                Err(error) => server.should_continue(&error),
            } {}
            // Frozen processes would not end.
            server.workers.let_go();
            sys::exit_now(0)
        }
    }
}

/// Errors of the loop after which PID 1 gives up.
const MAX_ERRORS: u32 = 1000;
/// Children that are reaped before the loop looks at the caller again: a command may start others without end.
const MAX_REAPED: u32 = 256;
/// How long PID 1 has to wait in vain before it gives back memory.
const IDLE: Duration = Duration::from_millis(50);
/// How often PID 1 looks meanwhile whether the shell works, which has nothing to do then.
const SHELL_CHECK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

struct Server<'a> {
    init: Init<'a>,
    child_exits: OwnedFd,
    /// Children may have ended that were not reaped, though no signal will tell.
    unreaped: bool,
    events: Events,
    /// How many processes had been killed for the lack of memory when memory was last freed.
    freed_at: u64,
    shell: Shell,
    /// How long processors had worked for the shell when that was last asked.
    shell_worked: Option<Duration>,
    /// Processes were killed since the last command began, because they may have written too much.
    warned: bool,
    programs: Programs,
    disk: DiskWatch,
    sockets: SocketWatch,
    workers: Workers,
    errors: u32,
}

/// The sockets of a proxied network: the proxy's, then those that lead to the host.
fn proxy_listeners(plan: &Plan) -> Result<Vec<OwnedFd>, Failure> {
    let proxy = TcpListener::bind((Ipv4Addr::LOCALHOST, plan.proxy_port));
    let mut listeners = vec![OwnedFd::from(proxy.step("opening the proxy's port")?)];
    for address in &plan.forwarded {
        match TcpListener::bind(address) {
            Ok(listener) => listeners.push(listener.into()),
            // A kernel without IPv6.
            Err(_) if address.is_ipv6() => {}
            Err(error) => return Err(error).step("opening a port that leads to the host"),
        }
    }
    Ok(listeners)
}

impl<'a> Server<'a> {
    fn new(init: Init<'a>) -> Result<Self, Failure> {
        let child_exits = sys::child_signals().step("watching children")?;
        let null = File::open("/dev/null").step("opening /dev/null")?;
        for number in 0..3 {
            sys::become_stdio(null.as_fd(), number).step("closing the spawner's streams")?;
        }
        // SAFETY: the socket is open until this process ends: `init` borrows it, and lives as long as the loop of `run`,
        // which ends by `exit_now`.
        unsafe { diagnostics::report_over(init.socket) };
        let (sockets, relay) = match init.plan.network {
            NetworkPlan::Proxied => (proxy_listeners(&init.plan)?, None),
            NetworkPlan::Internet => {
                let (sockets, relay) = internet::open(&init.plan)?;
                (sockets, Some(relay))
            }
            NetworkPlan::Isolated | NetworkPlan::Host => (Vec::new(), None),
        };
        let fds: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
        wire::send(init.socket, &Reply::Ready { relay }, &fds).step("answering the caller")?;
        let file = |fd: &Option<OwnedFd>| fd.as_ref()?.try_clone().ok().map(File::from);
        let Counters { memory, pids, peak, current, kinds, .. } = init.counters;
        let events = Events {
            memory: file(memory),
            pids: file(pids),
            peak: file(peak),
            current: file(current),
            kinds: file(kinds),
        };
        let pipes = init.own.pipes.try_clone().step("opening our pipes")?;
        let programs = Programs::new().step("opening the sandbox's namespace")?;
        let quota = init.plan.disk_quota;
        let disk = DiskWatch::new(init.plan.limits.disk.map(|d| d.bytes()), quota);
        let memory = init.plan.limits.memory.filter(|_| init.plan.network != NetworkPlan::Host);
        let sockets = SocketWatch::new(memory.map(|m| m.bytes()));
        let workers = Workers::new(Stopper::new(init.counters));
        Ok(Self {
            init,
            child_exits,
            unreaped: false,
            events,
            freed_at: 0,
            shell: Shell::new(Pipes::new(pipes)),
            shell_worked: None,
            warned: false,
            programs,
            disk,
            sockets,
            workers,
            errors: 0,
        })
    }

    /// Waits for an event and handles it. Returns whether the caller is still there.
    fn poll_once(&mut self) -> io::Result<bool> {
        let busy = self.shell_works() || self.something_runs();
        let wait = match self.unreaped {
            true => Duration::ZERO,
            false if busy => self.disk.due_in(),
            false => IDLE,
        };
        let is_idle = !busy && !self.unreaped;
        let timeout =
            Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
        let (request, death, status) = {
            let mut fds = vec![
                PollFd::from_borrowed_fd(self.init.socket, PollFlags::IN),
                PollFd::new(&self.child_exits, PollFlags::IN),
            ];
            if let Some(fd) = self.shell.status_pipe() {
                fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
            }
            let mut polled = poll(&mut fds, Some(&timeout));
            if is_idle && polled == Ok(0) {
                sys::idle::release_memory(self.init.single);
                // Waits here: anything else that runs would take memory again.
                let shell = self.shell.process();
                let worked = || shell.and_then(sys::cpu_time_of);
                polled = loop {
                    let polled = poll(&mut fds, shell.map(|_| &SHELL_CHECK));
                    if polled != Ok(0) || worked() != self.shell_worked {
                        break polled;
                    }
                };
            }
            match polled {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let ready = |i: usize| fds.get(i).is_some_and(|fd| !fd.revents().is_empty());
            (ready(0), ready(1), ready(2))
        };
        if status && let Some((id, status)) = self.shell.read_status() {
            self.shell_ended(id, status)?;
        }
        if death || self.unreaped {
            self.reap()?;
        }
        if busy {
            self.check_disk()?;
            self.check_sockets()?;
        }
        if request {
            match wire::receive::<Request>(self.init.socket)? {
                Some((request, fds)) => self.handle(request, fds)?,
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Whether to continue after an error: not when the caller is gone, nor after too many errors.
    fn should_continue(&mut self, error: &io::Error) -> bool {
        self.errors += 1;
        if self.errors == MAX_ERRORS {
            diagnostics::report(&format!("PID 1 gives up after {MAX_ERRORS} errors: {error}"));
        }
        let gone = [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset];
        !gone.contains(&error.kind()) && self.errors < MAX_ERRORS
    }

    fn handle(&mut self, request: Request, fds: Vec<OwnedFd>) -> io::Result<()> {
        let id = request.id;
        match request.task {
            // A command would not be stopped as the others are, and could let them continue.
            Task::Shell | Task::Program { .. } if self.workers.is_paused() => {
                self.refuse(id, &io::Error::other("the sandbox is paused"))
            }
            Task::Shell | Task::Program { .. } if self.workers.is_copying() => {
                self.reply(&Reply::Busy { id }, &[])
            }
            Task::Shell => {
                let counts_before = self.begin_command();
                let started = self.shell.start(id, fds, &self.init, counts_before);
                match started {
                    Ok([out, err]) => self
                        .reply(&Reply::Started { id, pid: 0 }, &[out.as_fd(), err.as_fd()])
                        .or_else(|error| self.refuse(id, &error)),
                    Err(error) => self.refuse(id, &error),
                }
            }
            Task::Program { argv, env, workdir, terminal, user } => {
                let counts_before = self.begin_command();
                let workdir = workdir.map(PathBuf::from);
                let spec = program::ProgramSpec { argv, env, workdir, terminal, user };
                match self.programs.start(id, &spec, fds, &self.init, counts_before) {
                    Ok((pid, terminal)) => {
                        let fds: Vec<_> = terminal.iter().map(AsFd::as_fd).collect();
                        self.reply(&Reply::Started { id, pid }, &fds)
                            .or_else(|error| self.refuse(id, &error))
                    }
                    Err(error) => self.refuse(id, &error),
                }
            }
            Task::Signal { running, signal } => {
                self.programs.signal(running, signal);
                Ok(())
            }
            Task::Kill { running } => self.kill(running, Some(Cause::Timeout)),
            Task::Files(task) => {
                self.disk.begin(self.init.written);
                match self.workers.start(id, task, fds, &self.init) {
                    Ok(()) => Ok(()),
                    Err(error) => self.refuse(id, &error),
                }
            }
            Task::Pause(paused) => match self.workers.pause_others(paused) {
                Ok(()) => self.reply(&Reply::Finished { id, report: Report::default() }, &[]),
                Err(error) => self.refuse(id, &error),
            },
            Task::Freeze => match self.freeze() {
                Ok(()) => self.reply(&Reply::Finished { id, report: Report::default() }, &[]),
                Err(error) => self.refuse(id, &error),
            },
            Task::PeakMemory => {
                let bytes = self.events.peak.as_ref().and_then(cgroup::number_in);
                self.reply(&Reply::Peak { id, bytes }, &[])
            }
            Task::Usage => {
                let memory = self.events.current.as_ref().and_then(cgroup::number_in);
                let cache = self.events.cache();
                let disk = self.disk.used(self.init.written);
                let cpu_us = processes::cpu_time_us();
                self.reply(&Reply::Usage { id, memory, cache, disk, cpu_us }, &[])
            }
        }
    }

    /// Handles children that have ended, at most [`MAX_REAPED`].
    fn reap(&mut self) -> io::Result<()> {
        let mut buffer = [0u8; 128];
        while matches!(rustix::io::read(&self.child_exits, &mut buffer), Ok(n) if n > 0) {}
        self.unreaped = true;
        let mut handled = Ok(());
        for _ in 0..MAX_REAPED {
            let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) else {
                self.unreaped = false;
                break;
            };
            if status.stopped() {
                self.workers.stopped(pid.as_raw_nonzero().get());
                continue;
            }
            handled = self.child_ended(pid, status);
            if handled.is_err() {
                break;
            }
        }
        handled
    }

    fn child_ended(&mut self, pid: Pid, status: WaitStatus) -> io::Result<()> {
        let pid = pid.as_raw_nonzero().get();
        if let Some(id) = self.workers.ended(pid) {
            if status.exit_status() == Some(0) {
                return Ok(());
            }
            return match self.disk.over(self.init.written, &disk::Check::AtEnd) {
                true => self.refuse(id, &io::Error::from_raw_os_error(libc::ENOSPC)),
                false => self.reply(&Reply::WorkerKilled { id }, &[]),
            };
        }
        if let Some(program) = self.programs.ended(pid) {
            let status = to_status(status);
            if self.is_out_of_memory(program.counts_before, status) {
                program.kill(self.workers.stopping());
            }
            let cause = self.cause(program.counts_before, status);
            return self.end(program.id, status, cause, false);
        }
        // The shell may have reported the end of its command before it died.
        if let Some((id, status)) = self.shell.read_status() {
            self.shell_ended(id, status)?;
        }
        let status = to_status(status);
        if let Some(counts_before) = self.shell.runs_command(pid)
            && self.is_out_of_memory(counts_before, status)
        {
            self.shell.kill_rest(&self.programs, &self.workers);
        }
        if let Some((id, counts_before, lost)) = self.shell.process_ended(pid) {
            let cause = self.cause(counts_before, status);
            return self.end(id, status, cause, lost);
        }
        // An orphan.
        Ok(())
    }

    /// Whether the kernel has killed the first process of a command for the lack of memory. What it started would go on
    /// without it.
    fn is_out_of_memory(&self, counts_before: LimitCounts, status: Status) -> bool {
        status == Status::Signaled(libc::SIGKILL) && self.events.read().oom > counts_before.oom
    }

    fn shell_ended(&mut self, id: u32, status: Status) -> io::Result<()> {
        let counts_before = self.shell.commit();
        let cause = self.cause(counts_before, status);
        self.end(id, status, cause, false)
    }

    /// Notes the start of a command.
    fn begin_command(&mut self) -> LimitCounts {
        self.warned = false;
        self.disk.begin(self.init.written);
        let counts = self.events.read();
        self.free_memory(counts);
        counts
    }

    /// Frees memory that outlived its processes, if the kernel has killed any for the lack of memory since the last time:
    /// of a command, or in the background.
    fn free_memory(&mut self, counts: LimitCounts) {
        let killed = counts.oom > std::mem::replace(&mut self.freed_at, counts.oom);
        if killed && let Some(limit) = self.init.plan.limits.memory {
            ipc::free_memory(limit.bytes(), || self.is_memory_full());
        }
    }

    /// The limit that a command which just ended has reached.
    fn cause(&mut self, counts_before: LimitCounts, status: Status) -> Option<Cause> {
        let counts = self.events.read();
        self.free_memory(counts);
        counts.reached_since(counts_before).or(self.disk_cause(status))
    }

    /// Whether much of the memory is used, although the kernel has killed what was too large.
    fn is_memory_full(&self) -> bool {
        let used = self.events.current.as_ref().and_then(cgroup::number_in);
        let limit = self.init.plan.limits.memory.map(|limit| limit.bytes());
        used.zip(limit).is_some_and(|(used, limit)| used > limit / 2)
    }

    /// Kills everything a running command started, and reports it as ended because of `cause`.
    fn kill(&mut self, running: u32, cause: Option<Cause>) -> io::Result<()> {
        let status = match cause {
            Some(Cause::Timeout) => Status::TimedOut,
            _ => Status::Signaled(libc::SIGKILL),
        };
        if self.shell.running_id() == Some(running) {
            let lost = self.shell.abort(&self.programs, &self.workers);
            return self.end(running, status, cause, lost);
        }
        if self.programs.abort(running, self.workers.stopping()) {
            return self.end(running, status, cause, false);
        }
        self.workers.kill(running);
        Ok(())
    }

    /// Whether anything runs that could write: commands, file workers, background processes.
    fn something_runs(&self) -> bool {
        self.shell.is_running()
            || self.programs.any()
            || self.workers.any_may_write()
            || self.has_others()
    }

    /// Whether there are processes besides this one, the shell and workers that only watch. Each is looked for: what a command
    /// reports as the shell's copy may be anything.
    fn has_others(&self) -> bool {
        let mut all = processes::numbers();
        let known = [1].into_iter().chain(self.shell.processes()).chain(self.workers.watching());
        for pid in known {
            all.remove(&pid);
        }
        !all.is_empty()
    }

    /// Whether the shell has worked since the last call. Between commands it waits; only a trap makes it do anything else, or
    /// another program that a trap has put in its place.
    fn shell_works(&mut self) -> bool {
        let now = self.shell.process().and_then(sys::cpu_time_of);
        std::mem::replace(&mut self.shell_worked, now) != now
    }

    fn check_disk(&mut self) -> io::Result<()> {
        self.stop_if_host_is_full();
        if self.disk.over(self.init.written, &disk::Check::WhenDue) {
            let none_ran = self.kill_running(Cause::Disk)?;
            let others = self.has_others() || self.workers.any_may_write();
            self.kill_writers();
            if none_ran && !self.workers.any_may_write() && (self.warned || !others) {
                self.kill_shell();
            }
            self.warned = none_ran;
        }
        Ok(())
    }

    /// Kills all running commands; returns whether there were none.
    fn kill_running(&mut self, cause: Cause) -> io::Result<bool> {
        let running: Vec<_> =
            self.shell.running_id().into_iter().chain(self.programs.ids()).collect();
        for id in &running {
            self.kill(*id, Some(cause))?;
        }
        Ok(running.is_empty())
    }

    /// Kills the shell, which takes too much although no command runs: another program is in its place.
    fn kill_shell(&mut self) {
        let workers = self.workers.pids().into_iter().collect();
        processes::kill(processes::Scope::AllBut(&workers), self.workers.stopping());
        self.shell.give_up();
    }

    /// Kills all commands if they use more memory for sockets than they may: the kernel does not say whose it is.
    fn check_sockets(&mut self) -> io::Result<()> {
        if self.sockets.over(self.init.own.proc.as_fd()) {
            if self.kill_running(Cause::Oom)? && !self.has_others() {
                self.kill_shell();
            }
            let workers = self.workers.pids();
            let spared = self.shell.processes().into_iter().chain(workers).collect();
            processes::kill(processes::Scope::AllBut(&spared), self.workers.stopping());
        }
        Ok(())
    }

    /// Ends the sandbox before it takes the last space of the host's file system: its files are then removed. One that
    /// does not write is left alone.
    fn stop_if_host_is_full(&mut self) {
        let file = match self.init.plan.disk_quota {
            DiskQuota::Auto | DiskQuota::Measured => self.init.uppers.first(),
            DiskQuota::Project | DiskQuota::Strict => self.init.space,
            // It takes no space there.
            DiskQuota::Memory => None,
        };
        let shortage = file.and_then(|f| reserve::shortage(f, self.init.plan.disk_reserve));
        let (lasted, written) = self.disk.note_scarcity(self.init.written, shortage.is_some());
        let Some(shortage) = shortage else { return };
        if shortage.patience(written).is_some_and(|patience| lasted >= patience) {
            let _ = self.reply(&Reply::Stopped(shortage.to_string()), &[]);
            self.workers.let_go();
            sys::exit_now(1)
        }
    }

    /// Kills file workers and background processes of earlier commands, once the limit is passed: the writer is unknown.
    fn kill_writers(&self) {
        let workers = self.workers.pids();
        let spared = self.shell.processes().into_iter().chain(workers.iter().copied()).collect();
        processes::kill(processes::Scope::AllBut(&spared), self.workers.stopping());
        // The replies to their requests are sent when they are reaped.
        processes::signal(&workers, rustix::process::Signal::KILL);
    }

    /// `Cause::Disk` if the command that just ended has passed the disk limit.
    fn disk_cause(&mut self, status: Status) -> Option<Cause> {
        let check = match status.code() == 128 + libc::SIGXFSZ {
            true => disk::Check::Now,
            false => disk::Check::AtEnd,
        };
        let over = self.disk.over(self.init.written, &check);
        let idle = !self.shell.is_running() && !self.programs.any();
        if over && idle && !self.disk.is_exact() {
            // Short commands, one after another, must not keep a writer in the background from being noticed.
            self.kill_writers();
        }
        over.then_some(Cause::Disk)
    }

    fn end(
        &self,
        id: u32,
        status: Status,
        cause: Option<Cause>,
        shell_lost: bool,
    ) -> io::Result<()> {
        self.reply(&Reply::Ended { id, ending: Ending { status, cause, shell_lost } }, &[])
    }

    fn reply(&self, reply: &Reply, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        wire::send(self.init.socket, reply, fds)
    }

    fn refuse(&self, id: u32, error: &io::Error) -> io::Result<()> {
        self.reply(&Reply::Refused { id, error: WireError::from(error) }, &[])
    }
}

fn to_status(status: WaitStatus) -> Status {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Status::Exited(code),
        (None, Some(signal)) => Status::Signaled(signal),
        (None, None) => Status::Signaled(0),
    }
}

/// The kernel's counters of limits that were reached, and of memory.
struct Events {
    memory: Option<File>,
    pids: Option<File>,
    peak: Option<File>,
    current: Option<File>,
    kinds: Option<File>,
}

/// The counters at one moment.
#[derive(Clone, Copy, Default)]
struct LimitCounts {
    oom: u64,
    pids: u64,
}

impl Events {
    /// Memory that caches files: the first kinds of either version of control groups.
    fn cache(&self) -> Option<u64> {
        let file = self.kinds.as_ref()?;
        Some(cgroup::count(file, "file").max(cgroup::count(file, "cache")))
    }

    fn read(&self) -> LimitCounts {
        LimitCounts {
            oom: self.memory.as_ref().map_or(0, |file| cgroup::count(file, "oom_kill")),
            pids: self.pids.as_ref().map_or(0, |file| cgroup::count(file, "max")),
        }
    }
}

impl LimitCounts {
    /// The limit that was reached since then.
    fn reached_since(self, then: Self) -> Option<Cause> {
        if self.oom > then.oom {
            Some(Cause::Oom)
        } else if self.pids > then.pids {
            Some(Cause::Pids)
        } else {
            None
        }
    }
}

/// Sleeps. While PID 1 waits for processes to die, no event could wake it earlier.
fn sleep(length: Duration) {
    std::thread::sleep(length);
}
