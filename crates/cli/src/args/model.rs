//! Arguments that choose a model and how it is called, with the spellings of the reference package as aliases.

use std::{num::NonZeroU32, path::PathBuf, time::Duration};

use clap::{
    Args, ValueEnum,
    builder::{PathBufValueParser, TypedValueParser},
};
use model::ToolFormat;
use serde::{Deserialize, Serialize};

use super::values::{self, Limit};

/// Which model, and how it is called.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelArgs {
    /// Model name at its server; local:NAME as listed by `model list`, or FILE.gguf, runs in this process [else: the
    /// settings file, $LLM_NAME, the default of `model list`]
    #[arg(long, value_name = "NAME", alias = "llm_name", alias = "llm-name")]
    pub(crate) model: Option<String>,
    /// Base URL of the server, including the version [else: the settings file, $LLM_BASE_URL, the vendor of a
    /// well-known model, http://localhost:8000/v1]
    #[arg(long, value_name = "URL", alias = "llm_base_url", alias = "llm-base-url")]
    pub(crate) base_url: Option<String>,
    /// Environment variable with the API key [else: $LLM_API_KEY, then $OPENAI_API_KEY or $ANTHROPIC_API_KEY]
    #[arg(long, value_name = "VAR", alias = "api_key_env")]
    pub(crate) api_key_env: Option<String>,
    /// API key; other users of this machine may see it, so prefer --api-key-env
    #[arg(
        long,
        value_name = "KEY",
        alias = "api_key",
        hide = true,
        conflicts_with = "api_key_env"
    )]
    pub(crate) api_key: Option<String>,
    /// Protocol of the server [default: by the model's name]
    #[arg(long, value_enum)]
    pub(crate) provider: Option<Provider>,
    /// Tool-call format: auto, native, hermes, qwen3-coder, fenced
    #[arg(long, value_name = "FORMAT", default_value = "auto", alias = "tool_format")]
    pub(crate) tool_format: ToolFormat,
    /// Whether the model accepts images [default: by the model's name]
    #[arg(long, value_enum)]
    pub(crate) images: Option<Images>,
    /// Sampling temperature [default: the server's; the paper's in a benchmark; 0.2 for a local model]
    #[arg(long, value_name = "T", value_parser = values::temperature, allow_negative_numbers = true)]
    pub(crate) temperature: Option<f64>,
    /// Nucleus sampling: total probability of the tokens to sample from [default: the server's]
    #[arg(long, value_name = "P", alias = "top_p")]
    pub(crate) top_p: Option<f64>,
    /// Number of most likely tokens to sample from [default: the server's]
    #[arg(long, value_name = "N", alias = "top_k")]
    pub(crate) top_k: Option<u64>,
    /// Minimum probability of a token, relative to the most likely one [default: the server's]
    #[arg(long, value_name = "P", alias = "min_p")]
    pub(crate) min_p: Option<f64>,
    /// Penalty of repeated tokens; 1 is none [default: the server's]
    #[arg(long, value_name = "X", alias = "repetition_penalty")]
    pub(crate) repetition_penalty: Option<f64>,
    /// Random seed of sampling, for servers that support it
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Text that ends a response; repeatable
    #[arg(long, value_name = "TEXT")]
    pub(crate) stop: Vec<String>,
    /// Token budget for reasoning, for Anthropic models [default: none]
    #[arg(long, value_name = "N")]
    pub(crate) thinking: Option<u64>,
    /// JSON object to merge into every request
    #[arg(long, value_name = "JSON", alias = "extra_body", value_parser = values::object)]
    pub(crate) extra_body: Option<serde_json::Map<String, serde_json::Value>>,
    /// HTTP header of every request, never recorded; repeatable
    #[arg(long, value_name = "NAME: VALUE")]
    pub(crate) header: Vec<String>,
    /// Time without data after which a server has failed: seconds, or 500ms, 2m, 1h [default: 600]
    #[arg(long = "idle-timeout", value_name = "SECONDS", value_parser = values::time, allow_hyphen_values = true, alias = "silence")]
    pub(crate) silence: Option<Limit<Duration>>,
    /// Retries of a request that failed temporarily [default: 5]
    #[arg(long, value_name = "N")]
    pub(crate) retries: Option<u32>,
    /// Directory to cache responses in; identical requests are answered from it
    #[arg(long, value_name = "DIR")]
    pub(crate) cache: Option<PathBuf>,
    /// File with prices of models, added to the built-in table
    #[arg(long, value_name = "FILE")]
    pub(crate) prices: Option<PathBuf>,
    /// Force every response to end with a well-formed tool call; only local models, in the formats hermes and fenced
    /// [default: no]
    #[arg(long, value_name = "WHETHER", value_enum)]
    pub(crate) force_calls: Option<Forcing>,
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}

/// Whether responses are forced to end with a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Forcing {
    /// Forced
    Yes,
    /// Not forced
    No,
}

/// How a local model is run.
#[derive(Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Local model")]
pub(crate) struct LocalArgs {
    /// LoRA adapter: a GGUF file, or none [default: the model's own, see `model list`]
    #[arg(long, value_name = "FILE|none", value_parser = PathBufValueParser::new().map(AdapterArg::from))]
    pub(crate) adapter: Option<AdapterArg>,
    /// Context window in tokens [default: the model's, at most 16384]
    #[arg(long, value_name = "N", alias = "context")]
    pub(crate) context_tokens: Option<NonZeroU32>,
    /// Threads [default: one per CPU]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZeroU32>,
}

/// Which adapter, as the user says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AdapterArg {
    /// No adapter, not even the model's own.
    None,
    /// A GGUF file.
    File(PathBuf),
}

impl From<PathBuf> for AdapterArg {
    fn from(path: PathBuf) -> Self {
        if path.as_os_str() == "none" { Self::None } else { Self::File(path) }
    }
}

/// The protocol of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Provider {
    /// Chat completions: OpenAI, vLLM, SGLang, llama.cpp, LiteLLM, Ollama
    Openai,
    /// Messages: Anthropic
    Anthropic,
}

/// Whether a model accepts images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Images {
    /// Accepted
    Yes,
    /// Not accepted
    No,
}
