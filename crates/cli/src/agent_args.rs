//! The arguments of `run` as the user types them, in our spelling and in that of the method's first
//! implementation. Nothing is checked here beyond its form.

use std::{num::NonZeroU32, path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use model::ToolFormat;
use serde::{Deserialize, Serialize};

use crate::{
    args::ComputerArgs,
    values::{self, Limit},
};

/// What the record of a resumed episode decides.
const NOT_ANEW: [&str; 23] = [
    "task",
    "query",
    "input",
    "output",
    "docker_image",
    "tool_format",
    "prompt",
    "prompt_config",
    "max_turns",
    "max_tokens",
    "max_tokens_per_call",
    "max_cost",
    "deadline",
    "command_timeout",
    "compact",
    "runtime",
    "image",
    "memory",
    "cpus",
    "pids",
    "disk",
    "network",
    "strict",
];

/// Options of `run`.
#[derive(Debug, Args)]
#[command(
    args_override_self = true,
    after_help = "Examples:
  llm-in-sandbox run \"What is the sum of all prime numbers below 1000?\" --model gpt-4.1-mini
  llm-in-sandbox run \"Draw a poster from the event data\" --input event/ --output out/ \\
      --model Qwen/Qwen3-32B --base-url http://localhost:8000/v1
  llm-in-sandbox run \"$(cat task.md)\" --model claude-sonnet-4-5 --network full --max-cost 0.50
  llm-in-sandbox run --resume out/20260101_120000
  llm-in-sandbox run --query \"...\" --llm_name NAME --llm_base_url URL --input_dir in --max_steps 30

Files of --input lie in the sandbox's input directory; whatever the model leaves in its output directory
comes back in OUTPUT/TIME/files, with trajectory.json, events.jsonl and run.json beside. The answer, if
there is one, is printed on standard output; everything else goes to standard error.
Exit codes: 0 submitted, 2 bad input, 3 ended without submitting, 4 the machine or a service failed,
130 cancelled with Ctrl-C."
)]
pub(crate) struct AgentArgs {
    /// What the model is to do; `-` reads it from standard input
    #[arg(value_name = "TASK", required_unless_present_any = ["query", "resume"], conflicts_with = "query")]
    pub(crate) task: Option<String>,
    /// The same as TASK
    #[arg(long, hide = true)]
    pub(crate) query: Option<String>,
    /// A directory, or a file, copied into the sandbox's input directory
    #[arg(long, value_name = "DIR", alias = "input_dir", alias = "input-dir")]
    pub(crate) input: Option<PathBuf>,
    /// Results go to a new directory below this one, named after the time
    #[arg(
        long,
        value_name = "DIR",
        default_value = "output",
        alias = "output_dir",
        alias = "output-dir"
    )]
    pub(crate) output: PathBuf,
    /// Go on with an episode whose process died, or that was cancelled or broke off. Settings are those of
    /// its record; options of the model may be given anew, variables and headers must be
    #[arg(long, value_name = "DIR", conflicts_with_all = NOT_ANEW)]
    pub(crate) resume: Option<PathBuf>,

    /// Obey the settings of a record that was not written by you on this machine: they decide where keys are
    /// sent, what is copied in, and how strong the sandbox is
    #[arg(long, requires = "resume")]
    pub(crate) trust: bool,

    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) prompt: PromptArgs,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    #[command(flatten)]
    pub(crate) computer: ComputerArgs,
    /// A Docker image; the same as `--runtime docker --image NAME`
    #[arg(long, alias = "docker_image", hide = true)]
    pub(crate) docker_image: Option<String>,

    /// Print one JSON object at the end instead of the answer
    #[arg(long)]
    pub(crate) json: bool,
    /// Show nothing but the answer and errors
    #[arg(long, short, conflicts_with = "watch")]
    pub(crate) quiet: bool,
    /// Show the episode as it streams even if standard error is no terminal
    #[arg(long)]
    pub(crate) watch: bool,
}

