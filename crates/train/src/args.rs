//! The command-line arguments and their help. Only their form is checked here.

use std::{
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
};

use clap::{ArgGroup, Args, Parser, Subcommand};
use model::ToolFormat;
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
  llm-in-sandbox-train sample sample.toml --set data.limit=100
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
    /// Collect episodes of a model with their scores, to train on the correct ones
    Sample(TrainArgs),
    /// Export a trained model for vLLM and transformers, or its adapter
    Export(ExportArgs),
    /// Serve a model to other programs: completions with token ids, and chats
    Serve(ServeArgs),
    /// Measure the speed of sampling and training, in tokens per second
    Perf(PerfArgs),
}

/// Options of `rl`, `sft` and `sample`.
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

/// Options of `serve`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  llm-in-sandbox-train serve smollm2-135m
  llm-in-sandbox-train serve exported --port 8000 --slots 64 --context 16384

Answers as `llm-in-sandbox model serve` does, with the sampler and the kernels
of training. docs/serve.md explains the requests.")]
pub(crate) struct ServeArgs {
    /// Model: a directory in the Hugging Face layout, a GGUF file, or a pulled model
    pub(crate) model: PathBuf,
    /// Address to listen on
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub(crate) host: IpAddr,
    /// Port to listen on; 0 for any free one
    #[arg(long, default_value_t = 8080)]
    pub(crate) port: u16,
    /// Environment variable with the key that clients must send
    #[arg(long, value_name = "NAME")]
    pub(crate) api_key_env: Option<String>,
    /// Device: auto, cpu, cuda or cuda:N
    #[arg(long, default_value = "auto")]
    pub(crate) device: DeviceName,
    /// Number of concurrent responses
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(crate) slots: u16,
    /// Tokens of a conversation, response included; default: the model's, at most 8192
    #[arg(long, value_name = "TOKENS")]
    pub(crate) context: Option<usize>,
    /// Format of tool calls in chats: fenced, hermes, qwen3-coder or native
    #[arg(long, default_value = "fenced")]
    pub(crate) tool_format: ToolFormat,
}

/// Options of `perf`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  llm-in-sandbox-train perf --device cuda --python python3
  llm-in-sandbox-train perf --model qwen2.5-1.5b --slots 256 --context 2000 \\
      --rank 8 --python python3
  llm-in-sandbox-train perf --model qwen2.5-1.5b --slots 40 --reply 60 --check
  llm-in-sandbox-train perf --device cpu --batch 4 --reply 32 --train-batch 1 \\
      --train-length 128 --steps 2

Without --model the model has the shape of SmolLM2-135M and random weights, and
sampling and training are measured. With --model decode steps are: all slots
hold conversations of --context tokens with nothing in common. Names with random
weights: smollm2-135m, qwen2.5-0.5b, qwen2.5-1.5b, qwen2.5-3b, qwen2.5-7b,
qwen3-0.6b. With --python a plain PyTorch loop does the same work, and the
ratios are printed.")]
pub(crate) struct PerfArgs {
    /// Device: auto, cpu, cuda or cuda:N
    #[arg(long, default_value = "auto")]
    pub(crate) device: DeviceName,
    /// Measure decode steps of this model: a file, a directory, or the name of a shape
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Conversations continued at once
    #[arg(long, default_value_t = 256, requires = "model")]
    pub(crate) slots: usize,
    /// Length of each conversation, in tokens
    #[arg(long, default_value_t = 2000, requires = "model")]
    pub(crate) context: usize,
    /// Instead of measuring, compare the sampler's log-probabilities with those of training
    #[arg(long, requires = "model", conflicts_with = "python")]
    pub(crate) check: bool,
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
    /// Sample with an adapter of this rank on every projection; without --model, both with and without
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
