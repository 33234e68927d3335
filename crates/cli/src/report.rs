//! `report`: what runs mean, as files beside them and a summary for who asked.
//!
//! Reads directories that `benchmark` made and writes nothing into them but a directory of its own. What a
//! report says is the crate `report`'s business.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use report::{Report, html, markdown, markdown_summary, read};

use crate::{
    exit::{Exit, Usage},
    output,
};

/// Options of `report`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  llm-in-sandbox report benchmark-runs/math-NAME
  llm-in-sandbox report runs/small runs/large runs/large-offline --output comparison
  llm-in-sandbox report runs/small --json | jq '.systems[].tasks[] | {task, difference: .difference.difference}'

Writes report.html (one page, opens without a network), report.md and report.json, and prints a summary. Runs of the
same model under the same conditions become one row; the same task measured twice stands side by side. A run that is
still under way is reported as far as it came. The same runs give the same files, byte by byte.")]
pub(crate) struct ReportArgs {
    /// Directories that `benchmark` made
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Where the files go [default: RUN/report, or `report` here for several runs]
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Write this file only [default: all three]
    #[arg(long, value_name = "FORMAT", value_enum)]
    format: Option<Format>,
    /// Print the whole report as one JSON object instead of the summary
    #[arg(long)]
    json: bool,
}

/// A file a report is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Markdown
    Md,
    /// JSON
    Json,
    /// One page with figures
    Html,
}

impl Format {
    fn file(self) -> &'static str {
        match self {
            Self::Md => "report.md",
            Self::Json => "report.json",
            Self::Html => "report.html",
        }
    }

    fn write(self, report: &Report) -> Result<String> {
        Ok(match self {
            Self::Md => markdown(report),
            Self::Json => serde_json::to_string_pretty(report)? + "\n",
            Self::Html => html(report),
        })
    }
}

/// Reports on runs.
pub(crate) async fn run(args: ReportArgs) -> Result<Exit> {
    // Thousands of files take a while; Ctrl-C must not wait for them.
    let done = tokio::task::spawn_blocking(move || report(&args));
    done.await?
}

fn report(args: &ReportArgs) -> Result<Exit> {
    let directory = match (&args.output, &args.runs[..]) {
        (Some(directory), _) => directory.clone(),
        (None, [run]) => beside(run)?,
        (None, _) => PathBuf::from("report"),
    };
    let sources = read(&args.runs, &directory).map_err(|error| Usage(error.to_string()))?;
    let report = Report::of(&sources);
    let formats = match args.format {
        Some(format) => vec![format],
        None => vec![Format::Html, Format::Md, Format::Json],
    };
    fs::create_dir_all(&directory).with_context(|| cannot("make", &directory))?;
    for format in &formats {
        let path = directory.join(format.file());
        let written = results::write_whole(&path, format.write(&report)?.as_bytes());
        written.with_context(|| cannot("write", &path))?;
    }
    match args.json {
        true => output::print_json(&report)?,
        false => output::print(&markdown_summary(&report))?,
    }
    let files: Vec<&str> = formats.iter().map(|format| format.file()).collect();
    output::note(&format!("wrote {} to {}", files.join(", "), directory.display()));
    Ok(Exit::Done)
}

/// Where the report of one run belongs. A run may come from a stranger, whose link would lead out of it.
fn beside(run: &Path) -> Result<PathBuf, Usage> {
    let directory = run.join("report");
    match directory.is_symlink() {
        true => Err(Usage(format!(
            "{} is a link; remove it, or name a place with --output",
            directory.display()
        ))),
        false => Ok(directory),
    }
}

fn cannot(what: &str, path: &Path) -> String {
    format!("cannot {what} {}; --output names another place", path.display())
}
