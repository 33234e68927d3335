//! Scripted demonstrations: the commands of synthetic problems are executed in real sandboxes, so that a model trains on
//! real observations. Those with a correct answer are used, as event logs.
//!
//! Played once per run; a resumed run reads the stored logs. Demonstrations that failed on our side say nothing about
//! the script: they are played again as long as the run has no checkpoint.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use model::ToolFormat;
use problems::{Problem, Task};
use rollout::{
    ChatCodec, End, EngineParts, Overlong, Reward, Rollout, RolloutEngine, RolloutError,
};
use sandbox::Runtime;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::{
    checkpoint::Checkpoints,
    config::SftConfig,
    data,
    events::RunEvent,
    file_error::FileError,
    run::{self, RunDirectory},
    services::{Services, TrainError},
};

/// The file of the results. It is written when all demonstrations were played.
const LIST: &str = "demonstrations.json";

/// The results of demonstrations, by file name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Results {
    /// Those with a correct answer.
    #[serde(rename = "right")]
    correct: Vec<String>,
    /// Those that failed on our side.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    failed: Vec<String>,
}

/// The demonstrations that failed on our side, each with the cause.
type Failures = Vec<(String, String)>;

/// A demonstration to play.
struct Script {
    problem: Arc<Problem>,
    responses: Vec<String>,
    name: String,
    events: PathBuf,
}

/// The event logs of the correct demonstrations of a configuration; plays them where they are not stored yet.
pub(crate) fn files<R: Runtime>(
    config: &SftConfig,
    directory: &RunDirectory,
    task: &Task,
    codec: &Arc<ChatCodec>,
    services: &Services<'_, R>,
) -> Result<Vec<PathBuf>, TrainError> {
    if config.data.demonstrations.is_empty() {
        return Ok(Vec::new());
    }
    let dir = directory.path().join("demonstrations");
    let paths = |names: &[String]| names.iter().map(|name| dir.join(name)).collect();
    let stored = stored_results(directory)?;
    let has_checkpoint = !Checkpoints::read_only(directory.path()).steps()?.is_empty();
    if let Some(results) = &stored
        && (results.failed.is_empty() || has_checkpoint)
    {
        return Ok(paths(&results.correct));
    }
    fs::create_dir_all(&dir).map_err(FileError::new("create", &dir))?;
    let (problems, notes) =
        data::problems(task, &config.data.demonstrations, "data.demonstrations", 1)?;
    notes.iter().for_each(|note| services.note(note));
    let mut scripts = scripts(problems, config, &dir);
    if scripts.is_empty() {
        return Err(TrainError::NoData(
            "no row of `data.demonstrations` has a demonstration".into(),
        ));
    }
    let mut correct = Vec::new();
    if let Some(results) = stored {
        scripts.retain(|script| results.failed.contains(&script.name));
        correct = results.correct;
    }
    let count = scripts.len();
    let (more, failures) =
        play(scripts, config, task, codec, services).map_err(TrainError::Play)?;
    correct.extend(more.iter().cloned());
    correct.sort();
    summary(count, more.len(), &failures).iter().for_each(|note| services.note(note));
    if correct.is_empty() {
        return Err(no_demonstration(count, failures));
    }
    let failed = failures.into_iter().map(|(name, _)| name).collect();
    let results = Results { correct, failed };
    directory.write_json(LIST, &results)?;
    Ok(paths(&results.correct))
}

/// The results of a former process. File names in it must not lead out of the run directory.
fn stored_results(directory: &RunDirectory) -> Result<Option<Results>, TrainError> {
    let stored: Option<Results> = run::read_json(directory.path(), LIST)?;
    let is_path = |name: &&String| Path::new(name).file_name() != Some(name.as_ref());
    match stored.iter().flat_map(|results| &results.correct).find(is_path) {
        Some(name) => {
            let why = format!("{LIST} of the run names {name}, which is not a plain file name");
            Err(TrainError::NoData(why))
        }
        None => Ok(stored),
    }
}

/// Notes about `count` demonstrations, of which `correct` are correct.
fn summary(count: usize, correct: usize, failures: &Failures) -> Vec<String> {
    let wrong = count - correct - failures.len();
    let wrong =
        (wrong > 0).then(|| format!("{wrong} of {count} demonstrations have a wrong answer"));
    let failed = failures.first().map(|(name, why)| {
        let failed = failures.len();
        format!("{failed} of {count} demonstrations failed on our side; the first, {name}: {why}")
    });
    wrong.into_iter().chain(failed).collect()
}

