//! The shell, whose state persists from command to command.
//!
//! A long-lived `bash` reads control lines from a pipe. Before each command it forks a sleeping copy of itself. If the
//! command ends the shell, or is killed after a timeout, the copy wakes up and becomes the shell, with the state from
//! before the command. If the command ends normally the copy is killed. Each command has its own output pipes, so what a
//! background process writes later never appears in the output of another command.
//!
//! The pipes are named pipes in a directory of the sandbox, see `pipes`. A command that writes into them can only break
//! its own output and shell.

use std::{
    ffi::CString,
    fs::File,
    io::{self, Read, Write},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::process::Signal;
use sandbox::Status;

use super::{
    Init, LimitCounts, command,
    files::Workers,
    pipes::{Pipes, drain},
    processes::{self, Present, Scope},
    program::Programs,
};
use crate::{
    diagnostics, environ, harden,
    mounts::PRIVATE_DIR,
    sys::{self, Fork},
};

/// The main loop of the shell. A stray `break` or `continue` in a command only affects these loops; a shell whose pipe is
/// gone exits instead of spinning.
const LOOP: &str = "while :; do while builtin read -r _lis </dev/.lis/k; do builtin eval \"$_lis\"; done; \
                    [ -p /dev/.lis/k ] || builtin exit 98; done";

/// How often reports are read before other events are handled.
const MAX_READS: usize = 16;

pub(crate) struct Shell {
    pipes: Pipes,
    bash: Option<BashProcess>,
    /// The shell died between commands, or had no copy: the next one starts with a new state.
    lost: bool,
    commands: u32,
}

/// A running `bash` and the pipes to it.
struct BashProcess {
    /// Its process id.
    pid: i32,
    /// Control lines are written here.
    control: File,
    /// The copy's process id and the exit status are read here.
    status: File,
    unread: Vec<u8>,
    running: Option<Running>,
    /// The command whose copy this shell was, with the pipe that woke it, which stays until the shell has read from it.
    woken: Option<(u32, File)>,
}

/// A running command.
struct Running {
    id: u32,
    number: u32,
    /// The process id of the sleeping copy, once reported.
    copy: Option<i32>,
    /// Whether it was reported.
    copy_known: bool,
    /// The pipe that wakes the copy.
    wake: File,
    /// Writing ends of the outputs, which keep a reader from seeing their end before the command has ended.
    _outputs: [File; 2],
    /// The processes that existed before.
    before: Present,
    counts_before: LimitCounts,
}

impl Shell {
    /// Creates a shell that starts with the first command.
    pub(crate) fn new(pipes: Pipes) -> Self {
        Self { pipes, bash: None, lost: false, commands: 0 }
    }

    /// Whether a command runs.
    pub(crate) fn is_running(&self) -> bool {
        self.running_id().is_some()
    }

    /// The request of the running command.
    pub(crate) fn running_id(&self) -> Option<u32> {
        Some(self.bash.as_ref()?.running.as_ref()?.id)
    }

    /// The pipe to poll for [`Shell::read_status`].
    pub(crate) fn status_pipe(&self) -> Option<BorrowedFd<'_>> {
        self.bash.as_ref().map(|bash| bash.status.as_fd())
    }

    /// The shell's own processes, which do not belong to a command.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let Some(bash) = &self.bash else { return Vec::new() };
        let copy = bash.running.as_ref().and_then(|running| running.copy);
        [bash.pid].into_iter().chain(copy).collect()
    }

    /// The process that is the shell.
    pub(crate) fn process(&self) -> Option<i32> {
        self.bash.as_ref().map(|bash| bash.pid)
    }

    /// Starts a command; returns the reading ends of its output and errors.
    pub(crate) fn start(
        &mut self,
        id: u32,
        fds: Vec<OwnedFd>,
        init: &Init<'_>,
        counts_before: LimitCounts,
    ) -> io::Result<[File; 2]> {
        let script = fds.into_iter().next().ok_or_else(|| io::Error::other("no script"))?;
        if self.is_running() {
            return Err(io::Error::other("the shell is busy"));
        }
        self.commands += 1;
        let number = self.commands;
        if self.bash.is_none() {
            self.bash = Some(BashProcess::launch(&self.pipes, init)?);
        }
        let Some(bash) = &mut self.bash else { return Err(io::Error::other("no shell")) };
        // A script that does not fit must not stay: commands cannot remove it.
        let opened = open(&self.pipes, number, script).inspect_err(|_| forget(&self.pipes, number));
        let Opened { wake, outputs: [(out, our_out), (err, our_err)] } = opened?;
        let before = Present::now();
        bash.running = Some(Running {
            id,
            number,
            copy: None,
            copy_known: false,
            wake,
            _outputs: [our_out, our_err],
            before,
            counts_before,
        });
        if let Err(error) = bash.control.write_all(control_lines(number).as_bytes()) {
            // A process has filled the pipe: the next command gets a new shell.
            processes::signal(&[bash.pid], Signal::KILL);
            self.bash = None;
            self.lost = true;
            return Err(error);
        }
        Ok([out, err])
    }

    /// Reads the shell's reports; returns the command and its status once it has ended.
    pub(crate) fn read_status(&mut self) -> Option<(u32, Status)> {
        let bash = self.bash.as_mut()?;
        let mut buffer = [0u8; 4096];
        // Bounded: another process may write faster than this reads. What is left is read after other events.
        for _ in 0..MAX_READS {
            let Ok(n @ 1..) = bash.status.read(&mut buffer) else { break };
            bash.unread.extend_from_slice(&buffer[..n]);
            // The shell's reports are short, so this was written by another process.
            if bash.unread.len() > 1 << 16 {
                bash.unread.clear();
            }
        }
        // Removed in one step: shifting the rest for each of thousands of lines would take long.
        let mut read = 0;
        let mut ended = None;
        while ended.is_none()
            && let Some(length) = bash.unread[read..].iter().position(|b| *b == b'\n')
        {
            let line = String::from_utf8_lossy(&bash.unread[read..read + length]);
            read += length + 1;
            if let Some(running) = &mut bash.running {
                ended = running.reported(&line).map(|code| (running.id, Status::Exited(code)));
            }
        }
        bash.unread.drain(..read);
        ended
    }

    /// Handles the normal end of a command: kills the copy.
    pub(crate) fn commit(&mut self) -> LimitCounts {
        let running = self.bash.as_mut().and_then(|bash| {
            bash.settle(&self.pipes);
            bash.running.take()
        });
        running.map_or(LimitCounts::default(), |running| {
            processes::signal(running.copy.as_slice(), Signal::KILL);
            forget(&self.pipes, running.number);
            running.counts_before
        })
    }

    /// The counters from before the running command, if this process is the shell that runs it.
    pub(crate) fn runs_command(&self, pid: i32) -> Option<LimitCounts> {
        let bash = self.bash.as_ref().filter(|bash| bash.pid == pid)?;
        Some(bash.running.as_ref()?.counts_before)
    }

    /// Kills what the running command has started, after its shell was killed.
    pub(crate) fn kill_rest(&self, programs: &Programs, workers: &Workers) {
        if let Some(running) = self.bash.as_ref().and_then(|bash| bash.running.as_ref()) {
            self.kill_started(running, programs, workers);
        }
    }

    /// Handles the end of a process. If it was the shell, its command has ended too, and the copy takes over.
    pub(crate) fn process_ended(&mut self, pid: i32) -> Option<(u32, LimitCounts, bool)> {
        let bash = self.bash.as_mut()?;
        if let Some(running) = &mut bash.running
            && running.copy == Some(pid)
        {
            running.copy = None;
        }
        if bash.pid != pid {
            return None;
        }
        match bash.running.take() {
            Some(running) => {
                let ended = (running.id, running.counts_before);
                self.hand_over(running);
                Some((ended.0, ended.1, self.lost_now()))
            }
            None => {
                self.bash = None;
                self.lost = true;
                None
            }
        }
    }

    /// Kills everything the command started, including the shell. Returns whether the state was lost.
    pub(crate) fn abort(&mut self, programs: &Programs, workers: &Workers) -> bool {
        let Some(running) = self.bash.as_mut().and_then(|bash| bash.running.take()) else {
            return false;
        };
        if let Some(bash) = &self.bash {
            // First, or it would print messages about the end of the others.
            processes::signal(&[bash.pid], Signal::KILL);
        }
        self.kill_started(&running, programs, workers);
        self.hand_over(running);
        self.lost_now()
    }

    /// Kills what did not exist before the command, and the shell.
    fn kill_started(&self, running: &Running, programs: &Programs, workers: &Workers) {
        let mut spared = running.before.still_there();
        spared.extend(running.copy);
        spared.extend(workers.pids());
        // The shell existed before the command, but it and its children have to be killed.
        if let Some(bash) = &self.bash {
            spared.remove(&bash.pid);
        }
        let namespace = programs.shell_namespace();
        processes::kill(Scope::Command { spared: &spared, namespace }, workers.stopping());
    }

    /// Wakes the copy, which becomes the shell.
    fn hand_over(&mut self, mut running: Running) {
        let Some(bash) = &mut self.bash else { return };
        bash.settle(&self.pipes);
        // Control lines for the dead shell must not reach its successor.
        drain(&mut bash.control);
        match running.copy {
            // Whoever killed the shell may have killed its copy as well.
            Some(copy) if !processes::is_dying(copy) && running.wake.write_all(b"go\n").is_ok() => {
                bash.pid = copy;
                bash.woken = Some((running.number, running.wake));
            }
            _ => {
                forget(&self.pipes, running.number);
                self.bash = None;
                self.lost = true;
            }
        }
    }

    /// Notes that the shell was killed between commands: the next one starts with a new state.
    pub(crate) fn give_up(&mut self) {
        if self.bash.take().is_some() {
            self.lost = true;
        }
    }

    fn lost_now(&mut self) -> bool {
        std::mem::take(&mut self.lost)
    }
}

