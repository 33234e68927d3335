//! Scripted demonstrations: the commands that come with synthetic rows are played in real sandboxes, so that a model
//! learns from what really came of them. Those whose answer is right are kept, as events.
//!
//! Played once for a run; a run that goes on takes what is there. Those that failed on our side say nothing about the
//! script: they are played again as long as nothing was learnt and saved.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use model::ToolFormat;
use problems::{Problem, Task};
use rollout::{End, Overlong, PlayError, Played, Reward, Scene, Speech, Stage};
use sandbox::Runtime;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::{
    checkpoint::Checkpoints,
    config::SftConfig,
    data,
    news::News,
    outside::{Outside, TrainError},
    run::{self, RunDirectory},
};

/// The file of what came of demonstrations. It is written when all are played.
const LIST: &str = "demonstrations.json";

/// What came of demonstrations, by the names of their files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Outcome {
    /// Those whose answer is right.
    right: Vec<String>,
    /// Those that failed on our side.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    failed: Vec<String>,
}

/// Those that failed on our side, and why.
type Failures = Vec<(String, String)>;

/// A demonstration about to be played.
struct Script {
    problem: Arc<Problem>,
    replies: Vec<String>,
    name: String,
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
    let files = |names: &[String]| names.iter().map(|name| dir.join(name)).collect();
    let before: Option<Outcome> = run::kept(directory.path(), LIST)?;
    let elsewhere = |name: &&String| Path::new(name).file_name() != Some(name.as_ref());
    if let Some(name) = before.iter().flat_map(|outcome| &outcome.right).find(elsewhere) {
        let why = format!("{LIST} of the run names {name}, which is no file of its own");
        return Err(TrainError::Nothing(why));
    }
    let learnt = !Checkpoints::of(directory.path(), usize::MAX).steps()?.is_empty();
    if let Some(outcome) = &before
        && (outcome.failed.is_empty() || learnt)
    {
        return Ok(files(&outcome.right));
    }
    fs::create_dir_all(&dir).map_err(|source| TrainError::Figures { path: dir.clone(), source })?;
    let (problems, notes) =
        data::problems(task, &config.data.demonstrations, "data.demonstrations", 1)?;
    notes.iter().for_each(|note| outside.note(note));
    let mut scripts = scripts(problems, config, &dir);
    if scripts.is_empty() {
        return Err(TrainError::Nothing(
            "no row of `data.demonstrations` holds a demonstration".into(),
        ));
    }
    let mut right = Vec::new();
    if let Some(outcome) = before {
        scripts.retain(|script| outcome.failed.contains(&script.name));
        right = outcome.right;
    }
    let count = scripts.len();
    let (more, failures) =
        perform(scripts, config, task, speech, outside).map_err(TrainError::Play)?;
    right.extend(more.iter().cloned());
    right.sort();
    told(count, more.len(), &failures).iter().for_each(|note| outside.note(note));
    if right.is_empty() {
        return Err(none(count, failures));
    }
    let failed = failures.into_iter().map(|(name, _)| name).collect();
    let outcome = Outcome { right, failed };
    directory.keep(LIST, &outcome)?;
    Ok(files(&outcome.right))
}

/// What is worth saying about demonstrations, of which so many are right.
fn told(count: usize, right: usize, failures: &Failures) -> Vec<String> {
    let wrong = count - right - failures.len();
    let wrong = (wrong > 0)
        .then(|| format!("{wrong} of {count} demonstrations did not lead to the right answer"));
    let failed = failures.first().map(|(name, why)| {
        let failed = failures.len();
        format!("{failed} of {count} demonstrations failed on our side; the first, {name}: {why}")
    });
    wrong.into_iter().chain(failed).collect()
}

/// Why there is none to learn from.
fn none(count: usize, failures: Failures) -> TrainError {
    match failures.len() == count {
        true => {
            let cause = failures.into_iter().next().map(|(_, why)| why).unwrap_or_default();
            TrainError::Play(PlayError::NothingPlayed { episodes: count, cause })
        }
        false => TrainError::Nothing("no demonstration led to the right answer".into()),
    }
}

fn scripts(problems: Vec<Problem>, config: &SftConfig, dir: &Path) -> Vec<Script> {
    let most = config.data.limit.unwrap_or(usize::MAX);
    let solved = problems.into_iter().filter_map(|problem| {
        let commands = curriculum::solve(&problem.extra)?;
        Some((problem, replies(&commands, config.rollout.format)))
    });
    let numbered = solved.take(most).enumerate().map(|(at, (problem, replies))| {
        let name = format!("{at:06}.jsonl");
        Script { problem: Arc::new(problem), replies, events: dir.join(&name), name }
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

/// Plays all scripts; the names of those whose answer is right, and of those that failed on our side, in order.
fn perform<R: Runtime>(
    scripts: Vec<Script>,
    config: &SftConfig,
    task: &Task,
    speech: &Arc<Speech>,
    outside: &Outside<'_, R>,
) -> Result<(Vec<String>, Failures), PlayError> {
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
        let (mut tasks, mut names) = (JoinSet::new(), HashMap::new());
        for Script { problem, replies, name, events } in scripts {
            let (stage, watch) = (stage.clone(), outside.watch.clone());
            let task = tasks.spawn(async move {
                stage.demonstrate(&problem, replies, Some(events), watch).await
            });
            names.insert(task.id(), name);
        }
        let (mut right, mut failures, mut done) = (Vec::new(), Failures::new(), 0);
        while let Some(ended) = tasks.join_next_with_id().await {
            done += 1;
            outside.watcher.hear(News::Playing { done, all, what: "demonstrations" });
            let (task, verdict) = match ended {
                Ok((task, played)) => (task, verdict(&played?)),
                Err(broken) => (broken.id(), Err(broken.to_string())),
            };
            let name = names.remove(&task).unwrap_or_default();
            match verdict {
                Ok(true) => right.push(name),
                Ok(false) => {}
                Err(why) => failures.push((name, why)),
            }
        }
        right.sort();
        failures.sort();
        stage.close().await?;
        Ok((right, failures))
    })
}

/// Whether the answer is right, or what failed on our side.
fn verdict(played: &Played) -> Result<bool, String> {
    match played.end {
        End::Infrastructure => Err(played.why.clone().unwrap_or_else(|| "nobody knows why".into())),
        _ => Ok(played.raw_reward.is_some_and(|raw| raw >= 1.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_ours_are_told_apart() {
        let failures = vec![("000001.jsonl".to_owned(), "no memory".to_owned())];
        let notes = told(4, 1, &failures);
        assert_eq!(notes[0], "2 of 4 demonstrations did not lead to the right answer");
        assert!(notes[1].starts_with("1 of 4 ") && notes[1].ends_with("000001.jsonl: no memory"));
        assert!(told(4, 4, &Failures::new()).is_empty());
        let error = none(1, failures.clone());
        let TrainError::Play(error) = error else { panic!("{error}") };
        assert_eq!(error.to_string(), "all 1 episodes failed on our side; the first: no memory");
        assert!(matches!(none(2, failures), TrainError::Nothing(_)), "one was wrong");
    }

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
