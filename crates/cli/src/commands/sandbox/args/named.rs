//! The arguments of commands on named sandboxes.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Args, Subcommand};
use supervisor::Name;

use crate::args::{
    sandbox::SandboxArgs,
    values::{self, Limit, Variable},
};

/// Commands on named sandboxes.
#[derive(Debug, Subcommand)]
pub(crate) enum NamedCommand {
    /// Create a named sandbox, which lasts until it is removed or idle for too long
    Create(SandboxCreateArgs),
    /// Run a command in a named sandbox
    Exec(SandboxExecArgs),
    /// Copy files between this machine and a named sandbox
    Cp(SandboxCpArgs),
    /// Create a second sandbox with the files of a named one
    Fork(SandboxForkArgs),
    /// Save the files of a named sandbox as an image
    Save(SandboxSaveArgs),
    /// Remove named sandboxes
    Rm(SandboxRmArgs),
}

/// Options of `sandbox create`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  llm-in-sandbox sandbox create box
  llm-in-sandbox sandbox create box --image base --network internet \\
      --memory 4G --idle-timeout 8h
  llm-in-sandbox sandbox exec box -- pip install requests

Prints the name. The sandbox belongs to a process in the background that starts
with the first sandbox and ends after the last.")]
pub(crate) struct SandboxCreateArgs {
    /// Name: a-z, 0-9, `.`, `_` and `-`, at most 63 characters
    #[arg(value_name = "NAME")]
    pub(crate) name: Name,
    /// Remove the sandbox after this time without a command: seconds, or 500ms, 2m, 1h; `none` for never
    #[arg(long, value_name = "SECONDS", default_value = "30m", value_parser = values::time)]
    pub(crate) idle_timeout: Limit<Duration>,
    /// Working directory in the sandbox; created if missing
    #[arg(long, value_name = "DIR", default_value = "/testbed")]
    pub(crate) workdir: PathBuf,
    /// Print one JSON object, including the protection
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) sandbox: SandboxArgs,
}

/// Options of `sandbox exec`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  llm-in-sandbox sandbox exec box -- python3 -c 'print(6 * 7)'
  llm-in-sandbox sandbox exec box --cwd /tmp --timeout 10 -- ls -l
  echo 1 2 3 | llm-in-sandbox sandbox exec box -- wc -w
  llm-in-sandbox sandbox exec box --tty -- bash
  llm-in-sandbox sandbox exec box --shell -- 'cd /tmp; export A=1'

Output and exit code are the command's; 124 after a timeout, 137 out of memory.
Ctrl-C kills the command; the sandbox stays. Input is passed on unless it is a
terminal.")]
pub(crate) struct SandboxExecArgs {
    /// Name of the sandbox
    #[arg(value_name = "NAME")]
    pub(crate) name: Name,
    /// Directory to run the command in [default: the working directory of the sandbox]
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Environment variable; K alone copies its value from this environment; repeatable
    #[arg(long, value_name = "K=V", value_parser = values::variable)]
    pub(crate) env: Vec<Variable>,
    /// Time limit: seconds, or 500ms, 2m, 1h; `none` for no limit [default: none]
    #[arg(long, value_name = "SECONDS", value_parser = values::time)]
    pub(crate) timeout: Option<Limit<Duration>>,
    /// Give the command a terminal
    #[arg(long, short)]
    pub(crate) tty: bool,
    /// Evaluate the command in the sandbox's shell, which keeps directory, variables and functions
    #[arg(long, conflicts_with_all = ["cwd", "env", "tty"])]
    pub(crate) shell: bool,
    /// Print one JSON object at the end, including the command's output
    #[arg(long, conflicts_with = "tty")]
    pub(crate) json: bool,
    /// Command, after --
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub(crate) command: Vec<String>,
}

impl SandboxExecArgs {
    /// A command without options.
    pub(crate) fn new<const N: usize>(name: Name, command: [&str; N]) -> Self {
        Self {
            name,
            cwd: None,
            env: Vec::new(),
            timeout: None,
            tty: false,
            shell: false,
            json: false,
            command: command.map(str::to_owned).to_vec(),
        }
    }
}

/// Options of `sandbox cp`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  llm-in-sandbox sandbox cp data.csv box:
  llm-in-sandbox sandbox cp project box:/testbed
  llm-in-sandbox sandbox cp box:/testbed/result.txt .
  llm-in-sandbox sandbox cp box:/testbed/. results

A directory as destination is copied into; SRC/. stands for the content of a
directory. Relative paths of the sandbox start at its working directory. Links
that lead out of the copied tree are not copied out.")]
pub(crate) struct SandboxCpArgs {
    /// File or directory: a path of this machine, or NAME:PATH
    #[arg(value_name = "SRC")]
    pub(crate) source: OsString,
    /// Destination: a path of this machine, or NAME:PATH
    #[arg(value_name = "DST")]
    pub(crate) destination: OsString,
}

/// Options of `sandbox fork`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  llm-in-sandbox sandbox fork box experiment

Prints the new name. Files, limits and network are those of the original;
processes are not copied.")]
pub(crate) struct SandboxForkArgs {
    /// Name of the sandbox
    #[arg(value_name = "NAME")]
    pub(crate) name: Name,
    /// Name of the new sandbox
    #[arg(value_name = "NEW")]
    pub(crate) new: Name,
}

/// Options of `sandbox save`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  llm-in-sandbox sandbox save box my-tools
  llm-in-sandbox run \"TASK\" --image my-tools

An image of this name is replaced. Processes and variables are not saved.")]
pub(crate) struct SandboxSaveArgs {
    /// Name of the sandbox
    #[arg(value_name = "NAME")]
    pub(crate) name: Name,
    /// Name for the image
    #[arg(value_name = "IMAGE")]
    pub(crate) image: String,
}

/// Options of `sandbox rm`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  llm-in-sandbox sandbox rm box experiment
  llm-in-sandbox sandbox rm --all

Kills what runs in them. Prints the names of those removed.")]
pub(crate) struct SandboxRmArgs {
    /// Names of sandboxes
    #[arg(value_name = "NAME", required_unless_present = "all", conflicts_with = "all")]
    pub(crate) names: Vec<Name>,
    /// Remove every named sandbox
    #[arg(long)]
    pub(crate) all: bool,
}
