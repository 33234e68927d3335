//! The arguments of `benchmark`, with the spellings of the reference package as aliases.

use std::{num::NonZeroU32, path::PathBuf, time::Duration};

use attempt::Capability;
use clap::{Args, ValueEnum};
use results::{Mode, Selection};
use serde::{Deserialize, Serialize};

use crate::args::{
    limits::EpisodeLimitArgs,
    model::ModelArgs,
    sandbox::SandboxArgs,
    values::{self, Limit},
};

/// Options that cannot be changed when a run is resumed.
const FIXED_ON_RESUME: [&str; 27] = [
    "tasks",
    "task",
    "data",
    "documents",
    "without",
    "output",
    "max_turns",
    "max_tokens",
    "max_tokens_per_call",
    "max_response_len",
    "max_cost",
    "deadline",
    "command_timeout",
    "compact",
    "docker_image",
    "runtime",
    "image",
    "memory",
    "cpus",
    "pids",
    "disk",
    "disk_quota",
    "disk_reserve",
    "stall_timeout",
    "network",
    "tool_format",
    "strict",
];

/// Options of `benchmark`.
#[derive(Debug, Args)]
#[command(
    args_override_self = true,
    // Here the old spelling `--context` is an alias of `--documents`.
    mut_arg("context_tokens", |arg| arg.alias(None)),
    after_help = "Examples:
  llm-in-sandbox benchmark math --model Qwen/Qwen3-8B \\
      --base-url http://localhost:8000/v1 --mode both
  llm-in-sandbox benchmark math biomed --data math=aime.jsonl \\
      --data biomed=med.parquet --repeat 4
  llm-in-sandbox benchmark physics --model NAME --judge-model JUDGE \\
      --judge-base-url http://host:8000/v1
  llm-in-sandbox benchmark ./my-task --model NAME --limit 10 \\
      --without external,execution
  llm-in-sandbox benchmark --resume benchmark-runs/math-NAME --limit 20 \\
      --repeat 4
  llm-in-sandbox benchmark ./my-task --dry-run
  llm-in-sandbox benchmark --resume benchmark-runs/my-task-NAME --regrade
  llm-in-sandbox benchmark --task math --llm_name NAME --mode llm-in-sandbox \\
      --num_workers 8 --start_id 0 --end_id 3

Every attempt is saved in OUTPUT as soon as it ends: run.json, attempts/,
trajectories/, results.json. The same command again, or --resume, runs only what
is missing; more problems, repetitions or modes are added to the run. `report
OUTPUT` summarizes the results.
Exit codes: 0 all attempts finished and graded, 2 invalid input, 4 the machine,
the model's server or the judge failed for some, 130 cancelled with Ctrl-C."
)]
pub(crate) struct BenchmarkArgs {
    /// Tasks: math, physics, chem, biomed, long_context, instruct_follow, instruct_pretrain, swe, or the directory of a
    /// custom task
    #[arg(value_name = "TASK", required_unless_present_any = ["task", "resume"])]
    pub(crate) tasks: Vec<String>,
    /// Same as TASK
    #[arg(long, hide = true)]
    pub(crate) task: Vec<String>,
    /// Rows of a task, as a .jsonl, .json or .parquet file; TASK=FILE for each of several tasks [else: the task's own,
    /// or those of the Hugging Face hub]
    #[arg(long, value_name = "[TASK=]FILE")]
    pub(crate) data: Vec<String>,
    /// With a sandbox, with one plain response, or both [default: sandbox]
    #[arg(long, value_name = "MODE", value_enum)]
    pub(crate) mode: Option<Modes>,
    /// Attempts per problem [default: 1]
    #[arg(long, value_name = "N")]
    pub(crate) repeat: Option<NonZeroU32>,
    /// Maximum number of problems per task [default: all]
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// Only these problems of any task, comma-separated; repeatable
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    pub(crate) ids: Vec<String>,
    /// Index of the first problem, from 0; duplicate rows count once, skipped rows do not count
    #[arg(long, value_name = "N", alias = "start_id")]
    pub(crate) start_id: Option<usize>,
    /// Index after the last problem
    #[arg(long, value_name = "N", alias = "end_id")]
    pub(crate) end_id: Option<usize>,
    /// Where documents are given; a plain response always has them in the prompt
    #[arg(long, value_name = "WHERE", value_enum, default_value = "files", alias = "context")]
    pub(crate) documents: Documents,
    /// Capabilities to remove, comma-separated or repeated: external (network), files (writing), execution (of commands)
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    pub(crate) without: Vec<Capability>,
    /// Directory for results [default: benchmark-runs/TASK-MODEL]
    #[arg(long, value_name = "DIR", alias = "output_dir", alias = "output-dir")]
    pub(crate) output: Option<PathBuf>,
    /// Resume a run with its recorded settings and judge; --limit, --ids, --repeat and --mode add to it. Options of the model
    /// and the judge may be changed; --env and --header must be repeated
    #[arg(long, value_name = "DIR", conflicts_with_all = FIXED_ON_RESUME)]
    pub(crate) resume: Option<PathBuf>,
    /// Accept recorded settings that were not written by you on this machine
    #[arg(long, requires = "resume")]
    pub(crate) trust: bool,
    /// Grade stored answers again, with the grader and judge of now; calls no model, and keeps the earlier grades
    #[arg(long)]
    pub(crate) regrade: bool,
    /// Check tasks without a model: rows, prompts (all with -v), images, one sandbox, and the grader on the right answers
    #[arg(long, conflicts_with_all = ["resume", "regrade", "json_progress"])]
    pub(crate) dry_run: bool,
    /// Start a large run without asking
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Start without checking that the server has the model and accepts the key
    #[arg(long)]
    pub(crate) no_preflight: bool,
    /// Concurrent sandboxes [default: by CPUs and memory; 4 for a local model]
    #[arg(long, value_name = "N", alias = "num_workers", alias = "num-workers")]
    pub(crate) concurrency: Option<NonZeroU32>,
    /// Concurrent requests to the model [default: as many as sandboxes; at most 8 for a local model]
    #[arg(long, value_name = "N")]
    pub(crate) model_calls: Option<NonZeroU32>,
    /// Tries of an attempt that fails because of the machine or a server
    #[arg(long, value_name = "N", default_value = "3")]
    pub(crate) tries: NonZeroU32,
    /// Consecutive failures of this kind after which the run is aborted
    #[arg(long, value_name = "N", default_value = "10")]
    pub(crate) max_failures: NonZeroU32,
    /// Same as `--runtime docker --image NAME`
    #[arg(long, alias = "docker_image", hide = true)]
    pub(crate) docker_image: Option<String>,
    /// YAML file with llm_name, llm_base_url, llm_adapter, api_key, as for `run`
    #[arg(long, value_name = "FILE")]
    pub(crate) settings: Option<PathBuf>,
    /// Print one JSON object at the end instead of the table
    #[arg(long)]
    pub(crate) json: bool,
    /// Print progress as JSON lines on standard error
    #[arg(long, conflicts_with = "quiet")]
    pub(crate) json_progress: bool,
    /// Print only the result and errors
    #[arg(long, short)]
    pub(crate) quiet: bool,