impl Running {
    /// Handles a line of the shell's reports; returns the exit code if it reports the end of this command.
    fn reported(&mut self, line: &str) -> Option<i32> {
        let mut words = line.split_whitespace();
        let (kind, number, value) = (words.next()?, words.next()?, words.next()?);
        // A former shell may still report on an earlier command.
        if number.parse() != Ok(self.number) {
            return None;
        }
        match (kind, value.parse::<i32>()) {
            // The first report is the copy's own; a later one was forged by the command.
            ("b", Ok(pid)) if pid > 1 && !self.copy_known => {
                self.copy_known = true;
                self.copy = Some(pid);
                None
            }
            ("s", Ok(code)) => Some(code),
            _ => None,
        }
    }
}

impl BashProcess {
    fn launch(pipes: &Pipes, init: &Init<'_>) -> io::Result<Self> {
        let control = pipes.both_ways("k")?;
        let status = pipes.both_ways("s")?;
        let pid = match command::fork(init)? {
            Fork::Parent(pid) => pid,
            Fork::Child => {
                let error = become_shell(init);
                drop(error);
                sys::exit_now(127)
            }
        };
        Ok(Self { pid, control, status, unread: Vec::new(), running: None, woken: None })
    }
}

impl BashProcess {
    /// Removes the pipe that woke this shell: it has run a command since.
    fn settle(&mut self, pipes: &Pipes) {
        if let Some((number, _)) = self.woken.take() {
            forget(pipes, number);
        }
    }
}

