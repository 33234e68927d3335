//! The arguments as the user types them, with their help. Nothing is checked here beyond its form.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};
use sandbox::{ByteSize, ImageRef, Network};
use serde::{Deserialize, Serialize};

use crate::{
    agent_args::AgentArgs,
    benchmark::BenchmarkArgs,
    data::DataCommand,
    grade::GradeArgs,
    models::ModelCommand,
    perf::PerfCommand,
    replay::ReplayArgs,
    report::ReportArgs,
    train::TrainCommand,
    values::{self, CopyPair, Limit, Variable},
};

/// Give a language model a computer: any model, a Linux sandbox, three tools.
#[derive(Debug, Parser)]
#[command(
    name = "llm-in-sandbox",
    version,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "Examples:
  llm-in-sandbox run \"What is the sum of all prime numbers below 1000?\" --model NAME
  llm-in-sandbox doctor
  llm-in-sandbox sandbox run -- python3 -c 'print(6 * 7)'
  llm-in-sandbox sandbox shell --network full
  llm-in-sandbox image build

State is kept in $LLM_IN_SANDBOX_HOME, else in $XDG_DATA_HOME/llm-in-sandbox, else in
~/.local/share/llm-in-sandbox.
Exit codes: 2 for bad input, 3 when a model did not submit, 4 when the machine or a service fails."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Give a model a task and a computer; keep its answer, its files and a record
    Run(Box<AgentArgs>),
    /// Measure a model on tasks, with and without a computer; keep every attempt
    Benchmark(Box<BenchmarkArgs>),
    /// Say what runs of `benchmark` mean: Markdown, JSON, and one page with figures
    Report(ReportArgs),
    /// Show a recorded episode, or repeat its actions in a fresh sandbox
    Replay(ReplayArgs),
    /// Say what this machine can enforce, and what to install for more
    Doctor(DoctorArgs),
    /// Run commands in sandboxes; list and remove sandboxes
    #[command(subcommand)]
    Sandbox(SandboxCommand),
    /// Get, list and remove the images sandboxes start from
    #[command(subcommand)]
    Image(ImageCommand),
    /// Get, list and remove models that run on this machine
    #[command(subcommand)]
    Model(ModelCommand),
    /// Grade answers as the benchmarks' own graders do
    Grade(GradeArgs),
    /// Make tasks to train on
    #[command(subcommand)]
    Data(DataCommand),
    /// Train a model in sandboxes; draw the curves of runs
    #[command(subcommand)]
    Train(TrainCommand),
    /// Measure
    #[command(subcommand)]
    Perf(PerfCommand),
}

/// Options of `doctor`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  llm-in-sandbox doctor
  llm-in-sandbox doctor --json | jq '.native.protection.layers[] | select(.state != \"enforced\")'

It starts one sandbox to see what really holds. The exit code is 0 when some runtime works, else 4.")]
pub(crate) struct DoctorArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// What to do with sandboxes.
#[derive(Debug, Subcommand)]
pub(crate) enum SandboxCommand {
    /// Run one command in a fresh sandbox
    Run(RunArgs),
    /// Open an interactive terminal in a fresh sandbox
    Shell(ShellArgs),
    /// List the sandboxes on this machine
    List(ListArgs),
    /// Remove what processes that died left behind
    Prune(PruneArgs),
}

/// Options of `sandbox run`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  llm-in-sandbox sandbox run -- bash -c 'echo hello from $(hostname)'
  echo 1 2 3 | llm-in-sandbox sandbox run -- wc -w
  llm-in-sandbox sandbox run --memory 512M --pids 64 --timeout 10 \\
      --copy-in data.csv:/testbed/data.csv --copy-out /testbed/result.txt:result.txt \\
      -- bash -c 'wc -l data.csv > result.txt'
  llm-in-sandbox sandbox run --network allow=example.com -- curl -s https://example.com
  llm-in-sandbox sandbox run --image base --json -- python3 -c 'import numpy'

Output and exit code are the command's own; 124 after a timeout, 137 out of memory.")]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) sandbox: SandboxArgs,
    /// Print one JSON object at the end, with the command's output in it
    #[arg(long)]
    pub(crate) json: bool,
    /// The command, after --
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub(crate) command: Vec<String>,
}

/// Options of `sandbox shell`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  llm-in-sandbox sandbox shell
  llm-in-sandbox sandbox shell --image base --network full --copy-in project:/testbed
  echo 'ls -l /' | llm-in-sandbox sandbox shell

