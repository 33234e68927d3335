//! `task.toml`. Unknown keys are errors, and errors name their line.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use agent::Prompts;
use serde::Deserialize;
use serde_json::json;
use toml::Spanned;

use super::{TaskError, description, files, incomplete, lies_in, name_of};
use crate::{Command, Grader, PlainForm, Task, task::check_template};

/// A grader may run this long, in seconds, unless the task says otherwise.
const GRADER_TIMEOUT: u64 = 300;
/// And never longer than this.
const LONGEST_GRADER: u64 = 24 * 3600;
/// The most turns and tokens a task may ask for, so that figures stay figures.
const MOST_TURNS: u32 = 100_000;
const MOST_TOKENS: u64 = 1 << 40;
/// The most names a benchmark may be known by, and the longest of them in bytes: reports look for each in every text.
const MOST_NAMES: usize = 50;
const LONGEST_NAME: usize = 100;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: Option<Spanned<String>>,
    data: Option<Spanned<PathBuf>>,
    image: Option<String>,
    known_as: Option<Spanned<Vec<String>>>,
    #[serde(default)]
    prompt: Prompt,
    grader: Spanned<GraderTable>,
    #[serde(default)]
    limits: Limits,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Prompt {
    set: Option<Spanned<String>>,
    system: Option<String>,
    task: Option<String>,
    plain: Option<Spanned<String>>,
    working_dir: Option<String>,
    input_dir: Option<String>,
    output_dir: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GraderTable {
    kind: Option<Spanned<String>>,
    command: Option<String>,
    image: Option<String>,
    timeout: Option<Spanned<u64>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Limits {
    turns: Option<Spanned<u32>>,
    tokens: Option<Spanned<u64>>,
}

/// A description and where its errors are.
struct Source<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Source<'_> {
    fn at(&self, offset: usize, why: impl Into<String>) -> TaskError {
        let before = self.text.as_bytes().get(..offset).unwrap_or_default();
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        TaskError::Line { path: self.path.to_owned(), line, why: why.into() }
    }

    fn of<T>(&self, value: &Spanned<T>, why: impl Into<String>) -> TaskError {
        self.at(value.span().start, why)
    }
}

pub(super) fn load(dir: &Path, path: &Path) -> Result<Task, TaskError> {
    let text = description(path)?;
    let source = Source { path, text: &text };
    let file: File = toml::from_str(&text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        source.at(offset, error.message())
    })?;
    let data = data(dir, &source, file.data.as_ref())?;
    let (grader, usual) = grader(dir, &source, &file.grader, data.as_deref())?;
    let plain_form = match &file.prompt.plain {
        None => usual,
        Some(template) => {
            check_template(template.get_ref()).map_err(|why| source.of(template, why))?;
            PlainForm::Template(template.get_ref().clone())
        }
    };
    Ok(Task {
        name: name(dir, &source, file.name.as_ref())?,
        grader,
        turns: bounded(&source, file.limits.turns.as_ref(), 100, MOST_TURNS)?,
        tokens: bounded(&source, file.limits.tokens.as_ref(), 65_536, MOST_TOKENS)?,
        known_as: known_as(&source, file.known_as)?,
        prompts: prompts(&source, &file.prompt)?,
        plain_form,
        data,
        hub: None,
        image: file.image,
        notes: Vec::new(),
    })
}

fn name(
    dir: &Path,
    source: &Source<'_>,
    name: Option<&Spanned<String>>,
) -> Result<String, TaskError> {
    let Some(name) = name else { return Ok(name_of(dir)) };
    let text = name.get_ref();
    let fine = !text.trim().is_empty() && text.len() <= 100 && !text.contains(char::is_control);
    match fine {
        true => Ok(text.clone()),
        false => Err(source.of(name, "`name` has to be a short text on one line")),
    }
}

fn known_as(
    source: &Source<'_>,
    names: Option<Spanned<Vec<String>>>,
) -> Result<Vec<String>, TaskError> {
    let Some(names) = names else { return Ok(Vec::new()) };
    let listed = names.get_ref();
    match listed.len() <= MOST_NAMES && listed.iter().all(|name| name.len() <= LONGEST_NAME) {
        true => Ok(names.into_inner()),
        false => {
            let why =
                format!("`known_as` has to be at most {MOST_NAMES} names of {LONGEST_NAME} bytes");
            Err(source.of(&names, why))
        }
    }
}