/// The error where no demonstration is correct.
fn no_demonstration(count: usize, failures: Failures) -> TrainError {
    match failures.len() == count {
        true => {
            let cause = failures.into_iter().next().map(|(_, why)| why).unwrap_or_default();
            TrainError::Play(RolloutError::AllFailed { episodes: count, cause })
        }
        false => TrainError::NoData("no demonstration has a correct answer".into()),
    }
}

fn scripts(problems: Vec<Problem>, config: &SftConfig, dir: &Path) -> Vec<Script> {
    let limit = config.data.limit.unwrap_or(usize::MAX);
    let solved = problems.into_iter().filter_map(|problem| {
        let commands = curriculum::solve(&problem.extra)?;
        Some((problem, responses(&commands, config.rollout.format)))
    });
    let numbered = solved.take(limit).enumerate().map(|(at, (problem, responses))| {
        let name = format!("{at:06}.jsonl");
        Script { problem: Arc::new(problem), responses, events: dir.join(&name), name }
    });
    numbered.collect()
}

/// The responses of a model that executes the commands one after the other and submits.
fn responses(commands: &[String], format: ToolFormat) -> Vec<String> {
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

/// Plays all scripts; returns the names of the correct ones and those that failed on our side, sorted.
fn play<R: Runtime>(
    scripts: Vec<Script>,
    config: &SftConfig,
    task: &Task,
    codec: &Arc<ChatCodec>,
    services: &Services<'_, R>,
) -> Result<(Vec<String>, Failures), RolloutError> {
    services.tokio.block_on(async {
        let (codec, runtime) = (Arc::clone(codec), services.runtime.clone());
        let settings = config.rollout.engine_settings(Overlong::Keep);
        let engine = RolloutEngine::new(EngineParts {
            codec,
            task: task.clone(),
            settings,
            reward: Reward::Grader,
            runtime,
        })?;
        let all = scripts.len();
        let (mut tasks, mut names) = (JoinSet::new(), HashMap::new());
        for Script { problem, responses, name, events } in scripts {
            let (engine, cancel) = (engine.clone(), services.cancel.clone());
            let task = tasks.spawn(async move {
                engine.demonstrate(&problem, responses, Some(events), cancel).await
            });
            names.insert(task.id(), name);
        }
        let (mut correct, mut failures, mut done) = (Vec::new(), Failures::new(), 0);
        while let Some(ended) = tasks.join_next_with_id().await {
            done += 1;
            services.observer.on_event(RunEvent::Rollout { done, all, what: "demonstrations" });
            let (task, correct_or_failed) = match ended {
                Ok((task, played)) => (task, is_correct(&played?)),
                Err(broken) => (broken.id(), Err(broken.to_string())),
            };
            let name = names.remove(&task).unwrap_or_default();
            match correct_or_failed {
                Ok(true) => correct.push(name),
                Ok(false) => {}
                Err(why) => failures.push((name, why)),
            }
        }
        correct.sort();
        failures.sort();
        engine.close().await?;
        Ok((correct, failures))
    })
}

/// Whether the answer is correct, or what failed on our side.
fn is_correct(played: &Rollout) -> Result<bool, String> {
    match played.end {
        End::Infrastructure => Err(played.why.clone().unwrap_or_else(|| "unknown cause".into())),
        _ => Ok(played.raw_reward.is_some_and(|raw| raw >= 1.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_on_our_side_are_reported_separately() {
        let failures = vec![("000001.jsonl".to_owned(), "no memory".to_owned())];
        let notes = summary(4, 1, &failures);
        assert_eq!(notes[0], "2 of 4 demonstrations have a wrong answer");
        assert!(notes[1].starts_with("1 of 4 ") && notes[1].ends_with("000001.jsonl: no memory"));
        assert!(summary(4, 4, &Failures::new()).is_empty());
        let error = no_demonstration(1, failures.clone());
        let TrainError::Play(error) = error else { panic!("{error}") };
        assert_eq!(
            error.to_string(),
            "all 1 episodes failed because of the infrastructure; the first: no memory"
        );
        assert!(matches!(no_demonstration(2, failures), TrainError::NoData(_)), "one was wrong");
    }

    #[test]
    fn commands_become_responses_in_the_format() {
        let commands = ["ls\n".to_owned()];
        assert_eq!(
            responses(&commands, ToolFormat::Fenced),
            ["```bash\nls\n```", "```bash\nsubmit\n```"]
        );
        let hermes = responses(&commands, ToolFormat::Hermes);
        assert_eq!(
            hermes[0],
            "<tool_call>\n{\"name\": \"execute_bash\", \"arguments\": {\"command\":\"ls\\n\"}}\n</tool_call>"
        );
        assert!(responses(&commands, ToolFormat::Qwen3Coder)[1].contains("<function=submit>"));
    }
}
