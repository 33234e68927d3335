//! The arguments of `train …`.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use curves::Smoothing;
use report::validation::{EpisodeChoice, ProblemChoice};

/// Subcommands of `train`.
#[derive(Debug, Subcommand)]
pub(crate) enum TrainCommand {
    /// Plot training curves: reward, turns, response length, entropy, tool use
    #[command(after_help = "Examples:
  llm-in-sandbox train plot runs/first
  llm-in-sandbox train plot runs/first runs/second --output comparison
  llm-in-sandbox train plot runs/first --json \\
      | jq '.figures[] | select(.figure == \"reward_mean\")'

Writes curves.html (one page, opens without a network) and an SVG file per
figure. A run in progress is plotted up to its last step.")]
    Plot(PlotArgs),
    /// Compare the validation results of runs, or of two steps, problem by problem
    #[command(after_help = "Examples:
  llm-in-sandbox train compare runs/rloo
  llm-in-sandbox train compare runs/base runs/rloo@40 --by kind
  llm-in-sandbox train compare runs/rloo --set gsm8k --json
  llm-in-sandbox train compare runs/base runs/rloo --analyses
  llm-in-sandbox train compare runs/base runs/rloo --page pairs.html \\
      --side-by-side gsm8k/test-7,small:gained:3,small:lost

One run is compared with its own first validation, several with the first of
them. RUN@STEP chooses a validation; default: the last. --side-by-side takes
problems (SET/ID), or the first ones whose score rose (SET:gained) or fell
(SET:lost): three of them, or SET:lost:N.")]
    Compare(CompareArgs),
    /// Train a model by reinforcement learning in sandboxes
    #[command(
        disable_help_flag = true,
        after_help = "Example:
  llm-in-sandbox train rl CONFIG.toml"
    )]
    Rl(ForwardedArgs),
    /// Train a model on recorded episodes or demonstrations
    #[command(
        disable_help_flag = true,
        after_help = "Example:
  llm-in-sandbox train sft CONFIG.toml"
    )]
    Sft(ForwardedArgs),
    /// Collect episodes of a model with their scores, to train on the correct ones
    #[command(
        disable_help_flag = true,
        after_help = "Example:
  llm-in-sandbox train sample CONFIG.toml"
    )]
    Sample(ForwardedArgs),
    /// Export a trained model or adapter
    #[command(
        disable_help_flag = true,
        after_help = "Example:
  llm-in-sandbox train export RUN --to DIR"
    )]
    Export(ForwardedArgs),
    /// Serve a model with the sampler of training
    #[command(
        disable_help_flag = true,
        after_help = "Example:
  llm-in-sandbox train serve MODEL --port 8000"
    )]
    Serve(ForwardedArgs),
    /// Measure the speed of training and generation
    #[command(
        disable_help_flag = true,
        after_help = "Example:
  llm-in-sandbox train perf --device cuda"
    )]
    Perf(ForwardedArgs),
}

/// Options of `train plot`.
#[derive(Debug, Args)]
pub(crate) struct PlotArgs {
    /// Run directories, or their metrics.jsonl
    #[arg(required = true, value_name = "RUN")]
    pub(crate) runs: Vec<PathBuf>,
    /// Directory for the files [default: RUN/curves, or ./curves for several runs]
    #[arg(long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Smoothing factor, 0 (none) to below 1
    #[arg(long, value_name = "FACTOR", default_value = "0.7", value_parser = smoothing)]
    pub(crate) smooth: Smoothing,
    /// Print a summary of the figures as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `train compare`.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Run directories, or RUN@STEP
    #[arg(required = true, value_name = "RUN")]
    pub(crate) runs: Vec<PathBuf>,
    /// Value to compare: score of the answer, share with full score, or reward
    #[arg(long, value_name = "METRIC", default_value = "score")]
    pub(crate) metric: MetricArg,
    /// Break results down by kind or level of problem
    #[arg(long, value_name = "FIELD")]
    pub(crate) by: Option<ByArg>,
    /// Compare this validation set only; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) set: Vec<String>,
    /// Compare also limits, use of the sandbox and style of plain responses, from the events of episodes
    #[arg(long)]
    pub(crate) analyses: bool,
    /// The problems whose episodes are shown side by side.
    #[arg(
        help = "Show episodes of two runs side by side instead: SET/ID, SET:gained[:N] or SET:lost[:N]"
    )]
    #[arg(long, value_name = "PROBLEMS", value_delimiter = ',', value_parser = episode_choice)]
    #[arg(conflicts_with_all = ["analyses", "by", "set", "json"])]
    pub(crate) side_by_side: Vec<EpisodeChoice>,
    /// File for the episodes, .html or .md; default: Markdown on standard output
    #[arg(long, value_name = "FILE", requires = "side_by_side")]
    pub(crate) page: Option<PathBuf>,
    /// Print the comparisons as one JSON array
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is compared.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum MetricArg {
    Score,
    Success,
    Reward,
}

/// What results are broken down by.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ByArg {
    Kind,
    Level,
}

/// Parses a choice of episodes. Names of sets contain neither `/` nor `:`.
pub(crate) fn episode_choice(text: &str) -> Result<EpisodeChoice, String> {
    const DEFAULT: usize = 3;
    let choice = || {
        let at = text.find(['/', ':'])?;
        let (set, rest) = (&text[..at], &text[at + 1..]);
        let problems = match (text.as_bytes()[at], rest.split_once(':').unwrap_or((rest, ""))) {
            (b'/', _) => ProblemChoice::Id(rest.to_owned()),
            (_, ("gained", most)) => ProblemChoice::Gained(number(most, DEFAULT)?),
            (_, ("lost", most)) => ProblemChoice::Lost(number(most, DEFAULT)?),
            _ => return None,
        };
        let named = !set.is_empty() && !rest.is_empty();
        named.then(|| EpisodeChoice { set: set.to_owned(), problems })
    };
    choice().ok_or_else(|| {
        format!(
            "`{text}` is not SET/ID, SET:gained or SET:lost, such as gsm8k/test-7 or gsm8k:lost:5"
        )
    })
}

fn number(text: &str, default: usize) -> Option<usize> {
    match text {
        "" => Some(default),
        text => text.parse().ok().filter(|number| *number > 0),
    }
}

/// Parses a smoothing factor.
pub(crate) fn smoothing(text: &str) -> Result<Smoothing, String> {
    let factor = text.parse().ok().and_then(Smoothing::new);
    factor.ok_or_else(|| format!("`{text}` is not a number from 0 to below 1, such as 0.7"))
}

/// Arguments of the training program.
#[derive(Debug, Args)]
pub(crate) struct ForwardedArgs {
    /// Arguments of the training program; --help lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    pub(crate) args: Vec<OsString>,
}
