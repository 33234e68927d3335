//! The arguments of `benchmark` as the user types them, in our spelling and in that of the method's first
//! implementation. Nothing is checked here beyond its form.

use std::{num::NonZeroU32, path::PathBuf, time::Duration};

use benchmark::Capability;
use clap::{Args, ValueEnum};
use results::Mode;
use serde::{Deserialize, Serialize};

use crate::{
    agent_args::ModelArgs,
    args::ComputerArgs,
    values::{self, Limit},
};

/// What the record of a resumed run decides.
const NOT_ANEW: [&str; 30] = [
    "tasks",
    "task",
    "data",
    "mode",
    "repeat",
    "limit",
    "ids",
    "start_id",
    "end_id",
    "context_in",
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
    "network",
    "tool_format",
    "strict",
];

/// Options of `benchmark`.
#[derive(Debug, Args)]
#[command(
    args_override_self = true,
    // Here `--context` says where documents are, as the method's first users know it.
    mut_arg("context", |arg| arg.long("context-tokens")),
    after_help = "Examples:
  llm-in-sandbox benchmark math --model Qwen/Qwen3-8B --base-url http://localhost:8000/v1 --mode both
  llm-in-sandbox benchmark math biomed --data math=aime.jsonl --data biomed=med.parquet --repeat 4
  llm-in-sandbox benchmark physics --model NAME --judge-model JUDGE --judge-base-url http://host:8000/v1
  llm-in-sandbox benchmark ./my-task --model NAME --limit 10 --without external,execution
  llm-in-sandbox benchmark --resume benchmark-runs/math-NAME
  llm-in-sandbox benchmark --task math --llm_name NAME --mode llm-in-sandbox --num_workers 8 --start_id 0 --end_id 3

Every finished attempt is kept at once in OUTPUT: run.json, attempts/, trajectories/, results.json. The same
command again, or --resume, makes what is missing and repeats nothing; `report OUTPUT` explains it.
Exit codes: 0 all attempts made and graded, 2 bad input, 4 the machine, the model's server or the judge failed
for some, 130 cancelled with Ctrl-C."
)]
pub(crate) struct BenchmarkArgs {
    /// What to measure: math, physics, chem, biomed, long_context, instruct_follow, instruct_pretrain, swe, or
    /// the folder of a task of your own
    #[arg(value_name = "TASK", required_unless_present_any = ["task", "resume"])]
    pub(crate) tasks: Vec<String>,
    /// The same as TASK
    #[arg(long, hide = true)]
    pub(crate) task: Vec<String>,
    /// The rows: a .jsonl, .json or .parquet file; with several tasks TASK=FILE, once for each [else: the
    /// task's own, or those of the Hugging Face hub]
    #[arg(long, value_name = "[TASK=]FILE")]
    pub(crate) data: Vec<String>,
    /// With a computer, with one plain reply, or both side by side
    #[arg(long, value_name = "MODE", value_enum, default_value = "sandbox")]
    pub(crate) mode: Modes,
    /// How often each problem is asked
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) repeat: NonZeroU32,
    /// No more than so many problems of each task
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// Only these problems, separated by commas; with several tasks those of any. May be repeated
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    pub(crate) ids: Vec<String>,
    /// The first problem, from 0. Rows that repeat another count with it, those that are left out not at all
    #[arg(long, value_name = "N", alias = "start_id")]
    pub(crate) start_id: Option<usize>,
    /// The problem after the last
    #[arg(long, value_name = "N", alias = "end_id")]
    pub(crate) end_id: Option<usize>,
    /// Where documents are: in files of the sandbox, or in the prompt. A plain reply always has them there
    #[arg(long = "context", value_name = "WHERE", value_enum, default_value = "files")]
    pub(crate) context_in: ContextIn,
    /// What the model has to do without: external (network), files (that can be written), execution (of
    /// commands). Separated by commas, or repeated
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    pub(crate) without: Vec<Capability>,

    /// The directory of the run [default: benchmark-runs/TASK-MODEL]
    #[arg(long, value_name = "DIR", alias = "output_dir", alias = "output-dir")]
    pub(crate) output: Option<PathBuf>,
    /// Go on with a run. Settings and the judge are those of its record; options of the server and the judge may be
    /// given anew, variables and headers must be
    #[arg(long, value_name = "DIR", conflicts_with_all = NOT_ANEW)]
    pub(crate) resume: Option<PathBuf>,
    /// Obey the settings of a record that was not written by you on this machine
    #[arg(long, requires = "resume")]
    pub(crate) trust: bool,

    /// Sandboxes at once [default: by processors and memory; 4 for a model in this process]
    #[arg(long, value_name = "N", alias = "num_workers", alias = "num-workers")]
    pub(crate) concurrency: Option<NonZeroU32>,
    /// Calls to the model at once [default: as many as sandboxes; no more than 8 for a model in this process]
    #[arg(long, value_name = "N")]
    pub(crate) model_calls: Option<NonZeroU32>,
    /// How often an attempt is begun before it counts as failed by the machine or a server
    #[arg(long, value_name = "N", default_value = "3")]
    pub(crate) tries: NonZeroU32,
    /// The run ends after so many such failures in a row
    #[arg(long, value_name = "N", default_value = "10")]
    pub(crate) max_failures: NonZeroU32,

    #[command(flatten)]
    pub(crate) judge: JudgeArgs,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) limits: CapArgs,
    #[command(flatten)]
    pub(crate) computer: ComputerArgs,
    /// A Docker image; the same as `--runtime docker --image NAME`
    #[arg(long, alias = "docker_image", hide = true)]
    pub(crate) docker_image: Option<String>,
    /// A YAML file with llm_name, llm_base_url, api_key, as for `run`
    #[arg(long, value_name = "FILE")]
    pub(crate) settings: Option<PathBuf>,

    /// Print one JSON object at the end instead of the table
    #[arg(long)]
    pub(crate) json: bool,
    /// Tell how it goes on as JSON lines on standard error
    #[arg(long, conflicts_with = "quiet")]
    pub(crate) json_progress: bool,
    /// Show nothing but the result and errors
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// Who judges answers that no program can.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[command(next_help_heading = "Judge")]
pub(crate) struct JudgeArgs {
    /// The model that compares answers with the right ones, for tasks that need it; may be the same
    #[arg(long, value_name = "NAME")]
    pub(crate) judge_model: Option<String>,
    /// Its server [else: that of the model if it judges itself, $LLM_BASE_URL, or as --base-url is without it]
    #[arg(long, value_name = "URL", requires = "judge_model")]
    pub(crate) judge_base_url: Option<String>,
    /// The variable that holds its key [else: the usual ones]
    #[arg(long, value_name = "VAR", requires = "judge_model")]
    pub(crate) judge_api_key_env: Option<String>,
}

