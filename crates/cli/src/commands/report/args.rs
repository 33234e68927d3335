//! The arguments of `report`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Options of `report`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  llm-in-sandbox report benchmark-runs/math-NAME
  llm-in-sandbox report runs/small runs/large --output comparison
  llm-in-sandbox report runs/step-* --baseline runs/before-training
  llm-in-sandbox report runs/a runs/b --json \\
      | jq '.comparisons[] | {task, p_holm}'

Writes report.html (one page, opens without a network), report.md and
report.json, and prints a summary. Several runs are compared problem by problem
with the baseline, and the settings that differ are listed. Runs of the same
model with the same settings over different tasks or modes are combined. A run
in progress is reported up to its last attempt. The same runs give the same
files, byte for byte.")]
pub(crate) struct ReportArgs {
    /// Run directories of `benchmark`
    #[arg(required = true, value_name = "RUN")]
    pub(crate) runs: Vec<PathBuf>,
    /// Directory for the files [default: RUN/report, or ./report for several runs]
    #[arg(long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Run that the others are compared with [default: the first RUN]
    #[arg(long, value_name = "RUN")]
    pub(crate) baseline: Option<PathBuf>,
    /// Write only this format [default: all]
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub(crate) format: Option<Format>,
    /// Episodes to write as pages for reading, into DIR/episodes: those the report lists, all, or none [default: listed
    /// if report.html is written]
    #[arg(long, value_name = "WHICH", value_enum)]
    pub(crate) pages: Option<PagesOf>,
    /// Print the whole report as one JSON object instead of the summary
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which episodes get a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PagesOf {
    /// Those that the report lists: failures, problems gained and lost, suspicious turns
    Listed,
    /// All
    All,
    /// None
    None,
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
