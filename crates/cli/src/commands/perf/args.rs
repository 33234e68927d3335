//! The arguments of `perf …`.

use std::{ffi::OsString, num::NonZeroU32, path::PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use sandbox::ImageRef;

use crate::args::model::LocalArgs;

/// Subcommands of `perf`.
#[derive(Debug, Subcommand)]
pub(crate) enum PerfCommand {
    /// Measure creating, using and destroying sandboxes
    #[command(after_help = "Examples:
  llm-in-sandbox perf sandbox
  llm-in-sandbox perf sandbox --against docker --docker-image debian --json

With --against docker, both runtimes start from the same root file system:
unless --image is given, the daemon's image is saved and imported into the image
store first.")]
    Sandbox(PerfSandboxArgs),
    /// Measure a server: sandboxes created, commands, streams, chats and episodes over HTTP, memory
    #[command(after_help = "Examples:
  llm-in-sandbox perf serve
  llm-in-sandbox perf serve --count 2000 --streams 1000 --json
  llm-in-sandbox perf serve --rounds 100 --events 2000 --episodes 10000

Starts a server of its own on a free port, with a model that answers at once,
and stops it at the end. The same command also runs in sandboxes of this
process, in turn with those of the server. Ctrl-C ends it and prints what was
measured so far.")]
    Serve(PerfServeArgs),
    /// Measure the agent loop: concurrent episodes against a server that answers immediately
    #[command(after_help = "Example:
  cargo run --release -p lis-testkit --bin mock-server -- --turns 10
  llm-in-sandbox perf agent --base-url http://127.0.0.1:PORT/v1

The first command prints the address for the second.")]
    Agent(PerfAgentArgs),
    /// Measure a benchmark: one-command episodes per second, beside the reference package
    #[command(after_help = "Examples:
  cargo run --release -p lis-testkit --bin mock-server -- --turns 2 \\
      --command 'echo A > /testbed/answer.txt'
  llm-in-sandbox perf benchmark --base-url http://127.0.0.1:PORT/v1
  llm-in-sandbox perf benchmark --base-url URL --image ./rootfs \\
      --python venv/bin/python --docker-image NAME")]
    Benchmark(PerfBenchmarkArgs),
    /// Measure a local model: tokens per second, and the effect of prefix caching
    #[command(after_help = "Examples:
  llm-in-sandbox perf model
  llm-in-sandbox perf model --model ./file.gguf --threads 2 \\
      --server http://127.0.0.1:PORT --json

A server to compare with, such as llama.cpp's own, must serve the same file with
as many threads.")]
    Model(PerfModelArgs),
    /// Measure the math grader, beside the official Math-Verify on the same answers
    #[command(after_help = "Examples:
  python3 -m venv official && official/bin/pip install math-verify
  llm-in-sandbox perf grade --python official/bin/python
  llm-in-sandbox perf grade --input answers.jsonl \\
      --python official/bin/python --json

Both grade the same answers on one CPU each, one after the other.")]
    Grade(PerfGradeArgs),
}

/// Options of `perf sandbox`.
#[derive(Debug, Args)]
pub(crate) struct PerfSandboxArgs {
    /// Native sandboxes alive at once
    #[arg(long, value_name = "N", default_value_t = 512)]
    pub(crate) count: usize,
    /// Image of native sandboxes: host, a name or a directory [default: host; with --against, the same image]
    #[arg(long, value_name = "host|NAME|DIR")]
    pub(crate) image: Option<ImageRef>,
    /// Also measure this runtime
    #[arg(long, value_name = "RUNTIME")]
    pub(crate) against: Option<Against>,
    /// Image of its containers; must contain bash [default: the daemon's newest]
    #[arg(long, value_name = "NAME")]
    pub(crate) docker_image: Option<String>,
    /// Containers alive at once
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) docker_count: usize,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `perf serve`.
#[derive(Debug, Args)]
pub(crate) struct PerfServeArgs {
    /// Sandboxes that one client creates as fast as it can, all alive at once
    #[arg(long, value_name = "N", default_value_t = 500)]
    pub(crate) count: usize,
    /// How often that many are created and ended, to see the server's memory
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) rounds: usize,
    /// Commands, one after another
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub(crate) commands: usize,
    /// Streams of running programs, all open at once
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub(crate) streams: usize,
    /// Chats, all at once
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub(crate) chats: usize,
    /// Streams of events of running episodes, all open at once
    #[arg(long, value_name = "N", default_value_t = 500)]
    pub(crate) events: usize,
    /// Episodes, a few at once, to see the server's memory
    #[arg(long, value_name = "N", default_value_t = 500)]
    pub(crate) episodes: usize,
    /// Image of the sandboxes: host, a name or a directory
    #[arg(long, value_name = "host|NAME|DIR", default_value = "host")]
    pub(crate) image: ImageRef,
    /// Exit with code 1 if a target is missed: 200 sandboxes per second, commands within 3 ms of those in this process,
    /// no errors, memory flat within 5%
    #[arg(long)]
    pub(crate) assert: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// A runtime to compare with.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Against {
    /// A Docker daemon, over its API
    Docker,
}

/// Options of `perf agent`.
#[derive(Debug, Args)]
pub(crate) struct PerfAgentArgs {
    /// Server that answers immediately, such as lis-testkit's `mock-server`
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: String,
    /// Concurrent episodes
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub(crate) episodes: usize,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `perf benchmark`.
#[derive(Debug, Args)]
pub(crate) struct PerfBenchmarkArgs {
    /// Server that answers with one command and then submits: `mock-server --turns 2 --command 'echo A >
    /// /testbed/answer.txt'` of lis-testkit
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: String,
    /// Number of episodes
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(crate) episodes: u32,
    /// Concurrent episodes [default: four per CPU]
    #[arg(long, value_name = "N")]
    pub(crate) concurrency: Option<NonZeroU32>,
    /// Image of the sandboxes: host, a name or a directory
    #[arg(long, value_name = "host|NAME|DIR", default_value = "host")]
    pub(crate) image: ImageRef,
    /// Python interpreter with the reference package `llm-in-sandbox`, to run the same episodes in Docker
    #[arg(long, value_name = "PROGRAM", requires = "docker_image")]
    pub(crate) python: Option<PathBuf>,
    /// Docker image of the reference package's containers, with the same files as --image
    #[arg(long, value_name = "NAME")]
    pub(crate) docker_image: Option<String>,
    /// Number of episodes of the reference package
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) reference_episodes: u32,
    /// Concurrent episodes of the reference package [default: one per CPU]
    #[arg(long, value_name = "N")]
    pub(crate) reference_workers: Option<NonZeroU32>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `perf model`.
#[derive(Debug, Args)]
pub(crate) struct PerfModelArgs {
    /// Model: local:NAME as listed by `model list`, or FILE.gguf [default: the default of `model list`]
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// Server to compare with; must serve the same file and the same adapter with as many threads
    #[arg(long, value_name = "URL", alias = "against")]
    pub(crate) server: Option<String>,
    /// Repetitions of each measurement; the best counts
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) rounds: u32,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}

/// Options of `perf grade`.
#[derive(Debug, Args)]
pub(crate) struct PerfGradeArgs {
    /// Cases to grade instead of synthetic ones: JSON lines with `gold` and `pred`
    #[arg(long, value_name = "FILE.jsonl")]
    pub(crate) input: Option<PathBuf>,
    /// Number of cases to generate, or to read from the file at most
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(crate) count: usize,
    /// Seed of the synthetic cases
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "input")]
    pub(crate) seed: u64,
    /// Python interpreter with the package math-verify [default: python3, if it has the package]
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) python: Option<OsString>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
