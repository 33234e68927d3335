//! The limits of an episode: of a run, and of each attempt of a benchmark.

use std::time::Duration;

use clap::Args;

use super::values::{self, Limit};

/// Limits of an episode. Commands add theirs, such as the deadline, whose default differs.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct EpisodeLimitArgs {
    /// Maximum number of turns [default: 100, unless a benchmark task sets its own]
    #[arg(long, value_name = "N", alias = "max_steps", alias = "max-steps",
          allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_turns: Option<u32>,
    /// Maximum number of tokens of the whole conversation [default: 65536, unless a benchmark task sets its own]
    #[arg(long, value_name = "N", alias = "max_token_limit", alias = "max-token-limit",
          allow_negative_numbers = true, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_tokens: Option<u64>,
    /// Maximum number of tokens per response with a sandbox [default: 65536; 4096 for a local model]
    #[arg(long, value_name = "N", alias = "max_tokens_per_call",
          allow_negative_numbers = true, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_tokens_per_call: Option<u64>,
    /// Maximum cost of an episode in US dollars; requires a known price [default: none]
    #[arg(long, value_name = "USD", value_parser = values::dollars, allow_hyphen_values = true)]
    pub(crate) max_cost: Option<f64>,
    /// Time limit of one command: seconds, or 500ms, 2m, 1h
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = values::time, allow_hyphen_values = true)]
    pub(crate) command_timeout: Limit<Duration>,
    /// Shorten old tool results when the conversation approaches its token limit
    #[arg(long)]
    pub(crate) compact: bool,
}
