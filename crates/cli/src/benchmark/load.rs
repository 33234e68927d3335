//! Tasks and their rows: found, read and selected. A task or a row that is wrong is told, and the rest goes on.

use std::path::{Path, PathBuf};

use benchmark::Questions;
use problems::{Grader, Rows, Task, hub::Hub};
use results::Mode;

use super::{asked::Asked, sources::Source};
use crate::{
    exit::{self, Usage},
    output,
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
}

impl Loaded {
    /// Whether any attempt, or the grading of one, needs a sandbox.
    pub(crate) fn needs_sandboxes(&self, modes: &[Mode]) -> bool {
        let mut graders = self.questions.iter().map(|questions| &questions.task.grader);
        modes.contains(&Mode::Sandbox)
            || graders.any(|grader| matches!(grader, Grader::Command(_) | Grader::Tests))
    }
}

/// Reads all tasks. It is an error if none is left.
pub(crate) async fn load(asked: &Asked, settings: &Settings) -> anyhow::Result<Loaded> {
    let mut loaded = Loaded::default();
    for source in &asked.tasks {
        let read = read(source, settings).await;
        let questions = read.and_then(|(task, rows)| select(asked, task, rows, &mut loaded));
        match questions {
            Ok(questions) if loaded.has(&questions.task.name) => {
                let name = &questions.task.name;
                let text = format!("two tasks are called {name}; rename one, or run them apart");
                return Err(Usage(text).into());
            }
            Ok(questions) => loaded.questions.push(questions),
            // With nothing else to do, this is the end.
            Err(error) if asked.tasks.len() == 1 => return Err(error),
            Err(error) => {
                let text = format!("the task {} is left out: {}", source.task, exit::line(&error));
                output::note(&text);
                loaded.broken.push(text);
            }
        }
    }
    match loaded.questions.is_empty() {
        true => Err(Usage("no task is left that could be run".into()).into()),
        false => Ok(loaded),
    }
}

impl Loaded {
    fn has(&self, name: &str) -> bool {
        self.questions.iter().any(|questions| questions.task.name == name)
    }
}

/// The problems of a task that are asked.
fn select(asked: &Asked, task: Task, rows: Rows, loaded: &mut Loaded) -> anyhow::Result<Questions> {
    for note in &task.notes {
        output::note(&format!("{}: {note}", task.name));
    }
    let bad = rows.bad.len();
    for row in rows.bad.iter().take(TOLD) {
        output::note(&format!("a row is left out: {row}"));
    }
    if bad > TOLD {
        output::note(&format!("{} more rows are left out; results.json lists them", bad - TOLD));
    }
    loaded.bad_rows.extend(rows.bad.iter().map(ToString::to_string));
    let problems = asked.selection.of(rows.problems);
    let problems = problems.map_err(|error| Usage(format!("{}: {error}", task.name)))?;
    Ok(Questions { task, problems, repeats: asked.repeats, rows_sha256: rows.sha256 })
}

/// A task and its rows. Files may be large and the hub far away.
async fn read(source: &Source, settings: &Settings) -> anyhow::Result<(Task, Rows)> {
    let task = match Task::builtin(&source.task) {
        Some(task) => task,
        None => folder(&source.task)?,
    };
    let named = source.data.clone().or_else(|| task.data.clone());
    let files = match named {
        Some(file) => vec![file],
        None => from_hub(&task, settings).await?,
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
async fn from_hub(task: &Task, settings: &Settings) -> anyhow::Result<Vec<PathBuf>> {
    let Some(source) = &task.hub else {
        let text = format!("the task {} comes without rows; give them with --data FILE", task.name);
        return Err(Usage(text).into());
    };
    let hub = Hub::new(settings.writable_home()?.join("rows"));
    let fetched = hub.fetch(source).await?;
    output::note(&format!("{}: rows of {} at {}", task.name, source.dataset, fetched.revision));
    Ok(fetched.files)
}
