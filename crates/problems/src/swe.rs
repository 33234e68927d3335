//! Software engineering tasks in the form of SWE-bench: images, test commands, and the grade of a patch.
//!
//! The model's patch is applied in a new sandbox, then the tests of the row, and the test log decides. Runs nothing
//! itself: it writes scripts and reads logs.

mod log;
mod repos;
mod script;

#[cfg(test)]
#[path = "swe/swe_tests.rs"]
mod tests;

use std::{path::Path, time::Duration};

use serde_json::{Value, json};

use crate::{Check, Grade, GraderFile, Grading, Problem, RowError, ScoreFrom, problem::kind};

pub use log::{TestLog, TestLogFormat};
pub use script::{DIFF_FILE, DiffForm, diff_command};

/// Time limit of the tests of one patch.
const TIMEOUT: Duration = Duration::from_secs(1800);
/// The most tests a row may list under one key.
const MAX_TESTS: usize = 100_000;

/// The parts of a task that a grading sandbox depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RepositoryContext<'a> {
    pub(crate) repository: &'a Path,
    pub(crate) input_dir: &'a Path,
    pub(crate) image: Option<&'a str>,
}

/// The image that SWE-bench publishes for an instance.
pub fn image(instance_id: &str) -> String {
    let name = instance_id.to_lowercase().replace("__", "_1776_");
    format!("swebench/sweb.eval.x86_64.{name}:latest")
}

/// The image of a problem: its own, or SWE-bench's where it has no test command of its own.
pub(crate) fn image_of(problem: &Problem) -> Option<String> {
    let named = ["image", "docker_image", "image_name"].iter().find_map(|key| problem.field(key));
    let published = || {
        let own_tests = problem.field("test_command").is_some();
        problem.field("instance_id").filter(|_| !own_tests).map(image)
    };
    named.map(str::to_owned).or_else(published)
}

/// The script that prepares the repository in a new sandbox, once the input files are there.
pub(crate) fn setup(problem: &Problem, repository: &Path) -> String {
    script::setup(repository, problem.field("setup"))
}

/// Whether a row has everything its tests need.
pub(crate) fn check(problem: &Problem) -> Result<(), RowError> {
    if tests(problem, "FAIL_TO_PASS")?.is_empty() {
        return Err(RowError::Empty { field: "FAIL_TO_PASS" });
    }
    tests(problem, "PASS_TO_PASS")?;
    match problem.extra.get("test_patch") {
        None | Some(Value::Null | Value::String(_)) => {}
        Some(other) => {
            let (field, found) = ("test_patch", kind(other));
            return Err(RowError::Type { field, found, expected: "a string" });
        }
    }
    if let Some(format) = problem.field("test_log")
        && TestLogFormat::named(format).is_none()
    {
        let why = format!("is not one of {}", TestLogFormat::NAMES.join(", "));
        return Err(RowError::Invalid { field: "test_log", why });
    }
    command(problem).map(|_| ())
}

/// The grading of a patch: 0 if it is empty, otherwise a check that runs the tests.
pub(crate) fn grading(problem: &Problem, diff: &str, context: RepositoryContext<'_>) -> Grading {
    let failed = |why: &str| {
        Grading::Done(Grade { score: 0.0, details: json!({"outcome": "unresolved", "why": why}) })
    };
    let diff = fenced(diff).unwrap_or(diff);
    if diff.trim().is_empty() {
        return failed("nothing was changed");
    }
    let listed = tests(problem, "FAIL_TO_PASS")
        .and_then(|fail| Ok((fail, tests(problem, "PASS_TO_PASS")?, command(problem)?)));
    let (fail_to_pass, pass_to_pass, (command, format)) = match listed {
        Ok(listed) => listed,
        Err(error) => return failed(&error.to_string()),
    };
    let log = TestLog {
        marker: format!("llm-in-sandbox-{:032x}", fastrand::u128(..)),
        format,
        fail_to_pass,
        pass_to_pass,
        test_config_changes: test_config_changes(diff),
    };
    let test_patch = problem.field("test_patch").unwrap_or_default();
    let script = script::Evaluation {
        repository: context.repository,
        setup: &setup(problem, context.repository),
        command: &command,
        marker: &log.marker,
    };
    let mut files: Vec<GraderFile> = problem
        .files
        .iter()
        .map(|(name, text)| (context.input_dir.join(name), text.as_bytes().into()))
        .collect();
    files.extend(script.files(diff, test_patch));
    Grading::InSandbox(Check {
        image: image_of(problem).or_else(|| context.image.map(str::to_owned)),
        files,
        command: script::Evaluation::COMMAND.to_owned(),
        timeout: TIMEOUT,
        score: ScoreFrom::Tests(log),
    })
}

/// The patch in a response without a sandbox: the last `diff` block. A patch written by git is not in a block.
fn fenced(response: &str) -> Option<&str> {
    let block =
        response.rsplit_once("```diff\n").filter(|_| !response.starts_with("diff --git "))?.1;
    let patch = block.split_once("\n```").map_or(block, |(patch, _)| patch);
    Some(if patch.starts_with("```") { "" } else { patch })
}

/// The tests under a key: an array of names, or a string with such an array as JSON.
fn tests(problem: &Problem, field: &'static str) -> Result<Vec<String>, RowError> {
    let wrong = || RowError::Invalid { field, why: "is not a list of tests".into() };
    let list = match problem.extra.get(field) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::String(text)) if text.trim().is_empty() => return Ok(Vec::new()),
        Some(Value::String(text)) => serde_json::from_str(text).map_err(|_| wrong())?,
        Some(list) => list.clone(),
    };
    let names: Vec<String> = serde_json::from_value(list).map_err(|_| wrong())?;
    match names.len() {
        ..=MAX_TESTS => Ok(names),
        more => {
            let why = format!("names {more} tests, more than {MAX_TESTS}");
            Err(RowError::Invalid { field, why })
        }
    }
}

/// The command that runs the tests, and the format of its log.
fn command(problem: &Problem) -> Result<(String, TestLogFormat), RowError> {
    let files = changed_files(problem.field("test_patch").unwrap_or_default());
    let (command, format) = match (problem.field("test_command"), problem.field("repo")) {
        (Some(command), _) => (command.to_owned(), TestLogFormat::of_command(command)),
        (None, Some(repo)) => repos::command(repo, problem.field("version"), &files)?,
        (None, None) => {
            let why = "there is neither a field `test_command` nor `repo`";
            return Err(RowError::Ungradable(why.into()));
        }
    };
    let named = problem.field("test_log").and_then(TestLogFormat::named);
    Ok((command, named.unwrap_or(format)))
}

/// The files a patch changes, by their new names. Names that git has to quote, or that leave the repository, are
/// left out.
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

/// The changed files that configure the tests. Reported, because they can make tests pass that test nothing.
fn test_config_changes(diff: &str) -> Vec<String> {
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
