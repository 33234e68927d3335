//! The arguments of `sandbox …`.

pub(super) mod named;

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand};
use supervisor::Name;

pub(crate) use self::named::NamedCommand;
use crate::args::{
    sandbox::{RuntimeKind, SandboxArgs},
    values::{self, CopyPair, Limit},
};

/// Subcommands of `sandbox`.
#[derive(Debug, Subcommand)]
pub(crate) enum SandboxCommand {
    /// Run a command in a new sandbox
    Run(SandboxRunArgs),
    /// Open a shell in a new or named sandbox
    Shell(SandboxShellArgs),
    #[command(flatten)]
    Named(NamedCommand),
    /// List the sandboxes on this machine
    List(SandboxListArgs),
    /// Remove what crashed processes left behind
    Prune(SandboxPruneArgs),
}

/// Options of `sandbox run`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  llm-in-sandbox sandbox run -- bash -c 'echo hello from $(hostname)'
  echo 1 2 3 | llm-in-sandbox sandbox run -- wc -w
  llm-in-sandbox sandbox run --memory 512M --pids 64 --timeout 10 \\
      --copy-in data.csv:/testbed/data.csv \\
      --copy-out /testbed/result.txt:result.txt \\
      -- bash -c 'wc -l data.csv > result.txt'
  llm-in-sandbox sandbox run --network allow=example.com -- \\
      curl -s https://example.com
  llm-in-sandbox sandbox run --image base --json -- python3 -c 'import numpy'
  llm-in-sandbox sandbox run --image base --network internet --save with-jax \\
      -- pip install jax

Output and exit code are the command's; 124 after a timeout, 137 out of memory.")]
pub(crate) struct SandboxRunArgs {
    /// Save the files as an image of this name if the command succeeds
    #[arg(long, value_name = "NAME")]
    pub(crate) save: Option<String>,
    /// Print one JSON object at the end, including the command's output
    #[arg(long)]
    pub(crate) json: bool,
    /// Command, after --
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub(crate) command: Vec<String>,

    #[command(flatten)]
    pub(crate) sandbox: SessionArgs,
}

/// Options of `sandbox shell`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  llm-in-sandbox sandbox shell
  llm-in-sandbox sandbox shell --image base --network internet \\
      --copy-in project:/testbed
  llm-in-sandbox sandbox shell box
  echo 'ls -l /' | llm-in-sandbox sandbox shell

There is no time limit unless --timeout is given. The exit code is the shell's.
A named sandbox has its image, limits and network already, and stays.")]
pub(crate) struct SandboxShellArgs {
    /// Named sandbox to open the shell in [default: a new one, gone with the shell]
    #[arg(value_name = "NAME", conflicts_with_all = ["SessionArgs", "SandboxArgs"])]
    pub(crate) name: Option<Name>,
    #[command(flatten)]
    pub(crate) sandbox: SessionArgs,
}

/// A sandbox, and what is copied in and out of it.
#[derive(Debug, Args)]
pub(crate) struct SessionArgs {
    /// Working directory in the sandbox; created if missing
    #[arg(long, value_name = "DIR", default_value = "/testbed")]
    pub(crate) workdir: PathBuf,
    /// Copy a file or directory into the sandbox before the command; repeatable
    #[arg(long, value_name = "SRC:DST", value_parser = values::copy_in)]
    pub(crate) copy_in: Vec<CopyPair>,
    /// Copy a file or directory out of the sandbox after the command, even if it failed; repeatable
    #[arg(long, value_name = "SRC:DST", value_parser = values::copy_out)]
    pub(crate) copy_out: Vec<CopyPair>,
    /// Time limit: seconds, or 500ms, 2m, 1h; `none` for no limit [default: 120 for run, none for shell]
    #[arg(long, value_name = "SECONDS", value_parser = values::time, allow_hyphen_values = true)]
    pub(crate) timeout: Option<Limit<Duration>>,

    #[command(flatten)]
    pub(crate) sandbox: SandboxArgs,
}

/// Options of `sandbox list`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  llm-in-sandbox sandbox list
  llm-in-sandbox sandbox list --json | jq '.[] | select(.alive | not)'

A named sandbox is busy or idle, that of a running command is alive. A sandbox
whose process crashed is marked as left over; there should be none.")]
pub(crate) struct SandboxListArgs {
    /// Only sandboxes of this runtime [default: of every available runtime]
    #[arg(long, value_name = "RUNTIME", value_enum)]
    pub(crate) runtime: Option<RuntimeKind>,
    /// Print one JSON array
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `sandbox prune`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  llm-in-sandbox sandbox prune
  llm-in-sandbox sandbox prune --runtime docker --json

Running sandboxes are left alone.")]
pub(crate) struct SandboxPruneArgs {
    /// Only sandboxes of this runtime [default: of every available runtime]
    #[arg(long, value_name = "RUNTIME", value_enum)]
    pub(crate) runtime: Option<RuntimeKind>,
    /// Print the removed sandboxes as one JSON array
    #[arg(long)]
    pub(crate) json: bool,
}
