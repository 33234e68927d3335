//! `train compare --side-by-side`: episodes of two runs side by side, as one HTML page or as Markdown.

use std::path::Path;

use anyhow::{Context, Result};
use report::{
    transcript::{BesidePage, beside_markdown},
    validation::{EpisodePairs, Point},
};

use super::{args::CompareArgs, compare::points, one_line};
use crate::{
    console::output,
    exit::{self, Exit, UsageError},
};

/// How the episodes are written.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Html,
    Markdown,
}

/// Writes or prints the chosen episodes.
pub(super) fn run(args: &CompareArgs) -> Result<Exit> {
    let form = form(args.page.as_deref())?;
    let [[base, other]] = &points(args)[..] else {
        return Err(UsageError("--side-by-side shows two runs: name one or two".into()).into());
    };
    let found = EpisodePairs::find([base, other], args.metric.into(), &args.side_by_side);
    let found = found.map_err(|error| UsageError(exit::describe(&error.into())))?;
    let labels = labels([base, other]);
    let text = render(form, &found, [&labels[0], &labels[1]]);
    match &args.page {
        Some(path) => {
            let cannot = || format!("cannot write {}", path.display());
            atomic_file::write(path, &text).with_context(cannot)?;
            let many = found.pairs.len();
            output::note(&format!("wrote the episodes of {many} problems to {}", path.display()));
        }
        None => output::print(text.trim_end())?,
    }
    Ok(Exit::Done)
}

fn form(page: Option<&Path>) -> Result<Form> {
    let Some(path) = page else { return Ok(Form::Markdown) };
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("html" | "htm") => Ok(Form::Html),
        Some("md") => Ok(Form::Markdown),
        _ => {
            let why = format!("--page {}: the name must end in .html or .md", path.display());
            Err(UsageError(why).into())
        }
    }
}

fn render(form: Form, found: &EpisodePairs, labels: [&str; 2]) -> String {
    let mut page = BesidePage::new(labels, found.pairs.len());
    let mut markdown = String::new();
    for pair in &found.pairs {
        let events = found.events(pair);
        let events = [events[0].as_deref(), events[1].as_deref()];
        match form {
            Form::Html => page.add(pair, events),
            Form::Markdown => markdown.push_str(&beside_markdown(labels, pair, events)),
        }
    }
    match form {
        Form::Html => page.finish(),
        Form::Markdown => markdown,
    }
}

/// The names of the runs; where they are the same, with their place.
fn labels(points: [&Point; 2]) -> [String; 2] {
    let name = |point: &Point| {
        // `.` has no name of its own.
        let absolute = || point.run.canonicalize().unwrap_or_else(|_| point.run.clone());
        let run = if point.run.file_name().is_some() { point.run.clone() } else { absolute() };
        one_line(&run.file_name().unwrap_or(run.as_os_str()).to_string_lossy())
    };
    match points.map(name) {
        [first, second] if first == second => {
            [format!("{first}, first"), format!("{second}, second")]
        }
        names => names,
    }
}
