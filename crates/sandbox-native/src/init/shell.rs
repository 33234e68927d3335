//! The one shell whose state carries on from command to command.
//!
//! A `bash` stays alive and reads control lines from a pipe. Before each command it forks a copy of
//! itself that sleeps: if the command ends the shell, or is killed for taking too long, the copy wakes up
//! and is the shell, with everything as it was before the command. A command that ends normally makes
//! the copy superfluous. Output of each command goes through pipes of its own, so what a background
//! process writes later never turns up in another command's output.
//!
//! The pipes are named ones in a directory of the sandbox, see `pipes`. A command could write into them, and
//! with that spoil its own output and shell, nothing else.

use std::{
    ffi::CString,
    fs::File,
    io::{self, Read, Write},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::process::Signal;
use sandbox::Status;

use super::{
    Init, Marks,
    pipes::{Pipes, drain},
    processes::{self, Present},
};
use crate::{
    environ, harden,
    mounts::PRIVATE_DIR,
    sys::{self, Fork},
};

/// What the shell runs for ever. `break` and `continue` in a command end up in these loops and do no
/// harm; a shell that lost its pipe ends instead of spinning.
const LOOP: &str = "while :; do while builtin read -r _lis </dev/.lis/k; do builtin eval \"$_lis\"; done; \
                    [ -p /dev/.lis/k ] || builtin exit 98; done";

pub(crate) struct Shell {
    pipes: Pipes,
    alive: Option<Alive>,
    /// A shell died while no command ran, or could not be saved: the next one starts fresh.
    lost: bool,
    commands: u32,
}

/// A `bash` that runs, and the pipes to it.
struct Alive {
    /// Its number; nothing once it has ended while its copy takes over.
    pid: i32,
    /// Control lines go in here.
    control: File,
    /// The copy's number and the exit status come out here.
    status: File,
    unread: Vec<u8>,
    running: Option<Running>,
    /// The command whose copy this shell was. Its pipe stays until the shell has surely read from it.
    woken: Option<(u32, File)>,
}

/// A command that runs.
struct Running {
    id: u32,
    number: u32,
    /// The sleeping copy, once it has told its number.
    copy: Option<i32>,
    /// Whether it has.
    told: bool,
    /// The pipe that wakes it.
    wake: File,
    /// Our own ends of the outputs, so that no reader sees an end before the command's.
    _outputs: [File; 2],
    /// Who was there before.
    before: Present,
    marks: Marks,
}

impl Shell {
    /// A shell that starts with the first command.
    pub(crate) fn new(pipes: Pipes) -> Self {
        Self { pipes, alive: None, lost: false, commands: 0 }
    }

    /// Whether a command runs.
    pub(crate) fn is_running(&self) -> bool {
        self.running_id().is_some()
    }

    /// The running command's number.
    pub(crate) fn running_id(&self) -> Option<u32> {
        Some(self.alive.as_ref()?.running.as_ref()?.id)
    }

    /// Where to look for news.
    pub(crate) fn status_pipe(&self) -> Option<BorrowedFd<'_>> {
        self.alive.as_ref().map(|alive| alive.status.as_fd())
    }

    /// The shell's own processes, which belong to no other command.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let Some(alive) = &self.alive else { return Vec::new() };
        let copy = alive.running.as_ref().and_then(|running| running.copy);
        [alive.pid].into_iter().chain(copy).collect()
    }

    /// Starts a command; answers where its output and its errors can be read.
    pub(crate) fn start(
        &mut self,
        id: u32,
        fds: Vec<OwnedFd>,
        init: &Init<'_>,
        marks: Marks,
    ) -> io::Result<[File; 2]> {
        let script = fds.into_iter().next().ok_or_else(|| io::Error::other("no script"))?;
        if self.is_running() {
            return Err(io::Error::other("the shell is busy"));
        }
        self.commands += 1;
        let number = self.commands;
        if self.alive.is_none() {
            self.alive = Some(Alive::launch(&self.pipes, init)?);
        }
        let Some(alive) = &mut self.alive else { return Err(io::Error::other("no shell")) };
        // What is left of one that does not fit would stay for ever: nobody else may remove it.
        let opened = open(&self.pipes, number, script).inspect_err(|_| forget(&self.pipes, number));
        let Opened { wake, outputs: [(out, our_out), (err, our_err)] } = opened?;
        let before = Present::now();
        alive.running = Some(Running {
            id,
            number,
            copy: None,
            told: false,
            wake,
            _outputs: [our_out, our_err],
            before,
            marks,
        });
        if let Err(error) = alive.control.write_all(control_lines(number).as_bytes()) {
            // Somebody has filled its pipe: the next command gets a fresh shell.
            processes::signal(&[alive.pid], Signal::KILL);
            self.alive = None;
            self.lost = true;
            return Err(error);
        }
        Ok([out, err])
    }

    /// Reads what the shell has told; answers the command and its status once it has ended.
    pub(crate) fn read_status(&mut self) -> Option<(u32, Status)> {
        let alive = self.alive.as_mut()?;
        let mut buffer = [0u8; 4096];
        while let Ok(n @ 1..) = alive.status.read(&mut buffer) {
            alive.unread.extend_from_slice(&buffer[..n]);
            // A flood is somebody else's writing; nothing of ours is that long.
            if alive.unread.len() > 1 << 16 {
                alive.unread.clear();
            }
        }
        while let Some(end) = alive.unread.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = alive.unread.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            let mut words = line.split_whitespace();
            let (Some(kind), Some(number), Some(value)) =
                (words.next(), words.next(), words.next())
            else {
                continue;
            };
            let Some(running) = &mut alive.running else { continue };
            // Only the current command's words count: an old shell may still have spoken.
            if number.parse() != Ok(running.number) {
                continue;
            }
            match (kind, value.parse::<i32>()) {
                // The first word is the copy's own; any later one is the command's.
                ("b", Ok(pid)) if pid > 1 && !running.told => {
                    running.told = true;
                    running.copy = Some(pid);
                }
                ("s", Ok(code)) => return Some((running.id, Status::Exited(code))),
                _ => {}
            }
        }
        None
    }

    /// The command ended and the shell goes on: the copy is not needed.
    pub(crate) fn commit(&mut self) -> Marks {
        let running = self.alive.as_mut().and_then(|alive| {
            alive.settle(&self.pipes);
            alive.running.take()
        });
        running.map_or(Marks::default(), |running| {
            processes::signal(running.copy.as_slice(), Signal::KILL);
            forget(&self.pipes, running.number);
            running.marks
        })
    }

    /// A process ended. If it was the shell, its command ended with it, and the copy takes over.
    pub(crate) fn process_ended(&mut self, pid: i32) -> Option<(u32, Marks, bool)> {
        let alive = self.alive.as_mut()?;
        if let Some(running) = &mut alive.running
            && running.copy == Some(pid)
        {
            running.copy = None;
        }
        if alive.pid != pid {
            return None;
        }
        match alive.running.take() {
            Some(running) => {
                let ended = (running.id, running.marks);
                self.hand_over(running);
                Some((ended.0, ended.1, self.lost_now()))
            }
            None => {
                self.alive = None;
                self.lost = true;
                None
            }
        }
    }

    /// Kills everything the command started, the shell included. Answers whether the state was lost.
    pub(crate) fn abort(&mut self, programs: &[i32], workers: &[i32]) -> bool {
        let Some(running) = self.alive.as_mut().and_then(|alive| alive.running.take()) else {
            return false;
        };
        let mut spared = running.before.still_there();
        spared.extend(running.copy);
        spared.extend(programs);
        spared.extend(workers);
        // The shell was there before the command, but its children, and it, are what has to go.
        if let Some(alive) = &self.alive {
            spared.remove(&alive.pid);
            // First, or it would comment on the end of the others.
            processes::signal(&[alive.pid], Signal::KILL);
        }
        processes::kill_all_but(&spared, processes::Family::Too);
        self.hand_over(running);
        self.lost_now()
    }

    /// Makes the copy the shell.
    fn hand_over(&mut self, mut running: Running) {
        let Some(alive) = &mut self.alive else { return };
        alive.settle(&self.pipes);
        // Lines meant for the dead shell must not reach its successor.
        drain(&mut alive.control);
        match running.copy {
            Some(copy) if running.wake.write_all(b"go\n").is_ok() => {
                alive.pid = copy;
                alive.woken = Some((running.number, running.wake));
            }
            _ => {
                forget(&self.pipes, running.number);
                self.alive = None;
                self.lost = true;
            }
        }
    }

    /// The shell was killed while no command ran: the next one starts fresh.
    pub(crate) fn give_up(&mut self) {
        if self.alive.take().is_some() {
            self.lost = true;
        }
    }

    fn lost_now(&mut self) -> bool {
        std::mem::take(&mut self.lost)
    }
}