/// Which model, and how it is asked.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelArgs {
    /// The model's name at its server; local:NAME of `model list` or FILE.gguf runs in this process
    /// [else: the settings file, then $LLM_NAME, then the default of `model list`]
    #[arg(long, value_name = "NAME", alias = "llm_name", alias = "llm-name")]
    pub(crate) model: Option<String>,
    /// The server, up to and including the version [else: the settings file, $LLM_BASE_URL, the vendor
    /// of a well-known model, http://localhost:8000/v1]
    #[arg(long, value_name = "URL", alias = "llm_base_url", alias = "llm-base-url")]
    pub(crate) base_url: Option<String>,
    /// The variable that holds the key [else: $LLM_API_KEY, then $OPENAI_API_KEY or $ANTHROPIC_API_KEY]
    #[arg(long, value_name = "VAR", alias = "api_key_env")]
    pub(crate) api_key_env: Option<String>,
    /// The key itself; other users of this machine may see it: better --api-key-env
    #[arg(
        long,
        value_name = "KEY",
        alias = "api_key",
        hide = true,
        conflicts_with = "api_key_env"
    )]
    pub(crate) api_key: Option<String>,
    /// The protocol the server speaks [default: by the model's name]
    #[arg(long, value_enum)]
    pub(crate) provider: Option<Provider>,
    /// How the model writes tool calls: auto, native, hermes, qwen3-coder, fenced
    #[arg(long, value_name = "FORMAT", default_value = "auto", alias = "tool_format")]
    pub(crate) tool_format: ToolFormat,
    /// Whether the model can look at pictures [default: by the model's name]
    #[arg(long, value_enum)]
    pub(crate) images: Option<Images>,
    /// Randomness [default: the server's, in a benchmark the paper's; 0.2 for a model in this process]
    #[arg(long, value_name = "T", value_parser = values::temperature, allow_negative_numbers = true)]
    pub(crate) temperature: Option<f64>,
    /// Only the likeliest tokens that together have this probability
    #[arg(long, value_name = "P", alias = "top_p")]
    pub(crate) top_p: Option<f64>,
    /// Only this many of the likeliest tokens
    #[arg(long, value_name = "N", alias = "top_k")]
    pub(crate) top_k: Option<u64>,
    /// Only tokens at least this likely, relative to the likeliest
    #[arg(long, value_name = "P", alias = "min_p")]
    pub(crate) min_p: Option<f64>,
    /// Above 1, words already used become less likely
    #[arg(long, value_name = "X", alias = "repetition_penalty")]
    pub(crate) repetition_penalty: Option<f64>,
    /// The same seed gives the same replies, where the server keeps that promise
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// A text that ends a reply. May be repeated
    #[arg(long, value_name = "TEXT")]
    pub(crate) stop: Vec<String>,
    /// Tokens of thinking, for models of Anthropic
    #[arg(long, value_name = "N")]
    pub(crate) thinking: Option<u64>,
    /// A JSON object merged into every request
    #[arg(long, value_name = "JSON", alias = "extra_body", value_parser = values::object)]
    pub(crate) extra_body: Option<serde_json::Map<String, serde_json::Value>>,
    /// A header of every request, never recorded. May be repeated
    #[arg(long, value_name = "NAME: VALUE")]
    pub(crate) header: Vec<String>,
    /// A server that says nothing for this long has failed [default: 600]
    #[arg(long, value_name = "SECONDS", value_parser = values::time)]
    pub(crate) silence: Option<Limit<Duration>>,
    /// How often a call that failed for a passing reason is made again [default: 5]
    #[arg(long, value_name = "N")]
    pub(crate) retries: Option<u32>,
    /// Keep replies here, and take them from here when the same is asked again
    #[arg(long, value_name = "DIR")]
    pub(crate) cache: Option<PathBuf>,
    /// Prices of models, added to the built-in table
    #[arg(long, value_name = "FILE")]
    pub(crate) prices: Option<PathBuf>,
    /// Whether every reply is forced to end with a well-formed tool call; for models in this process, in
    /// the formats hermes and fenced [default: by measurement]
    #[arg(long, value_name = "WHETHER", value_enum)]
    pub(crate) force_calls: Option<Forcing>,
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}

/// Whether replies are forced into a form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Forcing {
    /// They are
    Yes,
    /// They are not
    No,
}

/// How a model in this process is run.
#[derive(Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Model in this process")]
pub(crate) struct LocalArgs {
    /// A LoRA adapter on top of the model, as a GGUF file
    #[arg(long, value_name = "FILE")]
    pub(crate) adapter: Option<PathBuf>,
    /// Tokens of a conversation [default: the model's own, but no more than 16384]
    #[arg(long, value_name = "N")]
    pub(crate) context: Option<NonZeroU32>,
    /// Threads that compute [default: one for each processor]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZeroU32>,
}

/// What the model is told.
#[derive(Debug, Args)]
#[command(next_help_heading = "Prompt")]
pub(crate) struct PromptArgs {
    /// A built-in set of prompts: general, math, physics, chem, biomed, long_context, instruct_follow, swe
    #[arg(long, value_name = "NAME", default_value = "general", conflicts_with = "prompt_config")]
    pub(crate) prompt: String,
    /// A YAML file with system_prompt, instance_prompt, working_dir, input_dir, output_dir
    #[arg(long, value_name = "FILE", alias = "prompt_config")]
    pub(crate) prompt_config: Option<PathBuf>,
    /// A YAML file with llm_name, llm_base_url, api_key, prompt_config [else: $LLM_IN_SANDBOX_CONFIG,
    /// ./llm-in-sandbox.yaml, ./llm_in_sandbox.yaml, and at home .config/llm-in-sandbox/config.yaml,
    /// .llm-in-sandbox/config.yaml, .llm-in-sandbox.yaml]
    #[arg(long, value_name = "FILE")]
    pub(crate) settings: Option<PathBuf>,
}

/// What an episode may use up.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitArgs {
    /// Replies of the model
    #[arg(long, value_name = "N", default_value_t = 100, alias = "max_steps", alias = "max-steps",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_turns: u32,
    /// Tokens of the whole conversation
    #[arg(long, value_name = "N", default_value_t = 65_536, alias = "max_token_limit", alias = "max-token-limit",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_tokens: u64,
    /// Tokens of one reply [default: 65536; of a model in this process 4096]
    #[arg(long, value_name = "N", alias = "max_tokens_per_call",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_tokens_per_call: Option<u64>,
    /// Dollars; the model's price must be known
    #[arg(long, value_name = "USD", value_parser = values::dollars, allow_negative_numbers = true)]
    pub(crate) max_cost: Option<f64>,
    /// Time for everything: seconds, or 500ms, 2m, 1h
    #[arg(long, value_name = "SECONDS", default_value = "none", value_parser = values::time)]
    pub(crate) deadline: Limit<Duration>,
    /// Time for one command
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = values::time)]
    pub(crate) command_timeout: Limit<Duration>,
    /// Shorten old results when the conversation nears the limit of tokens
    #[arg(long)]
    pub(crate) compact: bool,
}

/// A protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Provider {
    /// Chat completions, as OpenAI, vLLM, SGLang, llama.cpp, LiteLLM and Ollama speak them
    Openai,
    /// Messages, as Anthropic speaks them
    Anthropic,
}

/// Whether a model can look at pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Images {
    /// It can
    Yes,
    /// It cannot
    No,
}
