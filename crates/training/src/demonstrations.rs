//! Scripted demonstrations: the commands that come with synthetic rows are played in real sandboxes, so that a model
//! learns from what really came of them. Those whose answer is right are kept, as events.
//!
//! Played once for a run; a run that goes on takes what is there.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use model::ToolFormat;
use problems::{Problem, Task};
use rollout::{Overlong, PlayError, Played, Reward, Scene, Speech, Stage};
use sandbox::Runtime;
use tokio::task::JoinSet;

use crate::{
    config::SftConfig,
    data,
    news::News,
    outside::{Outside, TrainError},
    run::{RunDirectory, write_whole},
};

/// The list of files in the directory of demonstrations. It is written when all are played.
const LIST: &str = "demonstrations.json";

/// A demonstration about to be played.
struct Script {
    problem: Arc<Problem>,
    replies: Vec<String>,
    events: PathBuf,
}

/// The files of the demonstrations that a configuration asks for.
pub(crate) fn played<R: Runtime>(
    config: &SftConfig,
    directory: &RunDirectory,
    task: &Task,
    speech: &Arc<Speech>,
    outside: &Outside<'_, R>,
) -> Result<Vec<PathBuf>, TrainError> {
    if config.data.demonstrations.is_empty() {
        return Ok(Vec::new());
    }
    let dir = directory.path().join("demonstrations");
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| TrainError::Figures { path, source }
    };
    let list = directory.path().join(LIST);
    if let Ok(text) = fs::read(&list) {
        let names: Vec<String> = serde_json::from_slice(&text).map_err(|error| {
            TrainError::Nothing(format!("{} is damaged: {error}", list.display()))
        })?;
        return Ok(names.iter().map(|name| dir.join(name)).collect());
    }
    fs::create_dir_all(&dir).map_err(failed(&dir))?;
    let (problems, notes) =
        data::problems(task, &config.data.demonstrations, "data.demonstrations", 1)?;
    notes.iter().for_each(|note| outside.note(note));
    let scripts = scripts(problems, config, &dir);
    if scripts.is_empty() {
        return Err(TrainError::Nothing(
            "no row of `data.demonstrations` holds a demonstration".into(),
        ));
    }
    let count = scripts.len();
    let names = perform(scripts, config, task, speech, outside).map_err(TrainError::Play)?;
    if names.len() < count {
        outside.note(&format!(
            "{} of {count} demonstrations did not lead to the right answer",
            count - names.len()
        ));
    }
    if names.is_empty() {
        return Err(TrainError::Nothing("no demonstration led to the right answer".into()));
    }
    let text = serde_json::to_vec(&names).unwrap_or_default();
    write_whole(&list, &text).map_err(failed(&list))?;
    Ok(names.iter().map(|name| dir.join(name)).collect())
}

fn scripts(problems: Vec<Problem>, config: &SftConfig, dir: &Path) -> Vec<Script> {
    let most = config.data.limit.unwrap_or(usize::MAX);
    let solved = problems.into_iter().filter_map(|problem| {
        let commands = curriculum::solve(&problem.extra)?;
        Some((problem, replies(&commands, config.rollout.format)))
    });
    let numbered = solved.take(most).enumerate().map(|(at, (problem, replies))| Script {
        problem: Arc::new(problem),
        replies,
        events: dir.join(format!("{at:06}.jsonl")),
    });
    numbered.collect()
}

/// What a model would say to have the commands run, one after the other, and to submit.
fn replies(commands: &[String], format: ToolFormat) -> Vec<String> {
    let call = |name: &str, command: Option<&str>| match (format, command) {
        (ToolFormat::Fenced, command) => {
            format!("```bash\n{}\n```", command.unwrap_or(name).trim_end())
        }
        (ToolFormat::Qwen3Coder, command) => {
            let argument = command
                .map(|command| format!("<parameter=command>\n{command}\n</parameter>\n"))
                .unwrap_or_default();
            format!("<tool_call>\n<function={name}>\n{argument}</function>\n</tool_call>")
        }
        (_, command) => {
            let arguments = command.map_or_else(
                || serde_json::json!({}),
                |command| serde_json::json!({ "command": command }),
            );
            format!(
                "<tool_call>\n{{\"name\": \"{name}\", \"arguments\": {arguments}}}\n</tool_call>"
            )
        }
    };
    let runs = commands.iter().map(|command| call("execute_bash", Some(command)));
    runs.chain([call("submit", None)]).collect()
}

/// Plays all scripts; the names of the files of those whose answer is right, in order.
fn perform<R: Runtime>(
    scripts: Vec<Script>,
    config: &SftConfig,
    task: &Task,
    speech: &Arc<Speech>,
    outside: &Outside<'_, R>,
) -> Result<Vec<String>, PlayError> {
    outside.tokio.block_on(async {
        let (speech, runtime) = (Arc::clone(speech), outside.runtime.clone());
        let method = config.rollout.method(Overlong::Keep);
        let stage = Stage::new(Scene {
            speech,
            task: task.clone(),
            method,
            reward: Reward::Grader,
            runtime,
        })?;
        let all = scripts.len();
        let mut tasks = JoinSet::new();
        for script in scripts {
            let (stage, watch) = (stage.clone(), outside.watch.clone());
            tasks.spawn(async move {
                let Script { problem, replies, events } = script;
                stage.demonstrate(&problem, replies, Some(events), watch).await
            });
        }
        let (mut right, mut done) = (Vec::new(), 0);
        while let Some(ended) = tasks.join_next().await {
            done += 1;
            outside.watcher.hear(News::Playing { done, all, what: "demonstrations" });
            // One that broke off is one that did not lead to the right answer.
            let Ok(played) = ended else { continue };
            right.extend(right_file(&played?));
        }
        right.sort();
        stage.close().await?;
        Ok(right)
    })
}

fn right_file(played: &Played) -> Option<String> {
    let right = played.raw_reward.is_some_and(|raw| raw >= 1.0);
    let name = played.file.as_ref()?.file_name()?.to_str()?;
    right.then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_become_replies_of_the_format() {
        let commands = ["ls\n".to_owned()];
        assert_eq!(
            replies(&commands, ToolFormat::Fenced),
            ["```bash\nls\n```", "```bash\nsubmit\n```"]
        );
        let hermes = replies(&commands, ToolFormat::Hermes);
        assert_eq!(
            hermes[0],
            "<tool_call>\n{\"name\": \"execute_bash\", \"arguments\": {\"command\":\"ls\\n\"}}\n</tool_call>"
        );
        assert!(replies(&commands, ToolFormat::Qwen3Coder)[1].contains("<function=submit>"));
    }
}