impl Alive {
    fn launch(pipes: &Pipes, init: &Init<'_>) -> io::Result<Self> {
        let control = pipes.both_ways("k")?;
        let status = pipes.both_ways("s")?;
        let pid = match sys::fork()? {
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

impl Alive {
    /// The shell has run a command, so it is past its own waking up.
    fn settle(&mut self, pipes: &Pipes) {
        if let Some((number, _)) = self.woken.take() {
            forget(pipes, number);
        }
    }
}

/// In the forked child: turns into the shell. Returns only on failure.
fn become_shell(init: &Init<'_>) -> io::Error {
    let prepare = || -> io::Result<()> {
        let _ = rustix::process::setsid();
        harden::prefer_for_killing(init.own.proc.as_fd());
        sys::close_from(3)?;
        sys::reset_signals();
        init.hardening.apply()?;
        // Only now: links on the way there must not be followed with more rights than a command's.
        std::env::set_current_dir(&init.plan.workdir)
    };
    if let Err(error) = prepare() {
        return error;
    }
    sys::set_path(environ::path(&init.plan.env));
    let argv = ["bash", "--noprofile", "--norc", "-c", LOOP];
    let argv: Vec<_> = argv.iter().filter_map(|arg| CString::new(*arg).ok()).collect();
    sys::execute(&argv, &environ::as_c_strings(&init.plan.env))
}

/// The lines that make the shell run a command.
///
/// The first forks the sleeping copy: a grandchild, so that neither `jobs`, `wait` nor `$!` notice it. The
/// copy lets go of the substitution's pipe only after it has told its number, so PID 1 knows it in time.
/// The second evaluates the command at the top level. The third reports; it is a line of its own so that a
/// stray `continue` in the command cannot skip it.
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

/// Removes a command's names. Whoever has them open goes on.
/// What a command is run with: its way back, and both ends of its output and of its errors.
struct Opened {
    wake: File,
    outputs: [(File, File); 2],
}

/// Stores the script of a command and makes its pipes.
fn open(pipes: &Pipes, number: u32, script: OwnedFd) -> io::Result<Opened> {
    pipes.store(&format!("c{number}"), File::from(script))?;
    let wake = pipes.both_ways(&format!("b{number}"))?;
    let outputs = [pipes.output(&format!("o{number}"))?, pipes.output(&format!("e{number}"))?];
    Ok(Opened { wake, outputs })
}

fn forget(pipes: &Pipes, number: u32) {
    for kind in ["b", "c", "o", "e"] {
        pipes.remove(&format!("{kind}{number}"));
    }
}
