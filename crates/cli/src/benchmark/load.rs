//! Tasks and their rows: found, read and selected. A task or a row that is wrong is told, and the rest goes on.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use benchmark::{Capability, Context, Questions, SelectionError};
use problems::{
    Grader, Problem, Rows, Task,
    hub::{Hub, HubError},
};
use results::Mode;

use super::{asked::Asked, show::Told, sources::Source};
use crate::{
    exit::{self, Usage},
    settings::Settings,
};

/// So many bad rows are told one by one.
const TOLD: usize = 5;

/// What can be asked.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    pub(crate) questions: Vec<Questions>,
    /// Rows that could not be used, and why.
    pub(crate) bad_rows: Vec<String>,
    /// Tasks that could not be used.
    pub(crate) broken: Vec<String>,
    /// Ids that no task has.
    missing: BTreeSet<String>,
}

impl Loaded {
    /// Whether any attempt, or the grading of one, needs a sandbox.
    pub(crate) fn needs_sandboxes(&self, modes: &[Mode]) -> bool {
        let mut graders = self.questions.iter().map(|questions| &questions.task.grader);
        modes.contains(&Mode::Sandbox)
            || graders.any(|grader| matches!(grader, Grader::Command(_) | Grader::Tests))
    }
}

/// Reads all tasks. It is an error if none is left, or if one could be there another time.
pub(crate) async fn load(asked: &Asked, told: Told, settings: &Settings) -> anyhow::Result<Loaded> {
    let missing = asked.selection.ids.iter().cloned().collect();
    let mut loaded = Loaded { missing, ..Loaded::default() };
    for source in &asked.tasks {
        let read = read(source, told, settings).await;
        let questions = read.and_then(|(task, rows)| select(asked, task, rows, told, &mut loaded));
        match questions {
            Ok(questions) if loaded.has(&questions.task.name) => {
                let name = &questions.task.name;
                let text = format!("two tasks are called {name}; rename one, or run them apart");
                return Err(Usage(text).into());
            }
            Ok(questions) => loaded.questions.push(questions),
            // With nothing else to do, this is the end; and a hub that does not answer is no fault of the task.
            Err(error) if asked.tasks.len() == 1 || is_passing(&error) => return Err(error),
            Err(error) => {
                let text = format!("the task {} is left out: {}", source.task, exit::line(&error));
                told.note(&text);
                loaded.broken.push(text);
            }
        }
    }
    if loaded.questions.is_empty() {
        return Err(Usage("no task is left that could be run".into()).into());
    }
    // A task that was left out may have had them, and was told already.
    if loaded.broken.is_empty() && !loaded.missing.is_empty() {
        return Err(Usage(SelectionError::unknown(&loaded.missing).to_string()).into());
    }
    Ok(loaded)
}

/// Whether the same may work later.
fn is_passing(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<HubError>();
    matches!(error, Some(HubError::Connect { .. } | HubError::Status { status: 429 | 500.., .. }))
}

impl Loaded {
    fn has(&self, name: &str) -> bool {
        self.questions.iter().any(|questions| questions.task.name == name)
    }
}

/// The problems of a task that are asked.
fn select(
    asked: &Asked,
    task: Task,
    rows: Rows,
    told: Told,
    loaded: &mut Loaded,
) -> anyhow::Result<Questions> {
    for note in &task.notes {
        told.note(&format!("{}: {note}", task.name));
    }
    let bad = rows.bad.len();
    for row in rows.bad.iter().take(TOLD) {
        told.note(&format!("a row is left out: {row}"));
    }
    if bad > TOLD {
        told.note(&format!("{} more rows are left out; results.json lists them", bad - TOLD));
    }
    loaded.bad_rows.extend(rows.bad.iter().map(ToString::to_string));
    let problems = asked.selection.of(rows.problems, &mut loaded.missing);
    let problems = problems.map_err(|error| Usage(format!("{}: {error}", task.name)))?;
    possible(asked, &task, &problems)?;
    let is_letter = |problem: &Problem| {
        let mut right = problem.ground_truth.trim().chars();
        right.next().is_some_and(char::is_alphabetic) && right.next().is_none()
    };
    if task.grader == Grader::Choice && !problems.iter().any(is_letter) {
        told.note(&format!(
            "{}: no right answer is a single letter; are these its rows?",
            task.name
        ));
    }
    Ok(Questions { task, problems, repeats: asked.repeats, rows_sha256: rows.sha256 })
}

/// Refuses what can be seen to fail in every attempt at this task.
fn possible(asked: &Asked, task: &Task, problems: &[Problem]) -> Result<(), Usage> {
    if task.grader != Grader::Tests || !asked.modes.contains(&Mode::Sandbox) {
        return Ok(());
    }
    let name = &task.name;
    if asked.without.contains(&Capability::Files) {
        let text = format!("{name}: --without files leaves a repository that cannot be changed");
        return Err(Usage(text));
    }
    let of_files = |problem: &Problem| !problem.files.is_empty() && task.image(problem).is_none();
    if asked.context == Context::Prompt && problems.iter().any(of_files) {
        let text = format!(
            "{name}: --context prompt leaves no repository, since it is made of the documents; use --context files"
        );
        return Err(Usage(text));
    }
    Ok(())
}

/// A task and its rows. Files may be large and the hub far away.
async fn read(source: &Source, told: Told, settings: &Settings) -> anyhow::Result<(Task, Rows)> {
    let task = match Task::builtin(&source.task) {
        Some(task) => task,
        None => folder(&source.task)?,
    };
    let named = source.data.clone().or_else(|| task.data.clone());
    let files = match named {
        Some(file) => vec![file],
        None => from_hub(&task, told, settings).await?,
    };
    let reading = tokio::task::spawn_blocking(move || {
        let rows = task.read_files(&files);
        rows.map(|rows| (task, rows))
    });
    reading.await?.map_err(|error| Usage(exit::line(&error.into())).into())
}

fn folder(path: &str) -> anyhow::Result<Task> {
    let dir = Path::new(path);
    if !dir.exists() {
        let names = Task::BUILTIN.join(", ");
        let name = dir.file_name().unwrap_or_default().to_string_lossy();
        let text = format!("there is no task `{name}`, nor a folder {path}; built in are {names}");
        return Err(Usage(text).into());
    }
    Task::load(dir).map_err(|error| Usage(exit::line(&error.into())).into())
}

/// The files of a built-in task, fetched where they are missing.
async fn from_hub(task: &Task, told: Told, settings: &Settings) -> anyhow::Result<Vec<PathBuf>> {
    let Some(source) = &task.hub else {
        let text = format!("the task {} comes without rows; give them with --data FILE", task.name);
        return Err(Usage(text).into());
    };
    let hub = Hub::new(settings.writable_home()?.join("rows"));
    let fetched = hub.fetch(source).await?;
    told.note(&format!("{}: rows of {} at {}", task.name, source.dataset, fetched.revision));
    Ok(fetched.files)
}