    #[command(flatten)]
    pub(crate) judge: JudgeArgs,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) limits: AttemptLimitArgs,
    #[command(flatten)]
    pub(crate) sandbox: SandboxArgs,
}

/// The judge of answers that no program can grade.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[command(next_help_heading = "Judge")]
pub(crate) struct JudgeArgs {
    /// Model that compares answers with the right ones, for tasks that need a judge
    #[arg(long, value_name = "NAME")]
    pub(crate) judge_model: Option<String>,
    /// Base URL of the judge [default: the model's if it is the same model, else as for --base-url]
    #[arg(long, value_name = "URL", requires = "judge_model")]
    pub(crate) judge_base_url: Option<String>,
    /// Environment variable with the judge's API key [default: as for --api-key-env]
    #[arg(long, value_name = "VAR", requires = "judge_model")]
    pub(crate) judge_api_key_env: Option<String>,
}

/// Limits of an attempt.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct AttemptLimitArgs {
    /// Maximum number of tokens of a plain response [default: as --max-tokens-per-call]
    #[arg(long, value_name = "N", alias = "max_response_len",
          allow_negative_numbers = true, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_response_len: Option<u64>,
    /// Time limit of an attempt: seconds, or 500ms, 2m, 1h
    #[arg(long, value_name = "SECONDS", default_value = "30m", value_parser = values::time, allow_hyphen_values = true)]
    pub(crate) deadline: Limit<Duration>,

    #[command(flatten)]
    pub(crate) episode: EpisodeLimitArgs,
}

/// How problems are given to the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Modes {
    /// A model with a sandbox
    #[value(alias = "llm-in-sandbox")]
    Sandbox,
    /// One plain response
    Llm,
    /// Both
    Both,
}

impl BenchmarkArgs {
    /// Whether problems are selected.
    pub(crate) fn selects(&self) -> bool {
        let Self { limit, ids, start_id, end_id, .. } = self;
        limit.is_some() || !ids.is_empty() || start_id.is_some() || end_id.is_some()
    }

    /// Which problems are selected.
    pub(crate) fn selection(&self) -> Selection {
        let Self { limit, ids, start_id, end_id, .. } = self;
        Selection { start: *start_id, end: *end_id, ids: ids.clone(), limit: *limit }
    }
}

impl Modes {
    /// The modes to run, in order.
    pub(crate) fn all(self) -> Vec<Mode> {
        match self {
            Self::Sandbox => vec![Mode::Sandbox],
            Self::Llm => vec![Mode::Llm],
            Self::Both => vec![Mode::Llm, Mode::Sandbox],
        }
    }
}

/// Where documents are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Documents {
    /// As files in the sandbox
    Files,
    /// In the prompt
    Prompt,
}