There is no time limit unless --timeout sets one. The exit code is the shell's.")]
pub(crate) struct ShellArgs {
    #[command(flatten)]
    pub(crate) sandbox: SandboxArgs,
}

/// What a sandbox is to be like, and what goes in and out of it.
#[derive(Debug, Args)]
pub(crate) struct SandboxArgs {
    #[command(flatten)]
    pub(crate) computer: ComputerArgs,
    /// Where commands start; made when missing
    #[arg(long, value_name = "DIR", default_value = "/testbed")]
    pub(crate) workdir: PathBuf,
    /// Copy a file or tree of this machine in, before the command. May be repeated
    #[arg(long, value_name = "SRC:DST", value_parser = values::copy_in)]
    pub(crate) copy_in: Vec<CopyPair>,
    /// Copy a file or tree of the sandbox out, after the command, even if it failed. May be repeated
    #[arg(long, value_name = "SRC:DST", value_parser = values::copy_out)]
    pub(crate) copy_out: Vec<CopyPair>,
    /// Kill everything the command started after this long: seconds, or 500ms, 2m, 1h; `none` for no
    /// limit [default: 120 for run, none for shell]
    #[arg(long, value_name = "SECONDS", value_parser = values::time)]
    pub(crate) timeout: Option<Limit<Duration>>,
}

/// What a sandbox is to be like.
#[derive(Debug, Args)]
pub(crate) struct ComputerArgs {
    /// Who makes the sandbox
    #[arg(long, value_name = "RUNTIME", default_value_t, value_enum)]
    pub(crate) runtime: RuntimeKind,
    /// The files it starts from: `host` (this machine's programs, without its secrets), the name of an
    /// image, or a directory
    #[arg(long, value_name = "host|NAME|DIR", default_value = "host")]
    pub(crate) image: ImageRef,
    /// Memory of all processes together; `none` for no limit
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = values::size)]
    pub(crate) memory: Limit<ByteSize>,
    /// Processor time, in cores; `none` for no limit
    #[arg(
        long,
        value_name = "N",
        default_value = "1",
        value_parser = values::cpus,
        allow_negative_numbers = true
    )]
    pub(crate) cpus: Limit<f64>,
    /// Processes and threads; `none` for no limit
    #[arg(long, value_name = "N", default_value = "512", value_parser = values::pids)]
    pub(crate) pids: Limit<u32>,
    /// Bytes written to files; `none` for no limit
    #[arg(long, value_name = "SIZE", default_value = "2G", value_parser = values::size)]
    pub(crate) disk: Limit<ByteSize>,
    /// Whom it may talk to: nobody, everybody, or these hosts over HTTP and HTTPS. `*.name` covers
    /// names below, `name:8080` another port
    #[arg(long, value_name = "none|full|allow=HOST,...", default_value = "none")]
    pub(crate) network: Network,
    /// A variable; K alone passes on the value it has here. May be repeated
    #[arg(long, value_name = "K=V", value_parser = values::variable)]
    pub(crate) env: Vec<Variable>,
    /// Fail unless every layer of protection that was asked for fully holds (for the disk limit, in part)
    #[arg(long)]
    pub(crate) strict: bool,
}

/// Who makes sandboxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RuntimeKind {
    /// Namespaces, overlayfs, control groups and seccomp; no daemon
    Native,
    /// A Docker daemon
    Docker,
}

impl Default for RuntimeKind {
    fn default() -> Self {
        if cfg!(target_os = "linux") { Self::Native } else { Self::Docker }
    }
}

impl RuntimeKind {
    /// The word for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Docker => "docker",
        }
    }
}

/// Options of `sandbox list`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  llm-in-sandbox sandbox list
  llm-in-sandbox sandbox list --json | jq '.[] | select(.alive | not)'