/// In the forked child: executes the shell. Returns only on failure.
fn become_shell(init: &Init<'_>) -> io::Error {
    let prepare = || -> io::Result<()> {
        let _ = rustix::process::setsid();
        command::enter(init)?;
        harden::prefer_for_killing(init.own.proc.as_fd());
        diagnostics::report_nowhere();
        // SAFETY: this child of PID 1 ends by `execute` or, in `launch`, by `exit_now`. Until then it uses the plan and
        // the hardening only, which hold no descriptors.
        unsafe { sys::close_from(3) }?;
        sys::reset_signals();
        init.hardening.apply(harden::Confined::Command)?;
        // After the hardening, so that links are followed with no more rights than a command's.
        std::env::set_current_dir(&init.plan.workdir)
    };
    if let Err(error) = prepare() {
        return error;
    }
    sys::set_path(init.single, environ::path(&init.plan.env));
    let argv = ["bash", "--noprofile", "--norc", "-c", LOOP];
    let argv: Vec<_> = argv.iter().filter_map(|arg| CString::new(*arg).ok()).collect();
    sys::execute(&argv, &environ::as_c_strings(&init.plan.env))
}

/// The lines that make the shell run a command.
///
/// The first forks the sleeping copy: a grandchild, so that `jobs`, `wait` and `$!` do not see it. The copy closes the
/// pipe of the substitution only after it has reported its process id, so PID 1 knows it in time. The second evaluates
/// the command at the top level. The third reports the exit status; it is a line of its own so that a stray `continue` in
/// the command cannot skip it.
fn control_lines(number: u32) -> String {
    let dir = PRIVATE_DIR;
    format!(
        "_lis_s=0 _lis_f=$-; builtin : \"$( {{ builtin echo b {number} \"$BASHPID\" >{dir}/s; \
         builtin unset -f exec; exec </dev/null >/dev/null 2>&1; builtin read -r _lis <{dir}/b{number}; [ \"$_lis\" = go ] || builtin exit; builtin trap - INT QUIT; \
         case $_lis_f in *e*) builtin set -e;; esac; {LOOP}; }} & )\"\n\
         builtin mapfile -d '' -t _lis <{dir}/c{number}; \
         builtin eval \"${{_lis-}}\" </dev/null >{dir}/o{number} 2>{dir}/e{number}; _lis_s=$?\n\
         builtin echo s {number} \"$_lis_s\" >{dir}/s\n"
    )
}

/// What a command runs with: the pipe that wakes the shell's copy, and both ends of its output and errors.
struct Opened {
    wake: File,
    outputs: [(File, File); 2],
}

/// Stores the script of a command and creates its pipes.
fn open(pipes: &Pipes, number: u32, script: OwnedFd) -> io::Result<Opened> {
    pipes.store(&format!("c{number}"), File::from(script))?;
    let wake = pipes.both_ways(&format!("b{number}"))?;
    let outputs = [pipes.output(&format!("o{number}"))?, pipes.output(&format!("e{number}"))?];
    Ok(Opened { wake, outputs })
}

/// Removes a command's names. Processes that have them open are not affected.
fn forget(pipes: &Pipes, number: u32) {
    for kind in ["b", "c", "o", "e"] {
        pipes.remove(&format!("{kind}{number}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endless_reports_are_read_in_parts() {
        let open = |path| File::options().read(true).write(true).open(path).unwrap();
        let (control, status) = (open("/dev/null"), open("/dev/zero"));
        let bash =
            BashProcess { pid: 2, control, status, unread: vec![], running: None, woken: None };
        let pipes = Pipes::new(open("/dev/null").into());
        let mut shell = Shell { pipes, bash: Some(bash), lost: false, commands: 0 };
        assert!(shell.read_status().is_none());
    }
}