fn data(
    dir: &Path,
    source: &Source<'_>,
    data: Option<&Spanned<PathBuf>>,
) -> Result<Option<PathBuf>, TaskError> {
    let Some(data) = data else { return Ok(None) };
    let path = dir.join(data.get_ref());
    match (path.is_file(), lies_in(dir, &path)) {
        (true, true) => Ok(Some(path)),
        (true, false) => {
            let why = "`data` lies outside the folder; a file elsewhere is named with --data";
            Err(source.of(data, why))
        }
        (false, _) => Err(source.of(data, format!("there is no file {}", path.display()))),
    }
}

/// The grader, and how problems are put to a model without a computer for it.
fn grader(
    dir: &Path,
    source: &Source<'_>,
    table: &Spanned<GraderTable>,
    data: Option<&Path>,
) -> Result<(Grader, PlainForm), TaskError> {
    let GraderTable { kind, command, image, timeout } = table.get_ref();
    match (kind, command) {
        (Some(kind), None) => {
            let Some(grader) = Grader::named(kind.get_ref()) else {
                let known = Grader::NAMES.join(", ");
                let why = format!("there is no grader `{}`; there are {known}", kind.get_ref());
                return Err(source.of(kind, why));
            };
            if image.is_some() || timeout.is_some() {
                return Err(source.of(table, "`image` and `timeout` are for a `command` only"));
            }
            let form = match grader {
                Grader::Math => PlainForm::Boxed,
                Grader::Choice => PlainForm::Letter,
                Grader::Tests => PlainForm::Diff,
                Grader::Exact | Grader::Rouge | Grader::Context => PlainForm::Brief,
                _ => PlainForm::Statement,
            };
            Ok((grader, form))
        }
        (None, Some(command)) => {
            let seconds = bounded(source, timeout.as_ref(), GRADER_TIMEOUT, LONGEST_GRADER)?;
            let command = Command {
                command: command.clone(),
                files: files(dir, data)?,
                image: image.clone(),
                timeout: Duration::from_secs(seconds),
            };
            Ok((Grader::Command(command), PlainForm::Statement))
        }
        _ => Err(source.of(table, "a grader is either a `kind` or a `command`")),
    }
}

fn bounded<T: PartialOrd + Copy + From<u8> + std::fmt::Display>(
    source: &Source<'_>,
    value: Option<&Spanned<T>>,
    usual: T,
    most: T,
) -> Result<T, TaskError> {
    let Some(spanned) = value else { return Ok(usual) };
    let value = *spanned.get_ref();
    match value >= T::from(1) && value <= most {
        true => Ok(value),
        false => Err(source.of(spanned, format!("it has to be from 1 to {most}"))),
    }
}

/// The set it starts from, with what the description changes.
fn prompts(source: &Source<'_>, prompt: &Prompt) -> Result<Prompts, TaskError> {
    let set = prompt.set.as_ref().map_or("general", |set| set.get_ref());
    let Some(base) = Prompts::builtin(set) else {
        let why = format!(
            "there is no prompt set `{set}`; there are {}",
            agent::prompt::BUILTIN.join(", ")
        );
        return Err(prompt.set.as_ref().map_or_else(
            || incomplete(source.path, why.clone()),
            |set| source.of(set, why.clone()),
        ));
    };
    let or = |own: &Option<String>, base: &str| own.clone().unwrap_or_else(|| base.to_owned());
    // JSON is YAML: the reader of prompt configs checks templates and directories.
    let config = json!({
        "system_prompt": or(&prompt.system, &base.system),
        "instance_prompt": or(&prompt.task, &base.task),
        "working_dir": or(&prompt.working_dir, &base.working_dir.to_string_lossy()),
        "input_dir": or(&prompt.input_dir, &base.input_dir.to_string_lossy()),
        "output_dir": or(&prompt.output_dir, &base.output_dir.to_string_lossy()),
    });
    Prompts::parse(&config.to_string())
        .map_err(|error| TaskError::Prompt { path: source.path.to_owned(), source: error })
}
