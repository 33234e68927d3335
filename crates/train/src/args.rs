//! The command-line arguments and their help. Only their form is checked here.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Parser, Subcommand};
use training::DeviceName;

/// Train models in the sandbox.
#[derive(Debug, Parser)]
#[command(
    name = "llm-in-sandbox-train",
    version,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "Examples:
  llm-in-sandbox-train sft warm-start.toml
  llm-in-sandbox-train rl rloo.toml --set optimiser.rate=1e-5 --set steps=200
  llm-in-sandbox-train export runs/rloo --to exported
  llm-in-sandbox-train perf --device cuda

A run that was stopped or killed resumes when it is started again.
Exit codes: 2 for invalid input, 4 for failures of the machine, 130 and 143 when
stopped."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) log: startup::LogArgs,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Reinforcement learning from the rewards of episodes in sandboxes
    Rl(TrainArgs),
    /// Supervised fine-tuning on recorded episodes or scripted demonstrations
    Sft(TrainArgs),
    /// Export a trained model for vLLM and transformers, or its adapter
    Export(ExportArgs),
    /// Measure the speed of sampling and training, in tokens per second
    Perf(PerfArgs),
}

/// Options of `rl` and `sft`.
#[derive(Debug, Args)]
pub(crate) struct TrainArgs {
    /// Configuration file (TOML); docs/training.md explains every key
    pub(crate) config: PathBuf,
    /// Override a value of the configuration; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Print events as JSON lines
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `export`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  llm-in-sandbox-train export runs/rloo --to exported
  llm-in-sandbox-train export runs/lora --adapter adapter.gguf
  llm-in-sandbox-train export runs/lora --step 100 --peft adapter")]
#[command(group(ArgGroup::new("target").required(true).multiple(true).args(["to", "adapter", "peft"])))]
pub(crate) struct ExportArgs {
    /// Run directory
    pub(crate) run: PathBuf,
    /// Write the whole model to this new or empty directory, in the Hugging Face layout; an adapter is merged, which rounds
    /// it to the precision of the run
    #[arg(long, value_name = "DIR")]
    pub(crate) to: Option<PathBuf>,
    /// Write the adapter to this file, for llama.cpp
    #[arg(long, value_name = "FILE.gguf")]
    pub(crate) adapter: Option<PathBuf>,
    /// Write the adapter to this new or empty directory, in the PEFT layout
    #[arg(long, value_name = "DIR")]
    pub(crate) peft: Option<PathBuf>,
    /// Step to export; default: the last saved one
    #[arg(long)]
    pub(crate) step: Option<u64>,
}

/// Options of `perf`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  llm-in-sandbox-train perf --device cuda --python python3
  llm-in-sandbox-train perf --device cpu --batch 4 --reply 32 --train-batch 1 \\
      --train-length 128 --steps 2

The model has the shape of SmolLM2-135M and random weights. With --python a
plain PyTorch loop does the same work, and the ratios are printed.")]
pub(crate) struct PerfArgs {
    /// Device: auto, cpu, cuda or cuda:N
    #[arg(long, default_value = "auto")]
    pub(crate) device: DeviceName,
    /// Number of concurrent responses
    #[arg(long, default_value_t = 64)]
    pub(crate) batch: usize,
    /// Tokens per prompt
    #[arg(long, default_value_t = 128)]
    pub(crate) prompt: usize,
    /// Tokens per response
    #[arg(long, default_value_t = 256)]
    pub(crate) reply: usize,
    /// Sequences per training step
    #[arg(long, default_value_t = 8)]
    pub(crate) train_batch: usize,
    /// Tokens per sequence
    #[arg(long, default_value_t = 1024)]
    pub(crate) train_length: usize,
    /// Number of timed training steps
    #[arg(long, default_value_t = 10)]
    pub(crate) steps: u32,
    /// Sample again with an adapter of this rank on every projection
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) rank: Option<u16>,
    /// Sample without CUDA graphs
    #[arg(long)]
    pub(crate) no_graphs: bool,
    /// Python interpreter with PyTorch to compare with
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) python: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
