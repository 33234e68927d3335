//! The arguments of `report`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Options of `report`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  llm-in-sandbox report benchmark-runs/math-NAME
  llm-in-sandbox report runs/small runs/large runs/large-offline --output comparison
  llm-in-sandbox report runs/small --json | jq '.systems[].tasks[] | {task, difference: .difference.difference}'

Writes report.html (one page, opens without a network), report.md and report.json, and prints a summary. Runs of the
same model under the same conditions are combined; repeated measurements of a task are shown side by side. A run in
progress is reported up to its last attempt. The same runs give the same files, byte for byte.")]
pub(crate) struct ReportArgs {
    /// Run directories of `benchmark`
    #[arg(required = true, value_name = "RUN")]
    pub(crate) runs: Vec<PathBuf>,
    /// Directory for the files [default: RUN/report, or ./report for several runs]
    #[arg(long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Write only this format [default: all]
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub(crate) format: Option<Format>,
    /// Print the whole report as one JSON object instead of the summary
    #[arg(long)]
    pub(crate) json: bool,
}

/// The format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Markdown
    Md,
    /// JSON
    Json,
    /// One page with figures
    Html,
}
