//! Commands and their results: shell commands with carried-over state, and single processes with streams.

use std::{path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
};

use crate::{Captured, Error, OutputCap};

/// The longest command a shell takes.
const MAX_COMMAND: usize = 16 << 20;

/// A command for the sandbox's one shell, whose directory, variables and functions carry on.
#[derive(Clone, Debug)]
pub struct ShellCommand {
    /// What `bash` evaluates.
    pub script: Vec<u8>,
    /// After this long everything the command started is killed.
    pub timeout: Duration,
    /// How much output is kept.
    pub cap: OutputCap,
}

impl ShellCommand {
    /// A command with a two-minute limit.
    pub fn new(script: impl Into<Vec<u8>>) -> Self {
        let timeout = Duration::from_secs(120);
        Self { script: script.into(), timeout, cap: OutputCap::default() }
    }

    /// The same command with another limit.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Refuses what no shell can take as it stands. Nothing of such a command is run.
    pub fn validate(&self) -> Result<(), Error> {
        if let Some(at) = self.script.iter().position(|b| *b == 0) {
            return Err(Error::BadRequest(format!(
                "the command has a NUL byte at offset {at}, which a shell cannot hold; \
                 write it as an escape, for instance printf '\\0'"
            )));
        }
        if self.script.len() > MAX_COMMAND {
            return Err(Error::BadRequest(format!(
                "the command has {} bytes, more than the {MAX_COMMAND} a shell takes; \
                 write the data to a file first",
                self.script.len()
            )));
        }
        Ok(())
    }
}

/// A single program, started apart from the shell and its state.
#[derive(Clone, Debug)]
pub struct Process {
    /// Program and arguments. The program is looked up in the sandbox's `PATH`.
    pub argv: Vec<String>,
    /// Variables added to the sandbox's environment.
    pub env: Vec<(String, String)>,
    /// Where it starts; the sandbox's working directory when absent.
    pub workdir: Option<PathBuf>,
    /// After this long everything the program started is killed.
    pub timeout: Option<Duration>,
}

impl Process {
    /// A program without a time limit.
    pub fn new(argv: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let argv = argv.into_iter().map(Into::into).collect();
        Self { argv, env: Vec::new(), workdir: None, timeout: None }
    }

    /// Refuses what cannot be a program.
    pub fn validate(&self) -> Result<(), Error> {
        if self.argv.first().is_none_or(String::is_empty) {
            return Err(Error::BadRequest("there is no program to run".into()));
        }
        if self.argv.iter().any(|arg| arg.contains('\0')) {
            return Err(Error::BadRequest("an argument holds a NUL byte".into()));
        }
        Ok(())
    }
}

/// Something to read from, owned.
pub type Input = Box<dyn AsyncRead + Send + Unpin>;
/// Something to write to, owned.
pub type Output = Box<dyn AsyncWrite + Send + Unpin>;

/// Where a [`Process`] reads and writes.
pub enum Streams {
    /// Three separate streams.
    Pipes {
        /// Standard input; empty when absent.
        stdin: Option<Input>,
        /// Standard output.
        stdout: Output,
        /// Standard error.
        stderr: Output,
    },
    /// A terminal.
    Terminal {
        /// What is typed.
        input: Input,
        /// What the terminal shows.
        output: Output,
        /// Its size, as it changes.
        size: watch::Receiver<TerminalSize>,
    },
}

impl Streams {
    /// No input; output into the void.
    pub fn discard() -> Self {
        Self::Pipes {
            stdin: None,
            stdout: Box::new(tokio::io::sink()),
            stderr: Box::new(tokio::io::sink()),
        }
    }
}

/// The size of a terminal in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub cols: u16,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It exited with this code.
    Exited(i32),
    /// This signal ended it.
    Signaled(i32),
    /// It ran past its time and was killed.
    TimedOut,
}

impl Status {
    /// The code a shell would report: 128 + signal, 124 after a timeout.
    pub fn code(self) -> i32 {
        match self {
            Self::Exited(code) => code,
            Self::Signaled(signal) => 128 + signal,
            Self::TimedOut => 124,
        }
    }

    /// Whether it exited with 0.
    pub fn success(self) -> bool {
        self == Self::Exited(0)
    }
}

/// The limit a command ran into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The kernel killed something because the memory limit was reached.
    Oom,
    /// A process could not be started because of the process limit.
    Pids,
    /// The disk limit was reached.
    Disk,
    /// The time limit was reached.
    Timeout,
}

impl Cause {
    /// The word used in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Oom => "oom",
            Self::Pids => "pids",
            Self::Disk => "disk",
            Self::Timeout => "timeout",
        }
    }
}

/// How a [`Process`] ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// How it ended.
    pub status: Status,
    /// The limit it ran into, if any.
    pub cause: Option<Cause>,
    /// How long it ran.
    pub duration: Duration,
}

/// The result of a [`ShellCommand`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecOutput {
    /// Standard output.
    pub stdout: Captured,
    /// Standard error.
    pub stderr: Captured,
    /// How the command ended.
    pub status: Status,
    /// The limit it ran into, if any.
    pub cause: Option<Cause>,
    /// How long it ran.
    pub duration: Duration,
    /// The shell could not be saved: its variables and functions are those of a fresh one.
    pub shell_lost: bool,
}
