//! `report`: summarizes benchmark runs, as files and as text on standard output. The crate `report` does the work.

mod args;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use report::{Report, html, markdown, markdown_summary, read};

use self::args::Format;
pub(crate) use self::args::ReportArgs;
use crate::{
    console::output,
    exit::{Exit, UsageError},
};

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

/// Writes the report.
pub(crate) async fn run(args: ReportArgs) -> Result<Exit> {
    // On another thread, so that Ctrl-C works while thousands of files are read.
    let done = tokio::task::spawn_blocking(move || report(&args));
    done.await?
}

fn report(args: &ReportArgs) -> Result<Exit> {
    let directory = match (&args.output, &args.runs[..]) {
        (Some(directory), _) => directory.clone(),
        (None, [run]) => default_directory(run)?,
        (None, _) => PathBuf::from("report"),
    };
    let sources = read(&args.runs, &directory)?;
    let report = Report::of(&sources);
    let formats = match args.format {
        Some(format) => vec![format],
        None => vec![Format::Html, Format::Md, Format::Json],
    };
    fs::create_dir_all(&directory).with_context(|| cannot("create", &directory))?;
    for format in &formats {
        let path = directory.join(format.file());
        let written = atomic_file::write(&path, format.write(&report)?);
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

/// The default directory for one run. A symbolic link in a run from elsewhere could point anywhere.
fn default_directory(run: &Path) -> Result<PathBuf, UsageError> {
    let directory = run.join("report");
    match directory.is_symlink() {
        true => Err(UsageError(format!(
            "{} is a symbolic link; remove it, or choose another directory with --output",
            directory.display()
        ))),
        false => Ok(directory),
    }
}

fn cannot(what: &str, path: &Path) -> String {
    format!("cannot {what} {}; choose another directory with --output", path.display())
}
