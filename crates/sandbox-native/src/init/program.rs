//! Programs that run apart from the shell, with the caller's streams or a terminal.

use std::{
    ffi::CString,
    fs::File,
    io::{self, Write},
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
};

use rustix::{
    io::Errno,
    process::{Pid, Signal, kill_process, kill_process_group},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
    thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space},
};
use sandbox::{Identity, TerminalSize};

use super::{
    Init, LimitCounts, command,
    processes::{self, Namespace, Scope, Stopping},
};
use crate::{
    diagnostics, environ, harden,
    spawner::unshare,
    sys::{self, Fork},
};

/// A program to be started.
pub(crate) struct ProgramSpec {
    pub(crate) argv: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) workdir: Option<PathBuf>,
    pub(crate) terminal: Option<TerminalSize>,
    pub(crate) user: Option<Identity>,
}

/// The running programs.
pub(crate) struct Programs {
    running: Vec<Program>,
    /// The namespace of PID 1 and of the shell.
    own: Held,
}

/// A namespace by which `processes` tells programs apart. It is open, so that its number is not reused.
struct Held {
    file: File,
    namespace: Namespace,
}

impl Held {
    /// The one of this process.
    fn open() -> io::Result<Self> {
        let file = File::open("/proc/self/ns/uts")?;
        let namespace = Namespace::of(&file.metadata()?);
        Ok(Self { file, namespace })
    }
}

/// A running program.
pub(crate) struct Program {
    pub(crate) id: u32,
    pid: i32,
    own: Held,
    pub(crate) counts_before: LimitCounts,
}

impl Programs {
    /// No programs yet. To be called by PID 1 in the namespace it was created with.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { running: Vec::new(), own: Held::open()? })
    }

    /// Whether any program runs.
    pub(crate) fn any(&self) -> bool {
        !self.running.is_empty()
    }

    /// Their requests.
    pub(crate) fn ids(&self) -> Vec<u32> {
        self.running.iter().map(|program| program.id).collect()
    }

    /// The namespace that no program is in.
    pub(crate) fn shell_namespace(&self) -> Namespace {
        self.own.namespace
    }

    /// Forks in a new namespace, and returns to the old one. The child begins in the new one, so that none of its
    /// processes is ever elsewhere.
    fn fork(&self, init: &Init<'_>) -> io::Result<(Fork, Held)> {
        unshare(UnshareFlags::NEWUTS)?;
        let forked = Held::open().and_then(|held| Ok((command::fork(init)?, held)));
        if matches!(forked, Ok((Fork::Child, _))) {
            return forked;
        }
        let kind = LinkNameSpaceType::HostNameAndNISDomainName;
        if let Err(error) = move_into_link_name_space(self.own.file.as_fd(), Some(kind)) {
            if let Ok((Fork::Parent(pid), _)) = forked {
                processes::signal(&[pid], Signal::KILL);
            }
            return Err(error.into());
        }
        forked
    }

    /// Starts a program; returns its process id, and the controlling side of its terminal, if it has one.
    pub(crate) fn start(
        &mut self,
        id: u32,
        spec: &ProgramSpec,
        fds: Vec<OwnedFd>,
        init: &Init<'_>,
        counts_before: LimitCounts,
    ) -> io::Result<(u32, Option<OwnedFd>)> {
        let (streams, terminal) = match spec.terminal {
            Some(size) => {
                let (program_side, our_side) = open_terminal(size)?;
                (vec![program_side], Some(our_side))
            }
            None if fds.len() == 3 => (fds, None),
            None => return Err(io::Error::other("a program needs three streams or a terminal")),
        };
        match self.fork(init)? {
            (Fork::Parent(pid), own) => {
                self.running.push(Program { id, pid, own, counts_before });
                Ok((pid.unsigned_abs(), terminal))
            }
            (Fork::Child, _) => sys::exit_now(become_program(spec, &streams, init)),
        }
    }

    /// Handles the end of a process; returns the program if it was the first process of one.
    pub(crate) fn ended(&mut self, pid: i32) -> Option<Program> {
        let at = self.running.iter().position(|program| program.pid == pid)?;
        Some(self.running.swap_remove(at))
    }

    /// Sends a signal to the process group of a program, if it runs.
    pub(crate) fn signal(&self, id: u32, signal: i32) {
        let program = self.running.iter().find(|program| program.id == id);
        let group = program.and_then(|program| Pid::from_raw(program.pid));
        if let (Some(group), Some(signal)) = (group, Signal::from_named_raw(signal)) {
            // One that has just been forked is not in a group of its own yet.
            if kill_process_group(group, signal) == Err(Errno::SRCH) {
                let _ = kill_process(group, signal);
            }
        }
    }

    /// Kills everything a program started. Returns whether there was such a program.
    pub(crate) fn abort(&mut self, id: u32, stopping: Stopping<'_>) -> bool {
        let Some(at) = self.running.iter().position(|program| program.id == id) else {
            return false;
        };
        self.running.swap_remove(at).kill(stopping);
        true
    }
}