A sandbox whose owner died is marked as left over; there should be none.")]
pub(crate) struct ListArgs {
    /// Only those of this runtime; of every runtime that answers if not given
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

Sandboxes whose owner lives are not touched.")]
pub(crate) struct PruneArgs {
    /// Only those of this runtime; of every runtime that answers if not given
    #[arg(long, value_name = "RUNTIME", value_enum)]
    pub(crate) runtime: Option<RuntimeKind>,
    /// Print one JSON array of what was removed
    #[arg(long)]
    pub(crate) json: bool,
}

/// What to do with images.
#[derive(Debug, Subcommand)]
pub(crate) enum ImageCommand {
    /// List stored images
    #[command(after_help = "Examples:
  llm-in-sandbox image list
  llm-in-sandbox image list --json | jq -r '.[].name'

The built-in image `host` is always there and not listed.")]
    List {
        /// Print one JSON array
        #[arg(long)]
        json: bool,
    },
    /// Fetch an image from a registry, verified by digest
    #[command(after_help = "Examples:
  llm-in-sandbox image pull debian:12
  llm-in-sandbox image pull localhost:5000/team/tool:1
  echo $TOKEN | llm-in-sandbox image pull --username me --password-stdin registry.example.com/tool

A pull that was cut goes on where it stopped. The image is stored under the reference.")]
    Pull(PullArgs),
    /// Store an archive or a directory as an image
    #[command(after_help = "Examples:
  docker save python:3.12 -o python.tar && llm-in-sandbox image import python.tar python:3.12
  llm-in-sandbox image import rootfs.tar.gz mine
  llm-in-sandbox image import ./rootfs mine

An archive is the output of `docker save`, an OCI layout or a root file system, plain or compressed
with gzip or zstd.")]
    Import {
        /// The archive or directory
        #[arg(value_name = "FILE.tar|DIR")]
        source: PathBuf,
        /// The image's name
        name: String,
        /// Print the image as one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Build the base image: Debian with Python, build tools and scientific packages
    #[command(after_help = "Examples:
  llm-in-sandbox image build
  llm-in-sandbox image build mine
  llm-in-sandbox sandbox run --image base -- python3 -c 'import scipy'

Packages come from this machine's own sources, through mmdebstrap (apt-get install mmdebstrap).")]
    Build {
        /// The image's name
        #[arg(default_value = "base")]
        name: String,
        /// Print the image as one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Remove an image, and the layers only it has
    #[command(after_help = "Example:
  llm-in-sandbox image rm base")]
    Rm {
        /// The image's name
        name: String,
    },
    /// Remove layers of no image, cut downloads and what died half-way
    #[command(after_help = "Example:
  llm-in-sandbox image prune")]
    Prune {
        /// Print what was removed as one JSON object
        #[arg(long)]
        json: bool,
    },
}

/// Options of `image pull`.
#[derive(Debug, Args)]
pub(crate) struct PullArgs {
    /// The image: `NAME[:TAG]` or `HOST[:PORT]/NAME[:TAG|@DIGEST]`
    #[arg(value_name = "REF")]
    pub(crate) reference: String,
    /// Speak plain HTTP to a registry elsewhere; one on this machine needs no such word
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Who asks
    #[arg(long, value_name = "NAME", requires = "password_stdin")]
    pub(crate) username: Option<String>,
    /// Read the password or access token from standard input
    #[arg(long, requires = "username")]
    pub(crate) password_stdin: bool,
    /// Print the image as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_shows_an_example() {
        fn visit(command: &clap::Command) {
            let name = command.get_name();
            if command.get_subcommands().next().is_none() {
                let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.contains("Example") && help.contains("llm-in-sandbox"), "{name}");
            }
            command.get_subcommands().for_each(visit);
        }
        visit(&Cli::command());
    }

    #[test]
    fn the_documentation_knows_every_command_and_option() {
        fn visit(command: &clap::Command, path: &str, text: &str) {
            for option in command.get_arguments().filter_map(clap::Arg::get_long) {
                let known = text.contains(&format!("--{option}"));
                assert!(known || option == "help" || option == "version", "{path} --{option}");
            }
            for inner in command.get_subcommands() {
                let path = format!("{path} {}", inner.get_name());
                if inner.get_subcommands().next().is_none() {
                    assert!(text.contains(&format!("`{}", path.trim_start())), "{path}");
                }
                // The measurements have a page of their own.
                if inner.get_name() != "perf" {
                    visit(inner, &path, text);
                }
            }
        }
        visit(&Cli::command(), "", include_str!("../../../docs/cli.md"));
    }

    #[test]
    fn the_command_keeps_its_own_options() {
        let cli = Cli::try_parse_from([
            "x", "sandbox", "run", "--cpus", "none", "--", "ls", "--json", "--", "-l",
        ]);
        let Command::Sandbox(SandboxCommand::Run(args)) = cli.unwrap().command else {
            panic!("another command");
        };
        assert_eq!(args.command, ["ls", "--json", "--", "-l"]);
        assert!(!args.json);
        assert_eq!(args.sandbox.computer.cpus, Limit(None));
    }
}
