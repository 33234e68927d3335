//! Which tasks to run, and the files with their rows.

use std::path::{Path, PathBuf};

use problems::Task;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::exit::UsageError;

/// A task and the file with its rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Source {
    /// A built-in name, or a directory.
    pub(crate) task: String,
    /// The rows, if the user gave them.
    pub(crate) data: Option<PathBuf>,
}

impl Source {
    /// The name of the task; none where it cannot be loaded now.
    fn name(&self) -> Option<String> {
        let task = Task::builtin(&self.task).or_else(|| Task::load(Path::new(&self.task)).ok());
        task.map(|task| task.name)
    }
}

/// Adds to the recorded settings `to` the sources in those of earlier commands, `from`, that belong to the tasks `absent`:
/// those of the run that this command does not load.
pub(crate) fn keep_sources(from: &Value, to: &mut Value, absent: &[String]) {
    if absent.is_empty() {
        return;
    }
    let own = listed(to);
    let kept = listed(from).into_iter().filter(|source| {
        // The same task may be in two places.
        !own.iter().any(|own| own.task == source.task)
            && source.name().is_none_or(|name| absent.contains(&name))
    });
    if let Some(Value::Array(sources)) = to.get_mut("tasks") {
        sources.extend(kept.filter_map(|source| serde_json::to_value(source).ok()));
    }
}

/// The sources in recorded settings.
fn listed(settings: &Value) -> Vec<Source> {
    let sources = settings.get("tasks").and_then(|tasks| Vec::deserialize(tasks).ok());
    sources.unwrap_or_default()
}

/// Assigns the files with rows to tasks.
pub(crate) fn sources(tasks: Vec<String>, data: Vec<String>) -> Result<Vec<Source>, UsageError> {
    let mut sources: Vec<Source> = Vec::new();
    for task in tasks {
        if sources.iter().any(|known| known.task == task) {
            return Err(UsageError(format!(
                "the task {task} is given twice; --repeat N runs it more often"
            )));
        }
        sources.push(Source { task, data: None });
    }
    for text in data {
        let named = text.split_once('=');
        let named = named.filter(|(task, _)| sources.iter().any(|known| known.task == *task));
        let (at, file) = match (named, sources.len()) {
            (Some((task, file)), _) => {
                (sources.iter().position(|known| known.task == task).unwrap_or(0), file)
            }
            (None, 1) => (0, text.as_str()),
            (None, _) => {
                let text = format!("--data {text}: name the task it is for, as in TASK=FILE");
                return Err(UsageError(text));
            }
        };
        let file = std::path::absolute(file).unwrap_or_else(|_| file.into());
        if sources[at].data.replace(file).is_some() {
            let task = &sources[at].task;
            return Err(UsageError(format!(
                "--data is given twice for the task {task}; give one file"
            )));
        }
    }
    for source in &mut sources {
        // A resumed run may start in another directory.
        if Task::builtin(&source.task).is_none() {
            let path = std::path::absolute(&source.task).unwrap_or_else(|_| (&source.task).into());
            source.task = path.to_string_lossy().into_owned();
        }
    }
    Ok(sources)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sources_of_tasks_that_are_not_loaded_are_kept() {
        let tasks = |names: &[&str]| {
            let source = |name: &&str| json!({"task": name, "data": null});
            json!({"tasks": names.iter().map(source).collect::<Vec<_>>()})
        };
        let kept = |absent: &[&str]| {
            let mut settings = tasks(&["math"]);
            let absent: Vec<String> = absent.iter().map(|name| (*name).to_owned()).collect();
            keep_sources(&tasks(&["chem", "math", "physics"]), &mut settings, &absent);
            settings
        };
        assert_eq!(kept(&[]), tasks(&["math"]));
        assert_eq!(kept(&["chem"]), tasks(&["math", "chem"]));
    }

    #[test]
    fn rows_belong_to_tasks() {
        let of = |tasks: &[&str], data: &[&str]| {
            let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
            sources(owned(tasks), owned(data))
        };
        let one = of(&["math"], &["/a=b.jsonl"]).unwrap();
        assert_eq!(one[0].data.as_deref(), Some(Path::new("/a=b.jsonl")));
        let two = of(&["math", "chem"], &["chem=/c.json", "math=/m.json"]).unwrap();
        assert_eq!(two[0].data.as_deref(), Some(Path::new("/m.json")));
        assert_eq!(two[1].data.as_deref(), Some(Path::new("/c.json")));
        for (tasks, data) in [
            (&["math", "math"][..], &[][..]),
            (&["math", "chem"], &["/x"]),
            (&["math"], &["/x", "math=/y"]),
        ] {
            assert!(of(tasks, data).is_err(), "{tasks:?}");
        }
        assert!(Path::new(&of(&["./mine"], &[]).unwrap()[0].task).is_absolute());
    }
}
