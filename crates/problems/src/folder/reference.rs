//! Reads task folders of the reference implementation: `config.yaml`, rows in a JSON file or on the hub, and
//! `reward.py`, whose `compute_score` runs in a sandbox.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use agent::Prompts;
use serde::Deserialize;

use super::{TaskError, description, grader_files, incomplete, is_inside, name_of};
use crate::{Command, Grader, PlainPrompt, Task, hub};

/// Calls the folder's function. Output of the function goes to standard error, so that the score is the last line.
const DRIVER: &str = include_str!("reward_driver.py");
/// The driver's file name among the folder's files.
const DRIVER_NAME: &str = "llm_in_sandbox_reward.py";

/// The keys that locate the rows. All others belong to the prompts.
#[derive(Default, Deserialize)]
struct Config {
    dataset: Option<String>,
    config: Option<String>,
    split: Option<String>,
    data_files: Option<String>,
    system_prompt: Option<String>,
    input_dir: Option<String>,
    output_dir: Option<String>,
}

pub(super) fn load(dir: &Path, path: &Path) -> Result<Task, TaskError> {
    let text = description(path)?;
    // Prompts first: that parser bounds nesting and aliases of the document.
    let mut prompts = Prompts::parse(&text)
        .map_err(|source| TaskError::Prompt { path: path.to_owned(), source })?;
    let config: Option<Config> = serde_saphyr::from_str(&text).map_err(|error| {
        let why: String = error.to_string().lines().next().unwrap_or_default().to_owned();
        incomplete(path, why)
    })?;
    let config = config.unwrap_or_default();
    if config.system_prompt.is_none() {
        return Err(incomplete(path, "there is no `system_prompt`"));
    }
    if config.input_dir.is_none() {
        prompts.input_dir = PathBuf::from("/testbed/documents");
    }
    if config.output_dir.is_none() {
        prompts.output_dir = PathBuf::from("/testbed");
    }
    let (data, hub) = rows(dir, path, &config)?;
    Ok(Task {
        name: name_of(dir),
        grader: grader(dir, path, data.as_deref())?,
        turns: 100,
        tokens: 65_536,
        known_as: Vec::new(),
        prompts,
        plain_prompt: PlainPrompt::Statement,
        answer_marker: None,
        data,
        hub,
        image: None,
        notes: notes(dir),
    })
}

/// The folder's rows. Paths are relative to the directory of all tasks, as in the reference, or to the folder.
fn rows(
    dir: &Path,
    path: &Path,
    config: &Config,
) -> Result<(Option<PathBuf>, Option<hub::Source>), TaskError> {
    let all = dir.join("..");
    let beside = |name: &str| {
        let found = [all.join(name), dir.join(name)].into_iter().find(|path| path.is_file());
        found.filter(|path| is_inside(&all, path))
    };
    match (config.dataset.as_deref(), config.data_files.as_deref()) {
        (Some("json"), Some(name)) => {
            // A file of that name in the folder itself is preferred: its path survives moving the folder.
            let last = Path::new(name)
                .file_name()
                .map(|last| dir.join(last))
                .filter(|path| path.is_file());
            let found = last.or_else(|| beside(name));
            found.map(|data| (Some(data), None)).ok_or_else(|| {
                incomplete(path, format!("there is no file {}", crate::problem::shown(name)))
            })
        }
        (Some("json"), None) => {
            Err(incomplete(path, "`dataset` is json, but `data_files` is missing"))
        }
        (Some(dataset), _) => {
            let source = hub::Source {
                dataset: dataset.to_owned(),
                config: config.config.clone().unwrap_or_else(|| "default".into()),
                split: config.split.clone().unwrap_or_else(|| "test".into()),
            };
            Ok((beside("data.json"), Some(source)))
        }
        (None, _) => match beside("data.json") {
            Some(data) => Ok((Some(data), None)),
            None => Err(incomplete(path, "there is neither a `dataset` nor a file data.json")),
        },
    }
}

/// The judge if the folder has a `judge.py` (its reward is then empty), otherwise `reward.py`.
fn grader(dir: &Path, path: &Path, data: Option<&Path>) -> Result<Grader, TaskError> {
    if dir.join("judge.py").is_file() {
        return Ok(Grader::Judge);
    }
    if !dir.join("reward.py").is_file() {
        return Err(incomplete(path, "there is no reward.py beside it"));
    }
    let mut files = grader_files(dir, data)?;
    files.push((PathBuf::from(DRIVER_NAME), DRIVER.as_bytes().into()));
    Ok(Grader::Command(Command {
        command: format!("python3 {DRIVER_NAME}"),
        files,
        image: None,
        timeout: Duration::from_secs(300),
    }))
}

fn notes(dir: &Path) -> Vec<String> {
    let mut notes = Vec::new();
    if dir.join("vanilla_llm_prompt.py").is_file() {
        notes.push(
            "vanilla_llm_prompt.py is not run: without a sandbox, the prompt is the documents and the statement"
                .to_owned(),
        );
    }
    if dir.join("judge.py").is_file() {
        notes.push("judge.py is not run: the built-in judge is used instead".to_owned());
    }
    notes
}
