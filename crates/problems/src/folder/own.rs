//! Reads `task.toml`. Unknown keys are errors, and errors name their line.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use agent::Prompts;
use serde::Deserialize;
use serde_json::json;
use toml::Spanned;

use super::{TaskError, description, grader_files, incomplete, is_inside, name_of};
use crate::{Command, Grader, PlainPrompt, Task, task::check_template};

/// Default time limit of a grader, in seconds.
const DEFAULT_TIMEOUT: u64 = 300;
/// The largest time limit of a grader, in seconds.
const MAX_TIMEOUT: u64 = 24 * 3600;
/// The largest turn and token limits.
const MAX_TURNS: u32 = 100_000;
const MAX_TOKENS: u64 = 1 << 40;
/// The most names a benchmark may be known by, and the longest of them in bytes: reports search every text for each.
const MAX_NAMES: usize = 50;
const MAX_NAME: usize = 100;

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
    answer_marker: Option<Spanned<String>>,
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

/// The description, to tell the line of an error.
struct Description<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Description<'_> {
    fn line(&self, offset: usize) -> usize {
        let before = self.text.as_bytes().get(..offset).unwrap_or_default();
        before.iter().filter(|byte| **byte == b'\n').count() + 1
    }

    fn error_at(&self, offset: usize, why: impl Into<String>) -> TaskError {
        TaskError::Line { path: self.path.to_owned(), line: self.line(offset), why: why.into() }
    }

    fn error<T>(&self, value: &Spanned<T>, why: impl Into<String>) -> TaskError {
        self.error_at(value.span().start, why)
    }
}

pub(super) fn load(dir: &Path, path: &Path) -> Result<Task, TaskError> {
    let text = description(path)?;
    let source = Description { path, text: &text };
    let file: File = toml::from_str(&text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        source.error_at(offset, error.message())
    })?;
    let data = data(dir, &source, file.data.as_ref())?;
    let (grader, default_prompt) = grader(dir, &source, &file.grader, data.as_deref())?;
    let plain_prompt = match &file.prompt.plain {
        None => default_prompt,
        Some(template) => {
            check_template(template.get_ref()).map_err(|why| source.error(template, why))?;
            PlainPrompt::Template(template.get_ref().clone())
        }
    };
    Ok(Task {
        name: name(dir, &source, file.name.as_ref())?,
        grader,
        turns: bounded(&source, file.limits.turns.as_ref(), 100, MAX_TURNS)?,
        tokens: bounded(&source, file.limits.tokens.as_ref(), 65_536, MAX_TOKENS)?,
        known_as: known_as(&source, file.known_as)?,
        prompts: prompts(&source, &file.prompt)?,
        plain_prompt,
        answer_marker: answer_marker(&source, file.prompt.answer_marker)?,
        data,
        hub: None,
        image: file.image,
        notes: Vec::new(),
    })
}

fn name(
    dir: &Path,
    source: &Description<'_>,
    name: Option<&Spanned<String>>,
) -> Result<String, TaskError> {
    let Some(name) = name else { return Ok(name_of(dir)) };
    let text = name.get_ref();
    let valid = !text.trim().is_empty() && text.len() <= 100 && !text.contains(char::is_control);
    match valid {
        true => Ok(text.clone()),
        false => Err(source.error(name, "`name` has to be one short line of text")),
    }
}

fn known_as(
    source: &Description<'_>,
    names: Option<Spanned<Vec<String>>>,
) -> Result<Vec<String>, TaskError> {
    let Some(names) = names else { return Ok(Vec::new()) };
    let listed = names.get_ref();
    match listed.len() <= MAX_NAMES && listed.iter().all(|name| name.len() <= MAX_NAME) {
        true => Ok(names.into_inner()),
        false => {
            let why = format!("`known_as` has to be at most {MAX_NAMES} names of {MAX_NAME} bytes");
            Err(source.error(&names, why))
        }
    }
}

fn answer_marker(
    source: &Description<'_>,
    marker: Option<Spanned<String>>,
) -> Result<Option<String>, TaskError> {
    let Some(marker) = marker else { return Ok(None) };
    let text = marker.get_ref();
    match !text.trim().is_empty() && text.len() <= MAX_NAME && !text.contains(char::is_control) {
        true => Ok(Some(marker.into_inner())),
        false => Err(source.error(&marker, "`answer_marker` has to be a short text on one line")),
    }
}