/// What an attempt may use up.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct CapArgs {
    /// Replies of the model [default: 100, or what the task says]
    #[arg(long, value_name = "N", alias = "max_steps", alias = "max-steps",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_turns: Option<u32>,
    /// Tokens of the whole conversation [default: 65536, 131072 for long_context]
    #[arg(long, value_name = "N", alias = "max_token_limit", alias = "max-token-limit",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_tokens: Option<u64>,
    /// Tokens of one reply with a computer [default: 65536; of a model in this process 4096]
    #[arg(long, value_name = "N", alias = "max_tokens_per_call",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_tokens_per_call: Option<u64>,
    /// Tokens of a plain reply [default: as for one with a computer]
    #[arg(long, value_name = "N", alias = "max_response_len",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_response_len: Option<u64>,
    /// Dollars of one attempt; the model's price must be known
    #[arg(long, value_name = "USD", value_parser = values::dollars, allow_negative_numbers = true)]
    pub(crate) max_cost: Option<f64>,
    /// Time for one attempt: seconds, or 500ms, 2m, 1h
    #[arg(long, value_name = "SECONDS", default_value = "30m", value_parser = values::time)]
    pub(crate) deadline: Limit<Duration>,
    /// Time for one command
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = values::time)]
    pub(crate) command_timeout: Limit<Duration>,
    /// Shorten old results when the conversation nears the limit of tokens
    #[arg(long)]
    pub(crate) compact: bool,
}

/// How problems are put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Modes {
    /// A model with a computer
    #[value(alias = "llm-in-sandbox")]
    Sandbox,
    /// One plain reply
    Llm,
    /// Both
    Both,
}

impl Modes {
    /// One by one.
    pub(crate) fn all(self) -> Vec<Mode> {
        match self {
            Self::Sandbox => vec![Mode::Sandbox],
            Self::Llm => vec![Mode::Llm],
            Self::Both => vec![Mode::Llm, Mode::Sandbox],
        }
    }
}

/// Where documents are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ContextIn {
    /// In files
    Files,
    /// In the prompt
    Prompt,
}
