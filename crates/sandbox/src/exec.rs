//! Commands and their results: shell commands, which share state, and single processes with streams.

use std::{path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
};

use crate::{Captured, Error, OutputCap, RequestError};

/// Longest command in bytes.
const MAX_COMMAND: usize = 16 << 20;

/// A command for the sandbox's shell, whose working directory, variables and functions persist between commands.
#[derive(Clone, Debug)]
pub struct ShellCommand {
    /// The script that `bash` evaluates.
    pub script: Vec<u8>,
    /// Time limit, after which everything the command started is killed.
    pub timeout: Duration,
    /// How much output is captured.
    pub cap: OutputCap,
}

impl ShellCommand {
    /// Creates a command with a time limit of two minutes.
    pub fn new(script: impl Into<Vec<u8>>) -> Self {
        let timeout = Duration::from_secs(120);
        Self { script: script.into(), timeout, cap: OutputCap::default() }
    }

    /// Sets the time limit.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Checks that a shell can evaluate the command: no NUL bytes, and not longer than 16 MiB.
    pub fn validate(&self) -> Result<(), Error> {
        if let Some(offset) = self.script.iter().position(|b| *b == 0) {
            return Err(RequestError::NulInCommand { offset }.into());
        }
        if self.script.len() > MAX_COMMAND {
            let bytes = self.script.len();
            return Err(RequestError::CommandTooLong { bytes, limit: MAX_COMMAND }.into());
        }
        Ok(())
    }
}

/// A program that runs apart from the shell and its state.
#[derive(Clone, Debug)]
pub struct Process {
    /// Program and arguments. The program is looked up in the sandbox's `PATH`.
    pub argv: Vec<String>,
    /// Variables added to the sandbox's environment.
    pub env: Vec<(String, String)>,
    /// Working directory; that of the sandbox when absent.
    pub workdir: Option<PathBuf>,
    /// Time limit, after which everything the program started is killed.
    pub timeout: Option<Duration>,
}

impl Process {
    /// Creates a process without a time limit.
    pub fn new(argv: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let argv = argv.into_iter().map(Into::into).collect();
        Self { argv, env: Vec::new(), workdir: None, timeout: None }
    }

    /// Checks that the arguments can be executed.
    pub fn validate(&self) -> Result<(), Error> {
        if self.argv.first().is_none_or(String::is_empty) {
            return Err(RequestError::NoProgram.into());
        }
        if self.argv.iter().any(|arg| arg.contains('\0')) {
            return Err(RequestError::NulInArgument.into());
        }
        Ok(())
    }
}

/// An owned reader.
pub type Input = Box<dyn AsyncRead + Send + Unpin>;
/// An owned writer.
pub type Output = Box<dyn AsyncWrite + Send + Unpin>;

/// Standard streams of a [`Process`].
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
        /// Input of the terminal.
        input: Input,
        /// Output of the terminal.
        output: Output,
        /// Its size, as it changes.
        size: watch::Receiver<TerminalSize>,
    },
}

impl Streams {
    /// No input, and output that is discarded.
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
    /// Number of lines.
    pub rows: u16,
    /// Number of characters in a line.
    pub cols: u16,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It exited with this code.
    Exited(i32),
    /// It was killed by this signal.
    Signaled(i32),
    /// It reached its time limit and was killed.
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

/// The limit a command reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The kernel killed a process because of the memory limit.
    Oom,
    /// A process could not be started because of the process limit.
    Pids,
    /// The disk limit was reached.
    Disk,
    /// The time limit was reached.
    Timeout,
}

impl Cause {
    /// The name used in reports.
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
    /// The limit it reached, if any.
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
    /// The limit it reached, if any.
    pub cause: Option<Cause>,
    /// How long it ran.
    pub duration: Duration,
    /// The shell's state was lost: the next command starts with a new shell.
    pub shell_lost: bool,
}
