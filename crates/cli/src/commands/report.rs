//! `report`: summarizes benchmark runs, as files and as text on standard output. The crate `report` does the work.

mod args;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use report::{Report, Source, html, markdown, markdown_summary, read};
use results::{AttemptKey, ResultsDir};
use trajectory::escape_hidden;

pub(crate) use self::args::ReportArgs;
use self::args::{Format, PagesOf};
use crate::{
    console::output,
    episode_pages::{EPISODES, Pages, own_directory},
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
            Self::Json => escape_hidden(&serde_json::to_string_pretty(report)?).into_owned() + "\n",
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
    let (runs, baseline) = with_baseline(args);
    let directory = match (&args.output, &runs[..]) {
        (Some(directory), _) => directory.clone(),
        (None, [run]) => default_directory(run)?,
        (None, _) => PathBuf::from("report"),
    };
    let mut sources = read(&runs, &directory)?;
    let formats = match args.format {
        Some(format) => vec![format],
        None => vec![Format::Html, Format::Md, Format::Json],
    };
    let default = if formats.contains(&Format::Html) { PagesOf::Listed } else { PagesOf::None };
    let which = args.pages.unwrap_or(default);
    if which != PagesOf::None {
        own_directory(&directory, EPISODES)?;
        let several = sources.len() > 1;
        for (at, source) in sources.iter_mut().enumerate() {
            source.pages = Some(pages_of(at, several));
        }
    }
    let report = Report::with_baseline(&sources, baseline);
    fs::create_dir_all(&directory).with_context(|| cannot("create", &directory))?;
    // Before the report, which links to them.
    let pages = write_pages(which, &report, &sources, &runs, &directory)?;
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
    let pages = match pages {
        0 => String::new(),
        1 => " and the page of 1 episode".to_owned(),
        many => format!(" and the pages of {many} episodes"),
    };
    output::note(&format!("wrote {}{pages} to {}", files.join(", "), directory.display()));
    Ok(Exit::Done)
}

/// The runs to read and the index of the baseline, which is read first where it is not one of the runs given.
fn with_baseline(args: &ReportArgs) -> (Vec<PathBuf>, usize) {
    let mut runs = args.runs.clone();
    let Some(baseline) = &args.baseline else { return (runs, 0) };
    let same = |run: &PathBuf| match (run.canonicalize(), baseline.canonicalize()) {
        (Ok(run), Ok(baseline)) => run == baseline,
        _ => run == baseline,
    };
    let index = runs.iter().position(same).unwrap_or_else(|| {
        runs.insert(0, baseline.clone());
        0
    });
    (runs, index)
}

/// The directory of the pages of a run, relative to the report.
fn pages_of(run: usize, several: bool) -> String {
    match several {
        true => format!("{EPISODES}/{}", run + 1),
        false => EPISODES.to_owned(),
    }
}

/// Writes the pages of episodes; returns their number.
fn write_pages(
    which: PagesOf,
    report: &Report,
    sources: &[Source],
    runs: &[PathBuf],
    directory: &Path,
) -> Result<usize> {
    let listed: BTreeSet<&(usize, AttemptKey)> =
        report.listed_attempts().filter_map(|attempt| attempt.source.as_ref()).collect();
    let mut pages = 0;
    for (at, (source, run)) in sources.iter().zip(runs).enumerate() {
        let Some(below) = &source.pages else { continue };
        let keys: Vec<AttemptKey> = match which {
            PagesOf::None => continue,
            PagesOf::Listed => {
                listed.iter().filter(|(run, _)| *run == at).map(|(_, key)| key.clone()).collect()
            }
            PagesOf::All => source.facts.iter().map(|fact| fact.attempt.key.clone()).collect(),
        };
        if keys.is_empty() {
            continue;
        }
        let results = ResultsDir::new(run);
        let written =
            Pages { results: &results, directory: &directory.join(below) }.write(&keys)?;
        // What cannot be read is in the report, too.
        pages += written.pages;
    }
    Ok(pages)
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
