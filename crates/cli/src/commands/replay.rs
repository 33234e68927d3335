//! `replay`: shows a recorded episode as text or as a page, or repeats its tool calls and reports which results differ.

mod args;
pub(crate) mod record;
mod repeat;
mod show;

use std::path::{Path, PathBuf};

use anyhow::Context;
use results::{AttemptKey, AttemptRecord, ResultsDir};

pub(crate) use self::args::ReplayArgs;
use self::{
    args::SelectArgs,
    record::{Location, Recorded},
};
use crate::{
    console::output,
    episode_pages::{self, EPISODES},
    exit::{Exit, UsageError},
    settings::Settings,
};

/// Name of the page of a run.
const PAGE: &str = "transcript.html";

/// Shows or repeats an episode.
pub(crate) async fn run(args: ReplayArgs, settings: &Settings) -> anyhow::Result<Exit> {
    let (path, html) = args.paths()?;
    if html.is_some() {
        // On another thread, so that Ctrl-C works while thousands of files are written.
        return tokio::task::spawn_blocking(move || write_pages(&args)).await?;
    }
    let episodes = match record::read(path)? {
        Location::Episode(recorded) => vec![episode(&args.select, *recorded)?],
        Location::Results(results) => attempts(&args.select, &results)?,
    };
    match &episodes[..] {
        [recorded] if !recorded.has_events && (args.in_sandbox || args.json) => {
            Err(no_events(recorded).into())
        }
        [recorded] if args.in_sandbox => {
            let trajectory = &recorded.trajectory;
            if recorded.attempt.is_some() && args.input.is_none() {
                output::note("input files of a problem are not recorded; give them with --input");
            }
            repeat::run(args, trajectory, settings).await
        }
        [recorded] if args.json => {
            output::print_json(&recorded.trajectory)?;
            Ok(Exit::Done)
        }
        several if args.in_sandbox || args.json => Err(UsageError(format!(
            "{} attempts match; choose one with --id, --mode and --attempt",
            several.len()
        ))
        .into()),
        episodes => {
            let texts = episodes.iter().map(show::show).collect::<Vec<_>>();
            output::print(&texts.join("\n"))?;
            match episodes.iter().find(|recorded| !recorded.has_events) {
                Some(recorded) => Err(no_events(recorded).into()),
                None => Ok(Exit::Done),
            }
        }
    }
}

fn no_events(recorded: &Recorded) -> UsageError {
    UsageError(format!("there is no readable trajectory {}", recorded.source.display()))
}

/// One episode, from which nothing can be selected.
fn episode(select: &SelectArgs, recorded: Recorded) -> Result<Recorded, UsageError> {
    if select.id.is_some() || select.attempt.is_some() || select.mode.is_some() {
        return Err(UsageError(format!(
            "--id, --attempt and --mode select attempts of a results directory, and {} is one episode; omit them",
            recorded.source.display()
        )));
    }
    Ok(recorded)
}

/// The attempts at one problem.
fn attempts(select: &SelectArgs, results: &ResultsDir) -> anyhow::Result<Vec<Recorded>> {
    let selected = record::select(results, select)?;
    if select.id.is_none() && selected.len() > 1 {
        let name = results.path().display();
        return Err(UsageError(format!(
            "{name} holds {} attempts; choose a problem with --id, for example --id {}, or write all as pages with --html",
            selected.len(),
            selected[0].key.id
        ))
        .into());
    }
    let read = |attempt| Recorded::of_attempt(results, attempt).0;
    Ok(selected.into_iter().map(read).collect())
}

/// Writes the page of an episode, or a page for each attempt.
fn write_pages(args: &ReplayArgs) -> anyhow::Result<Exit> {
    let (path, html) = args.paths()?;
    let target = html.flatten();
    match record::read(path)? {
        Location::Episode(recorded) => {
            let recorded = episode(&args.select, *recorded)?;
            let default = || default_page(path, &recorded);
            write_page(&recorded, target.map_or_else(default, Path::to_owned))?;
        }
        Location::Results(results) => {
            let selected = record::select(&results, &args.select)?;
            match (target, selected.len()) {
                (Some(file), 1) if is_page(file) || file == Path::new("-") => {
                    let attempt = selected.into_iter().next().context("no attempt")?;
                    write_page(&Recorded::of_attempt(&results, attempt).0, file.to_owned())?;
                }
                (Some(file), number) if is_page(file) || file == Path::new("-") => {
                    return Err(UsageError(format!(
                        "--html: {number} attempts match; give a directory, or choose one with --id, --mode and --attempt"
                    ))
                    .into());
                }
                _ => write_directory(&results, selected, target)?,
            }
        }
    }
    Ok(Exit::Done)
}

fn write_page(recorded: &Recorded, file: PathBuf) -> anyhow::Result<()> {
    let page = episode_pages::page(recorded);
    if file == Path::new("-") {
        return Ok(output::print_raw(&page)?);
    }
    if !is_page(&file) || file.is_dir() {
        let name = file.display();
        let text =
            format!("--html: {name} is not the name of a page; give one that ends with .html");
        return Err(UsageError(text).into());
    }
    let written = atomic_file::write(&file, page);
    written.with_context(|| format!("cannot write {}", file.display()))?;
    output::note(&format!("wrote {}", file.display()));
    Ok(())
}

fn write_directory(
    results: &ResultsDir,
    attempts: Vec<AttemptRecord>,
    target: Option<&Path>,
) -> anyhow::Result<()> {
    let directory = match target {
        Some(directory) => directory.to_owned(),
        None => episode_pages::own_directory(results.path(), EPISODES)?,
    };
    let pages = episode_pages::Pages { results, directory: &directory };
    let keys: Vec<AttemptKey> = attempts.into_iter().map(|attempt| attempt.key).collect();
    let written = pages.write_with_index(&keys)?;
    for problem in &written.problems {
        output::note(problem);
    }
    let (number, name) = (written.pages, directory.display());
    output::note(&format!(
        "wrote {number} page{} and index.html to {name}",
        if number == 1 { "" } else { "s" }
    ));
    Ok(())
}

/// The page of a run is in its directory, that of a file beside it.
fn default_page(path: &Path, recorded: &Recorded) -> PathBuf {
    match &recorded.run {
        Some(_) => path.join(PAGE),
        None => path.with_extension("html"),
    }
}

fn is_page(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "html" || extension == "htm")
}