fn data(
    dir: &Path,
    source: &Description<'_>,
    data: Option<&Spanned<PathBuf>>,
) -> Result<Option<PathBuf>, TaskError> {
    let Some(data) = data else { return Ok(None) };
    let path = dir.join(data.get_ref());
    match (path.is_file(), is_inside(dir, &path)) {
        (true, true) => Ok(Some(path)),
        (true, false) => {
            let line = source.line(data.span().start);
            Err(TaskError::DataOutside { path: source.path.to_owned(), line })
        }
        (false, _) => Err(source.error(data, format!("there is no file {}", path.display()))),
    }
}

/// The grader, and the default prompt for a model without a sandbox.
fn grader(
    dir: &Path,
    source: &Description<'_>,
    table: &Spanned<GraderTable>,
    data: Option<&Path>,
) -> Result<(Grader, PlainPrompt), TaskError> {
    let GraderTable { kind, command, image, timeout } = table.get_ref();
    match (kind, command) {
        (Some(kind), None) => {
            let Some(grader) = Grader::named(kind.get_ref()) else {
                let known = Grader::NAMES.join(", ");
                let why = format!("unknown grader `{}`; known are {known}", kind.get_ref());
                return Err(source.error(kind, why));
            };
            if image.is_some() || timeout.is_some() {
                return Err(source.error(table, "`image` and `timeout` require a `command`"));
            }
            let prompt = match grader {
                Grader::Math => PlainPrompt::Boxed,
                Grader::Choice => PlainPrompt::Letter,
                Grader::Tests => PlainPrompt::Diff,
                Grader::Exact | Grader::Rouge | Grader::Context => PlainPrompt::Brief,
                _ => PlainPrompt::Statement,
            };
            Ok((grader, prompt))
        }
        (None, Some(command)) => {
            let seconds = bounded(source, timeout.as_ref(), DEFAULT_TIMEOUT, MAX_TIMEOUT)?;
            let command = Command {
                command: command.clone(),
                files: grader_files(dir, data)?,
                image: image.clone(),
                timeout: Duration::from_secs(seconds),
            };
            Ok((Grader::Command(command), PlainPrompt::Statement))
        }
        _ => Err(source.error(table, "a grader has either a `kind` or a `command`")),
    }
}

fn bounded<T: PartialOrd + Copy + From<u8> + std::fmt::Display>(
    source: &Description<'_>,
    value: Option<&Spanned<T>>,
    default: T,
    max: T,
) -> Result<T, TaskError> {
    let Some(spanned) = value else { return Ok(default) };
    let value = *spanned.get_ref();
    match value >= T::from(1) && value <= max {
        true => Ok(value),
        false => Err(source.error(spanned, format!("the value has to be from 1 to {max}"))),
    }
}

/// The prompt set of the description, with its own prompts in place.
fn prompts(source: &Description<'_>, prompt: &Prompt) -> Result<Prompts, TaskError> {
    let set = prompt.set.as_ref().map_or("general", |set| set.get_ref());
    let Some(base) = Prompts::builtin(set) else {
        let why =
            format!("unknown prompt set `{set}`; known are {}", agent::prompt::BUILTIN.join(", "));
        return Err(prompt.set.as_ref().map_or_else(
            || incomplete(source.path, why.clone()),
            |set| source.error(set, why.clone()),
        ));
    };
    let own_or = |own: &Option<String>, base: &str| own.clone().unwrap_or_else(|| base.to_owned());
    // JSON is YAML: `Prompts::parse` validates templates and directories.
    let config = json!({
        "system_prompt": own_or(&prompt.system, &base.system),
        "instance_prompt": own_or(&prompt.task, &base.task),
        "working_dir": own_or(&prompt.working_dir, &base.working_dir.to_string_lossy()),
        "input_dir": own_or(&prompt.input_dir, &base.input_dir.to_string_lossy()),
        "output_dir": own_or(&prompt.output_dir, &base.output_dir.to_string_lossy()),
    });
    Prompts::parse(&config.to_string())
        .map_err(|error| TaskError::Prompt { path: source.path.to_owned(), source: error })
}
