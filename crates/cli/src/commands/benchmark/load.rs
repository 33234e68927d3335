//! Loads tasks and their rows, and selects problems. An invalid task or row is reported, and the rest is used.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
};

use attempt::{Capability, Documents};
use benchmark::{SelectionError, TaskRows};
use problems::{
    Grader, Problem, Rows, Task,
    hub::{DatasetCache, HubError},
};
use results::Mode;

use super::{settings::BenchmarkSettings, show::OutputMode, sources::Source};
use crate::{
    exit::{self, UsageError},
    settings::Settings,
};

/// Bad rows that are reported one by one.
const MAX_REPORTED: usize = 5;

/// The tasks that can be played.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    pub(crate) tasks: Vec<TaskRows>,
    /// Invalid rows, and why.
    pub(crate) bad_rows: Vec<String>,
    /// Tasks that could not be loaded.
    pub(crate) broken: Vec<String>,
    /// Ids that no task has.
    missing: BTreeSet<String>,
    /// Whether anything is selected.
    has_problems: bool,
}

impl Loaded {
    /// Whether any attempt, or the grading of one, needs a sandbox.
    pub(crate) fn needs_sandboxes(&self, modes: &[Mode]) -> bool {
        let mut graders = self.tasks.iter().map(|rows| &rows.task.grader);
        modes.contains(&Mode::Sandbox)
            || graders.any(|grader| matches!(grader, Grader::Command(_) | Grader::Tests))
    }
}

/// Loads all tasks. It is an error if none is left, or if one failed for a reason that may pass.
pub(crate) async fn load(
    benchmark: &BenchmarkSettings,
    output: OutputMode,
    settings: &Settings,
) -> anyhow::Result<Loaded> {
    // Without a selection now, that of the last command may fit none of the tasks.
    let is_resumed = !benchmark.earlier.is_empty();
    let missing = match is_resumed {
        true => BTreeSet::new(),
        false => benchmark.selection.ids.iter().cloned().collect(),
    };
    let mut loaded = Loaded { missing, ..Loaded::default() };
    for source in &benchmark.tasks {
        let read = read(source, output, settings).await;
        let task_rows =
            read.and_then(|(task, rows)| select(benchmark, task, rows, output, &mut loaded));
        match task_rows {
            Ok(task_rows) if loaded.has(&task_rows.task.name) => {
                let name = &task_rows.task.name;
                let text =
                    format!("two tasks are called {name}; rename one, or run them separately");
                return Err(UsageError(text).into());
            }
            Ok(task_rows) => loaded.tasks.push(task_rows),
            // Nothing else to run; or the hub does not answer, which is not the task's fault.
            Err(error) if benchmark.tasks.len() == 1 || is_transient(&error) => return Err(error),
            Err(error) => {
                let text = format!("task {} is left out: {}", source.task, exit::describe(&error));
                output.note(&text);
                loaded.broken.push(text);
            }
        }
    }
    if loaded.tasks.is_empty() {
        return Err(UsageError("no task can be run".into()).into());
    }
    // A task that was left out may have had them, and was output already.
    if loaded.broken.is_empty() && !loaded.missing.is_empty() {
        return Err(UsageError(SelectionError::unknown(&loaded.missing).to_string()).into());
    }
    if loaded.broken.is_empty() && !loaded.has_problems && !is_resumed {
        let text = "the selection leaves no problem of any task; widen it";
        return Err(UsageError(text.into()).into());
    }
    Ok(loaded)
}

/// Whether a later try may succeed.
fn is_transient(error: &anyhow::Error) -> bool {
    error.downcast_ref().is_some_and(HubError::is_transient)
}

impl Loaded {
    fn has(&self, name: &str) -> bool {
        self.tasks.iter().any(|rows| rows.task.name == name)
    }
}

