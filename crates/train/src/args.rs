//! The arguments as the user types them, with their help. Nothing is checked here beyond its form.

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

A run that was stopped, or killed, goes on when it is started again.
Exit codes: 2 for bad input, 4 when the machine fails, 130 and 143 when stopped."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Reinforcement learning: a model plays episodes in sandboxes and learns from their rewards
    Rl(TrainArgs),
    /// Supervised learning: a model learns recorded episodes, or scripted demonstrations
    Sft(TrainArgs),
    /// Write what a run has learnt: a model for vLLM and transformers, or an adapter
    Export(ExportArgs),
    /// Measure: tokens a second in sampling and in training
    Perf(PerfArgs),
}

/// Options of `rl` and `sft`.
#[derive(Debug, Args)]
pub(crate) struct TrainArgs {
    /// The configuration, a TOML file; docs/training.md explains every key
    pub(crate) config: PathBuf,
    /// Change a value of the configuration; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Print what happens as JSON lines
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
    /// The directory of the run
    pub(crate) run: PathBuf,
    /// Write the whole model here, in the Hugging Face layout; an adapter is merged, and so rounded to the precision of the
    /// run. A new or empty directory
    #[arg(long, value_name = "DIR")]
    pub(crate) to: Option<PathBuf>,
    /// Write the adapter here, for llama.cpp
    #[arg(long, value_name = "FILE.gguf")]
    pub(crate) adapter: Option<PathBuf>,
    /// Write the adapter here, in the layout of PEFT. A new or empty directory
    #[arg(long, value_name = "DIR")]
    pub(crate) peft: Option<PathBuf>,
    /// The step to export; the last that was saved, unless told
    #[arg(long)]
    pub(crate) step: Option<u64>,
}

/// Options of `perf`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  llm-in-sandbox-train perf --device cuda --python python3
  llm-in-sandbox-train perf --device cpu --batch 4 --reply 32 --train-batch 1 --train-length 128 --steps 2

The model has the shape of SmolLM2-135M and random weights. With --python the same work is done by a plain
PyTorch loop too, and the ratios are printed.")]
pub(crate) struct PerfArgs {
    /// auto, cpu, cuda or cuda:N
    #[arg(long, default_value = "auto")]
    pub(crate) device: DeviceName,
    /// Replies sampled at once
    #[arg(long, default_value_t = 64)]
    pub(crate) batch: usize,
    /// Tokens of each question
    #[arg(long, default_value_t = 128)]
    pub(crate) prompt: usize,
    /// Tokens of each reply
    #[arg(long, default_value_t = 256)]
    pub(crate) reply: usize,
    /// Sequences of a training step
    #[arg(long, default_value_t = 8)]
    pub(crate) train_batch: usize,
    /// Tokens of each
    #[arg(long, default_value_t = 1024)]
    pub(crate) train_length: usize,
    /// Training steps to time
    #[arg(long, default_value_t = 10)]
    pub(crate) steps: u32,
    /// Sample once more with an adapter of this rank on every projection
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) rank: Option<u16>,
    /// Sample without CUDA graphs
    #[arg(long)]
    pub(crate) no_graphs: bool,
    /// A Python with PyTorch to compare with
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) python: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
