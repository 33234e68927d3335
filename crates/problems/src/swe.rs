//! Repositories to be mended: their images, their tests, and what a change of a model is worth.
//!
//! The change is carried over into a sandbox that no model has touched, the tests come on top, and the log of the
//! tests decides. Runs nothing itself: it writes scripts and reads logs.

mod log;
mod repos;
mod script;

#[cfg(test)]
#[path = "swe/swe_tests.rs"]
mod tests;

use std::{path::Path, time::Duration};

use serde_json::{Value, json};

use crate::{CarriedFile, Check, Grade, Grading, Problem, ScoreFrom};

pub use log::{Style, TestLog};
pub use script::{DIFF_FILE, DiffForm, diff_command};

/// Tests that run longer than this have failed.
const TIMEOUT: Duration = Duration::from_secs(1800);
/// A row may list this many tests.
const MOST_TESTS: usize = 100_000;

/// Where a repository lies and how its sandbox is made, as the task says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) repository: &'a Path,
    pub(crate) input_dir: &'a Path,
    pub(crate) image: Option<&'a str>,
}

/// The image that SWE-bench publishes for a task.
pub fn image(instance_id: &str) -> String {
    let name = instance_id.to_lowercase().replace("__", "_1776_");
    format!("swebench/sweb.eval.x86_64.{name}:latest")
}

/// The image a problem wants: its own, or SWE-bench's where it brings no test command.
pub(crate) fn image_of(problem: &Problem) -> Option<String> {
    let named = ["image", "docker_image", "image_name"].iter().find_map(|key| problem.field(key));
    let published = || {
        let own_tests = problem.field("test_command").is_some();
        problem.field("instance_id").filter(|_| !own_tests).map(image)
    };
    named.map(str::to_owned).or_else(published)
}

/// What has to be run in a new sandbox, once the input files are there, to have the repository as it was.
pub(crate) fn setup(problem: &Problem, repository: &Path) -> String {
    script::setup(repository, problem.field("setup"))
}

/// Whether the row says how it is tested, and if not, what is missing.
pub(crate) fn fits(problem: &Problem) -> Result<(), String> {
    if tests(problem, "FAIL_TO_PASS")?.is_empty() {
        return Err("field `FAIL_TO_PASS` names no test".into());
    }
    tests(problem, "PASS_TO_PASS")?;
    match problem.extra.get("test_patch") {
        None | Some(Value::Null | Value::String(_)) => {}
        Some(_) => return Err("field `test_patch` is not a text".into()),
    }
    if let Some(style) = problem.field("test_log")
        && Style::named(style).is_none()
    {
        return Err(format!("field `test_log` is none of {}", Style::NAMES.join(", ")));
    }
    command(problem).map(|_| ())
}

/// What a change is worth: nothing if there is none, otherwise the tests say.
pub(crate) fn grading(problem: &Problem, diff: &str, place: Place<'_>) -> Grading {
    let failed = |why: &str| {
        Grading::Done(Grade { score: 0.0, details: json!({"outcome": "unresolved", "why": why}) })
    };
    let diff = fenced(diff).unwrap_or(diff);
    if diff.trim().is_empty() {
        return failed("nothing was changed");
    }
    let listed = tests(problem, "FAIL_TO_PASS")
        .and_then(|fail| Ok((fail, tests(problem, "PASS_TO_PASS")?, command(problem)?)));
    let (fail_to_pass, pass_to_pass, (command, style)) = match listed {
        Ok(listed) => listed,
        Err(why) => return failed(&why),
    };
    let log = TestLog {
        marker: format!("llm-in-sandbox-{:032x}", fastrand::u128(..)),
        style,
        fail_to_pass,
        pass_to_pass,
        machinery: machinery(diff),
    };
    let test_patch = problem.field("test_patch").unwrap_or_default();
    let script = script::Evaluation {
        repository: place.repository,
        setup: &setup(problem, place.repository),
        command: &command,
        marker: &log.marker,
    };
    let mut files: Vec<CarriedFile> = problem
        .files
        .iter()
        .map(|(name, text)| (place.input_dir.join(name), text.as_bytes().into()))
        .collect();
    files.extend(script.files(diff, test_patch));
    Grading::InSandbox(Check {
        image: image_of(problem).or_else(|| place.image.map(str::to_owned)),
        files,
        command: script::Evaluation::COMMAND.to_owned(),
        timeout: TIMEOUT,
        score: ScoreFrom::Tests(log),
    })
}

/// The change in a plain reply: the last block of that kind. What git wrote has no need of one.
fn fenced(reply: &str) -> Option<&str> {
    let block = reply.rsplit_once("```diff\n").filter(|_| !reply.starts_with("diff --git "))?.1;
    let change = block.split_once("\n```").map_or(block, |(change, _)| change);
    Some(if change.starts_with("```") { "" } else { change })
}

/// The tests under a key: a list of names, or such a list as JSON text.
fn tests(problem: &Problem, key: &str) -> Result<Vec<String>, String> {
    let wrong = || format!("field `{key}` is not a list of tests");
    let list = match problem.extra.get(key) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::String(text)) if text.trim().is_empty() => return Ok(Vec::new()),
        Some(Value::String(text)) => serde_json::from_str(text).map_err(|_| wrong())?,
        Some(list) => list.clone(),
    };
    let names: Vec<String> = serde_json::from_value(list).map_err(|_| wrong())?;
    match names.len() {
        ..=MOST_TESTS => Ok(names),
        more => Err(format!("field `{key}` names {more} tests, more than {MOST_TESTS}")),
    }
}

/// The command that runs the tests, and the form of its log.
fn command(problem: &Problem) -> Result<(String, Style), String> {
    let files = changed_files(problem.field("test_patch").unwrap_or_default());
    let (command, style) = match (problem.field("test_command"), problem.field("repo")) {
        (Some(command), _) => (command.to_owned(), Style::of_command(command)),
        (None, Some(repo)) => repos::command(repo, problem.field("version"), &files)?,
        (None, None) => return Err("there is neither a field `test_command` nor `repo`".into()),
    };
    let named = problem.field("test_log").and_then(Style::named);
    Ok((command, named.unwrap_or(style)))
}

/// The files a patch changes, as they are called afterwards. Names that git has to quote, or that lead elsewhere,
/// are left out.
fn changed_files(patch: &str) -> Vec<String> {
    let mut files = Vec::new();
    for line in patch.lines() {
        let of_git = line.strip_prefix("diff --git a/").and_then(|rest| rest.split_once(" b/"));
        let of_diff = || line.strip_prefix("+++ b/")?.split('\t').next();
        let Some(name) = of_git.map(|(_, name)| name).or_else(of_diff) else { continue };
        let plain = !name.split('/').any(|part| matches!(part, "" | "." | ".."));
        if plain && !name.contains(char::is_control) && !files.iter().any(|file| file == name) {
            files.push(name.to_owned());
        }
    }
    files
}

/// The changed files that say how tests run rather than what the program does. Reported, since they can make
/// tests pass that test nothing.
fn machinery(diff: &str) -> Vec<String> {
    const NAMES: [&str; 8] = [
        "conftest.py",
        "pytest.ini",
        "tox.ini",
        "setup.cfg",
        "pyproject.toml",
        "sitecustomize.py",
        "usercustomize.py",
        "runtests.py",
    ];
    let mut files = changed_files(diff);
    files.retain(|file| {
        let name = file.rsplit('/').next().unwrap_or(file);
        NAMES.contains(&name) || name.ends_with(".pth") || file == "bin/test"
    });
    files
}