/// A task with its problems, some of which are selected.
fn select(
    benchmark: &BenchmarkSettings,
    task: Task,
    rows: Rows,
    output: OutputMode,
    loaded: &mut Loaded,
) -> anyhow::Result<TaskRows> {
    for note in &task.notes {
        output.note(&format!("{}: {note}", task.name));
    }
    let bad = rows.bad.len();
    for row in rows.bad.iter().take(MAX_REPORTED) {
        output.note(&format!("a row is left out: {row}"));
    }
    if bad > MAX_REPORTED {
        output.note(&format!(
            "{} more rows are left out; results.json lists them",
            bad - MAX_REPORTED
        ));
    }
    loaded.bad_rows.extend(rows.bad.iter().map(ToString::to_string));
    let all: Vec<Arc<Problem>> = rows.problems.into_iter().map(Arc::new).collect();
    let is_one_of_several = benchmark.tasks.len() > 1 || !benchmark.earlier.is_empty();
    let problems = match benchmark::select(&benchmark.selection, &all, &mut loaded.missing) {
        Ok(problems) => problems,
        // Other tasks may have these problems; this one keeps those of earlier commands.
        Err(SelectionError::Unknown(_) | SelectionError::Nothing { .. }) if is_one_of_several => {
            Vec::new()
        }
        Err(error) => return Err(UsageError(format!("{}: {error}", task.name)).into()),
    };
    loaded.has_problems |= !problems.is_empty();
    check_task(benchmark, &task, &problems)?;
    let is_letter = |problem: &Arc<Problem>| {
        let mut right = problem.ground_truth.trim().chars();
        right.next().is_some_and(char::is_alphabetic) && right.next().is_none()
    };
    let has_letters = problems.is_empty() || problems.iter().any(is_letter);
    if task.grader == Grader::Choice && !has_letters {
        output.note(&format!(
            "{}: no right answer is a single letter; are these its rows?",
            task.name
        ));
    }
    Ok(TaskRows { task: Arc::new(task), problems: all, rows_sha256: rows.sha256 })
}

/// Rejects settings with which every attempt at this task would fail.
fn check_task(
    benchmark: &BenchmarkSettings,
    task: &Task,
    problems: &[Arc<Problem>],
) -> Result<(), UsageError> {
    if task.grader != Grader::Tests || !benchmark.modes.contains(&Mode::Sandbox) {
        return Ok(());
    }
    let name = &task.name;
    if benchmark.without.contains(&Capability::Files) {
        let text = format!("{name}: --without files leaves a repository that cannot be changed");
        return Err(UsageError(text));
    }
    let of_files =
        |problem: &Arc<Problem>| !problem.files.is_empty() && task.image(problem).is_none();
    if benchmark.documents == Documents::Prompt && problems.iter().any(of_files) {
        let text = format!(
            "{name}: --documents prompt leaves no repository, since it is created from the documents; use --documents files"
        );
        return Err(UsageError(text));
    }
    Ok(())
}

/// Loads a task and its rows.
pub(crate) async fn read(
    source: &Source,
    output: OutputMode,
    settings: &Settings,
) -> anyhow::Result<(Task, Rows)> {
    let task = match Task::builtin(&source.task) {
        Some(task) => task,
        None => folder(&source.task)?,
    };
    let named = source.data.clone().or_else(|| task.data.clone());
    let files = match named {
        Some(file) => vec![file],
        None => from_hub(&task, output, settings).await?,
    };
    let reading = tokio::task::spawn_blocking(move || {
        let rows = task.read_files(&files);
        rows.map(|rows| (task, rows))
    });
    reading.await?.map_err(|error| UsageError(exit::describe(&error.into())).into())
}

fn folder(path: &str) -> anyhow::Result<Task> {
    let dir = Path::new(path);
    if !dir.exists() {
        let names = Task::BUILTIN.join(", ");
        let name = dir.file_name().unwrap_or_default().to_string_lossy();
        let text = format!(
            "there is no task `{name}` and no directory {path}; built-in tasks are {names}"
        );
        return Err(UsageError(text).into());
    }
    Ok(Task::load(dir)?)
}

/// The files of a built-in task, downloaded where they are missing.
async fn from_hub(
    task: &Task,
    output: OutputMode,
    settings: &Settings,
) -> anyhow::Result<Vec<PathBuf>> {
    let Some(source) = &task.hub else {
        let text = format!("task {} has no rows; pass them with --data FILE", task.name);
        return Err(UsageError(text).into());
    };
    let hub = DatasetCache::new(settings.writable_home()?.join("rows"));
    let fetched = hub.fetch(source).await?;
    output.note(&format!("{}: rows of {} at {}", task.name, source.dataset, fetched.revision));
    Ok(fetched.files)
}