impl Program {
    /// Kills everything it started.
    pub(crate) fn kill(&self, stopping: Stopping<'_>) {
        let scope = Scope::Program { root: self.pid, namespace: self.own.namespace };
        processes::kill(scope, stopping);
    }
}

fn open_terminal(size: TerminalSize) -> io::Result<(OwnedFd, OwnedFd)> {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let name = ptsname(&ours, Vec::new())?;
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
    let program_side = rustix::fs::open(name.as_c_str(), flags, rustix::fs::Mode::empty())?;
    let size = Winsize { ws_row: size.rows, ws_col: size.cols, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&ours, size)?;
    Ok((program_side, ours))
}

/// In the forked child: executes the program. Returns the exit code if that fails.
fn become_program(spec: &ProgramSpec, streams: &[OwnedFd], init: &Init<'_>) -> i32 {
    let prepare = || -> io::Result<()> {
        let _ = rustix::process::setsid();
        for number in 0..3 {
            let stream = streams.get(number as usize).or(streams.first());
            let stream = stream.ok_or_else(|| io::Error::other("a stream is missing"))?;
            sys::become_stdio(stream.as_fd(), number)?;
        }
        if spec.terminal.is_some() {
            sys::take_terminal(io::stdin().as_fd())?;
            if let Some(user) = &spec.user {
                std::os::unix::fs::fchown(io::stdin(), Some(user.uid), None)?;
            }
        }
        command::enter(init)?;
        harden::prefer_for_killing(init.own.proc.as_fd());
        diagnostics::report_nowhere();
        // SAFETY: this child of PID 1 ends by `execute` or, in `start`, by `exit_now`. Until then it uses the plan, the
        // hardening and `spec` only, which hold no descriptors; `streams` are at 0 to 2 by now and, like the namespace's file in
        // `start`, not used again.
        unsafe { sys::close_from(3) }?;
        sys::reset_signals();
        init.hardening.apply(harden::Confined::Command)?;
        if let Some(user) = &spec.user {
            command::become_user(user)?;
        }
        // After the hardening, so that links are followed with no more rights than a command's.
        std::env::set_current_dir(spec.workdir.as_ref().unwrap_or(&init.plan.workdir))
    };
    // Descriptor 2 is the caller's by now, unless that failed.
    let complain = |what: &str, why: &io::Error| {
        let _ = writeln!(File::from(dup_stderr()), "sandbox: {what}: {why}");
    };
    if let Err(error) = prepare() {
        complain("could not start the program", &error);
        return 126;
    }
    let env = environ::merged(&init.plan.env, &spec.env);
    sys::set_path(init.single, environ::path(&env));
    let argv: Vec<_> = spec.argv.iter().filter_map(|arg| CString::new(arg.as_str()).ok()).collect();
    let error = sys::execute(&argv, &environ::as_c_strings(&env));
    complain(spec.argv.first().map_or("", String::as_str), &error);
    if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 }
}

fn dup_stderr() -> OwnedFd {
    match rustix::io::dup(io::stderr()) {
        Ok(fd) => fd,
        Err(_) => sys::exit_now(126),
    }
}
