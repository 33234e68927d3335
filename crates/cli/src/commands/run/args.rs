//! The arguments of `run`, with the spellings of the reference package as aliases.

use std::{path::PathBuf, time::Duration};

use clap::Args;

use crate::args::{
    limits::EpisodeLimitArgs,
    model::ModelArgs,
    sandbox::SandboxArgs,
    values::{self, Limit},
};

/// Options that cannot be changed when an episode is resumed.
const FIXED_ON_RESUME: [&str; 22] = [
    "task",
    "task_file",
    "query",
    "input",
    "output",
    "docker_image",
    "tool_format",
    "prompt",
    "prompt_config",
    "command_timeout",
    "compact",
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
    "strict",
];

/// Options of `run`.
#[derive(Debug, Args)]
#[command(
    args_override_self = true,
    after_help = "Examples:
  llm-in-sandbox run \"What is the sum of all prime numbers below 1000?\" \\
      --model gpt-4.1-mini
  llm-in-sandbox run \"Draw a poster from the event data\" --input event/ \\
      --output out/ --model Qwen/Qwen3-32B \\
      --base-url http://localhost:8000/v1
  llm-in-sandbox run --task-file task.md --model claude-sonnet-4-5 \\
      --network internet --max-cost 0.50
  llm-in-sandbox run --resume out/20260101_120000 --max-turns 200
  llm-in-sandbox run --query \"...\" --llm_name NAME --llm_base_url URL \\
      --input_dir in --max_steps 30

--input is copied to the sandbox's input directory. The files in its output
directory are saved in OUTPUT/TIME/files, beside trajectory.json, events.jsonl
and run.json. The answer, if there is one, is printed on standard output;
everything else goes to standard error.
Exit codes: 0 submitted, 2 invalid input, 3 ended without submitting, 4 the
machine or a service failed, 130 cancelled with Ctrl-C."
)]
pub(crate) struct RunArgs {
    /// Task for the model; `-` reads it from standard input
    #[arg(
        value_name = "TASK",
        required_unless_present_any = ["query", "task_file", "resume"],
        conflicts_with_all = ["query", "task_file"]
    )]
    pub(crate) task: Option<String>,
    /// File with the task
    #[arg(long, value_name = "FILE", conflicts_with = "query")]
    pub(crate) task_file: Option<PathBuf>,
    /// Same as TASK
    #[arg(long, hide = true)]
    pub(crate) query: Option<String>,
    /// Directory or file to copy into the sandbox's input directory
    #[arg(long, value_name = "DIR", alias = "input_dir", alias = "input-dir")]
    pub(crate) input: Option<PathBuf>,
    /// Directory for results; each run gets a subdirectory named after the time
    #[arg(
        long,
        value_name = "DIR",
        default_value = "output",
        alias = "output_dir",
        alias = "output-dir"
    )]
    pub(crate) output: PathBuf,
    /// Resume an episode that crashed, was cancelled, failed or reached a limit, with its recorded settings. Options of
    /// the model and limits may be changed; --env and --header must be repeated
    #[arg(long, value_name = "DIR", conflicts_with_all = FIXED_ON_RESUME)]
    pub(crate) resume: Option<PathBuf>,
    /// Accept a record that was not written by you on this machine: it determines where keys are sent, what is copied
    /// in, which commands are run again and how strong the sandbox is
    #[arg(long, requires = "resume")]
    pub(crate) trust: bool,
    /// Same as `--runtime docker --image NAME`
    #[arg(long, alias = "docker_image", hide = true)]
    pub(crate) docker_image: Option<String>,
    /// Print one JSON object at the end instead of the answer
    #[arg(long)]
    pub(crate) json: bool,
    /// Print only the answer and errors
    #[arg(long, short, conflicts_with = "watch")]
    pub(crate) quiet: bool,
    /// Stream the episode to standard error even if it is not a terminal
    #[arg(long)]
    pub(crate) watch: bool,

    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) prompt: PromptArgs,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    #[command(flatten)]
    pub(crate) sandbox: SandboxArgs,
}

/// The prompt.
#[derive(Debug, Args)]
#[command(next_help_heading = "Prompt")]
pub(crate) struct PromptArgs {
    /// Built-in prompts: general, math, physics, chem, biomed, long_context, instruct_follow, swe
    #[arg(long, value_name = "NAME", default_value = "general", conflicts_with = "prompt_config")]
    pub(crate) prompt: String,
    /// YAML file with prompts: system_prompt, instance_prompt, working_dir, input_dir, output_dir
    #[arg(long, value_name = "FILE", alias = "prompt_config")]
    pub(crate) prompt_config: Option<PathBuf>,
    /// YAML file with llm_name, llm_base_url, llm_adapter, api_key, prompt_config [else: $LLM_IN_SANDBOX_CONFIG,
    /// ./llm-in-sandbox.yaml, ./llm_in_sandbox.yaml, ~/.config/llm-in-sandbox/config.yaml,
    /// ~/.llm-in-sandbox/config.yaml, ~/.llm-in-sandbox.yaml]
    #[arg(long, value_name = "FILE")]
    pub(crate) settings: Option<PathBuf>,
}

/// Limits of an episode.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitArgs {
    /// Time limit of the episode: seconds, or 500ms, 2m, 1h [default: none]
    #[arg(long, value_name = "SECONDS", value_parser = values::time, allow_hyphen_values = true)]
    pub(crate) deadline: Option<Limit<Duration>>,

    #[command(flatten)]
    pub(crate) episode: EpisodeLimitArgs,
}
