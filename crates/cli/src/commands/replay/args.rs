//! The arguments of `replay`.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::{args::sandbox::SandboxArgs, commands::benchmark::Modes, exit::UsageError};

/// Options of `replay`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  llm-in-sandbox replay output/20260101_120000
  llm-in-sandbox replay output/20260101_120000 --html
  llm-in-sandbox replay benchmark-runs/math-NAME --id aime25-3 --mode sandbox \\
      --attempt 0
  llm-in-sandbox replay benchmark-runs/math-NAME --html pages
  llm-in-sandbox replay trajectory.json --sandbox --input data/
  llm-in-sandbox replay trajectory.json --sandbox --json \\
      | jq '.[] | select(.same | not)'

Without --sandbox the episode is shown. With it, its tool calls are repeated in
a new sandbox; the exit code is 1 if a result differs. Trajectories of the
reference package are accepted too.")]
pub(crate) struct ReplayArgs {
    /// Run directory, results directory of `benchmark`, or a file of one: trajectory.json, events.jsonl, an attempt
    #[arg(value_name = "TRAJECTORY", required_unless_present = "html")]
    record: Option<PathBuf>,
    /// Write a page to read in a browser, or of a results directory a page for each attempt; `-` for standard output
    /// [default: TRAJECTORY/transcript.html, TRAJECTORY/episodes/]
    #[arg(long, value_name = "FILE|DIR", num_args = 0..=1, conflicts_with_all = ["in_sandbox", "json"])]
    html: Option<Option<PathBuf>>,
    /// Repeat the tool calls in a new sandbox
    #[arg(long = "sandbox")]
    pub(crate) in_sandbox: bool,
    /// Directory or file to copy into the sandbox's input directory first
    #[arg(long, value_name = "DIR", requires = "in_sandbox")]
    pub(crate) input: Option<PathBuf>,
    /// Print JSON: the trajectory, or with --sandbox an array of results
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) select: SelectArgs,
    #[command(flatten)]
    pub(crate) sandbox: SandboxArgs,
}

impl ReplayArgs {
    /// The record, and where to write its page if one is wanted. In `replay --html RUN` the only path is the record.
    pub(crate) fn paths(&self) -> Result<(&Path, Option<Option<&Path>>), UsageError> {
        let html = self.html.as_ref().map(Option::as_deref);
        match (self.record.as_deref(), html) {
            (Some(record), html) => Ok((record, html)),
            (None, Some(Some(record))) => Ok((record, Some(None))),
            (None, _) => Err(UsageError("TRAJECTORY is missing; give a run directory".into())),
        }
    }
}

/// Attempts of a results directory.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Attempts of a results directory")]
pub(crate) struct SelectArgs {
    /// Only this problem
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
    /// Only this attempt at each problem, from 0 as in reports
    #[arg(long, value_name = "N")]
    pub(crate) attempt: Option<u32>,
    /// Only attempts with a sandbox, with one plain response, or both [default: both]
    #[arg(long, value_name = "MODE", value_enum)]
    pub(crate) mode: Option<Modes>,
}
