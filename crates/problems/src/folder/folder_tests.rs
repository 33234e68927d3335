//! Folders that are tasks, and the errors of those that are not.

use std::{error::Error as _, path::Path};

use tempfile::TempDir;

use super::*;
use crate::{Grader, Grading, PlainPrompt, Problem};

const ROW: &str = r#"{"id": "a", "problem_statement": "q", "ground_truth": "t", "level": 2}"#;

fn folder(files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    dir
}

fn toml(text: &str) -> Result<Task, TaskError> {
    load(folder(&[("task.toml", text), ("rows.jsonl", ROW)]).path())
}

fn refusal(task: Result<Task, TaskError>) -> String {
    let error = task.unwrap_err();
    let source = error.source().map(|source| format!(": {source}")).unwrap_or_default();
    format!("{error}{source}")
}

#[test]
fn a_description_of_our_own_is_a_task() {
    let text = r#"
name = "letters"
data = "rows.jsonl"
image = "base"
known_as = ["Letters 1"]

[prompt]
set = "math"
task = "{problem_statement} in {output_dir}/answer.txt"
plain = "Count. {problem_statement}"
answer_marker = "Answer:"
output_dir = "/testbed/out"

[grader]
kind = "exact"

[limits]
turns = 7
tokens = 1000
"#;
    let task = toml(text).unwrap();
    assert_eq!((task.name.as_str(), task.turns, task.tokens), ("letters", 7, 1000));
    assert_eq!(task.grader, Grader::Exact);
    assert_eq!(task.image.as_deref(), Some("base"));
    assert_eq!(task.known_as, ["Letters 1"]);
    assert_eq!(task.plain_prompt, PlainPrompt::Template("Count. {problem_statement}".into()));
    assert_eq!(task.answer_marker.as_deref(), Some("Answer:"));
    assert!(task.prompts.system.contains("mathematical"));
    assert_eq!(task.prompts.output_dir, Path::new("/testbed/out"));
    assert!(task.data.unwrap().ends_with("rows.jsonl"));
    let least = toml("[grader]\nkind = 'math'").unwrap();
    assert_eq!((least.turns, least.tokens, least.data), (100, 65_536, None));
    assert_eq!(least.plain_prompt, PlainPrompt::Boxed);
}

#[test]
fn errors_name_their_line() {
    let grader = "[grader]\nkind = 'math'\n";
    for (text, expected) in [
        ("", "line 1: missing field `grader`"),
        ("name = ", "line 1: "),
        ("\nnme = 'x'\n[grader]\nkind = 'math'", "line 2: unknown field `nme`"),
        ("[grader]\nkind = 'maths'", "line 2: unknown grader `maths`; known are math, choice"),
        ("[grader]\nkind = 'math'\ncommand = 'x'", "line 1: a grader has either"),
        ("[grader]\n", "line 1: a grader has either"),
        ("[grader]\nkind = 'math'\ntimeout = 3", "require a `command`"),
        ("[grader]\ncommand = 'x'\ntimeout = 0", "line 3: the value has to be from 1 to 86400"),
        ("[grader]\nkind = 'math'\n[limits]\nturns = 0", "line 4: the value has to be from 1"),
        ("[grader]\nkind = 'math'\n[limits]\ntokens = -1", "line 4: "),
        ("data = 'none.jsonl'\n[grader]\nkind = 'math'", "line 1: there is no file"),
        ("name = ''\n[grader]\nkind = 'math'", "line 1: `name` has to be"),
        (
            "[grader]\nkind = 'math'\n[prompt]\nset = 'x'",
            "line 4: unknown prompt set `x`; known are general",
        ),
        ("[grader]\nkind = 'math'\n[prompt]\nplain = '{x}'", "line 4: unknown placeholder {x}"),
        ("[grader]\nkind = 'math'\n[prompt]\nanswer_marker = ' '", "line 4: `answer_marker` has"),
        ("[grader]\nkind = 'math'\n[prompt]\nsystem = '{x}'", "unknown placeholder `{x}`"),
        (
            "[grader]\nkind = 'math'\n[prompt]\ninput_dir = 'x'",
            "`input_dir` must be an absolute path",
        ),
    ] {
        let error = refusal(toml(text));
        assert!(error.contains("task.toml") && error.contains(expected), "{text:?}: {error}");
    }
    assert!(toml(grader).is_ok());
    let none = folder(&[]);
    assert!(
        refusal(load(none.path()))
            .ends_with("is not a task: it has neither task.toml nor config.yaml")
    );
}

#[test]
fn a_grader_command_gets_the_folder_the_answer_and_the_row() {
    let dir = folder(&[
        (
            "task.toml",
            "data = 'rows.jsonl'\n[grader]\ncommand = 'python3 check.py'\nimage = 'base'\ntimeout = 9",
        ),
        ("rows.jsonl", ROW),
        ("check.py", "print(1)"),
        ("lib/words.txt", "a"),
        ("answer.txt", "not this one"),
        (".git/config", "secret"),
    ]);
    let task = load(dir.path()).unwrap();
    let rows = task.read_files(task.data.as_slice()).unwrap();
    let Grading::InSandbox(check) = task.grading(&rows.problems[0], "42") else {
        panic!("no check")
    };
    let names: Vec<String> =
        check.files.iter().map(|(path, _)| path.display().to_string()).collect();
    assert_eq!(
        names,
        [
            "/task/check.py",
            "/task/lib/words.txt",
            "/task/task.toml",
            "/task/answer.txt",
            "/task/row.json"
        ]
    );
    assert_eq!(*check.files[3].1, *b"42");
    let row: serde_json::Value = serde_json::from_slice(&check.files[4].1).unwrap();
    assert_eq!((&row["ground_truth"], &row["level"]), (&"t".into(), &2.into()));
    assert!(check.command.contains("cd /task") && check.command.contains("python3 check.py"));
    assert_eq!((check.image.as_deref(), check.timeout.as_secs()), (Some("base"), 9));
    // Files of the folder are there once, however many answers wait for their grade.
    let Grader::Command(command) = &task.grader else { panic!("{:?}", task.grader) };
    assert!(std::sync::Arc::ptr_eq(&command.files[0].1, &check.files[0].1));
}

#[test]
fn the_image_of_a_task_is_that_of_its_grader() {
    for (grader_image, expected) in [("", "python:3.12"), ("image = 'other:1'", "other:1")] {
        let text = format!("image = 'python:3.12'\n[grader]\ncommand = 'x'\n{grader_image}");
        let task = load(folder(&[("task.toml", &text)]).path()).unwrap();
        let problem = Problem::from_row(serde_json::from_str(ROW).unwrap()).unwrap();
        let Grading::InSandbox(check) = task.grading(&problem, "42") else { panic!("no check") };
        assert_eq!(check.image.as_deref(), Some(expected));
    }
}

const CONFIG: &str = "dataset: json\ndata_files: demo/data.json\nsystem_prompt: |-\n  Use {input_dir}.\n\
    instance_prompt: '{problem_statement}'\n";

#[test]
fn a_folder_of_the_reference_is_a_task() {
    let files = [
        ("config.yaml", CONFIG),
        ("data.json", "[]"),
        ("reward.py", "x"),
        ("vanilla_llm_prompt.py", "x"),
    ];
    let dir = folder(&files);
    let task = load(dir.path()).unwrap();
    assert!(task.data.as_ref().unwrap().ends_with("data.json"));
    assert_eq!(task.prompts.input_dir, Path::new("/testbed/documents"));
    assert_eq!(task.prompts.output_dir, Path::new("/testbed"));
    assert_eq!(task.notes.len(), 1);
    let Grader::Command(command) = &task.grader else { panic!("{:?}", task.grader) };
    assert_eq!(command.command, "python3 llm_in_sandbox_reward.py");
    let row = serde_json::from_str(ROW).unwrap();
    assert_eq!(task.plain_prompt(&Problem::from_row(row).unwrap()), "q");

    let hub = CONFIG.replace("dataset: json", "dataset: o/d\nconfig: c");
    let dir = folder(&[("config.yaml", &hub), ("reward.py", "x"), ("judge.py", "x")]);
    let task = load(dir.path()).unwrap();
    assert_eq!(task.grader, Grader::Judge);
    let source = task.hub.unwrap();
    assert_eq!(
        (source.dataset.as_str(), source.config.as_str(), source.split.as_str()),
        ("o/d", "c", "test")
    );
}

#[test]
fn errors_in_a_folder_of_the_reference_are_reported() {
    let with = |config: &str, files: &[(&str, &str)]| {
        refusal(load(folder(&[&[("config.yaml", config)], files].concat()).path()))
    };
    let reward = ("reward.py", "x");
    let data = ("data.json", "[]");
    assert!(with(CONFIG, &[data]).contains("there is no reward.py"));
    assert!(with(CONFIG, &[reward]).contains("there is no file `demo/data.json`"));
    assert!(with("dataset: json", &[data, reward]).contains("there is no `system_prompt`"));
    assert!(with("a: [", &[data, reward]).contains("must be a YAML mapping"));
    assert!(with("system_prompt: '{x}'", &[data, reward]).contains("`{x}`"));
    assert!(with("system_prompt: x", &[reward]).contains("neither a `dataset`"));
    assert!(with("system_prompt: x\ndataset: [1]", &[reward]).contains("config.yaml"));
}

#[test]
fn folders_that_are_too_large_are_refused() {
    let text = "[grader]\ncommand = 'x'";
    let dir = folder(&[("task.toml", text)]);
    let big = fs::File::create(dir.path().join("big.bin")).unwrap();
    big.set_len(MAX_FOLDER).unwrap();
    assert!(refusal(load(dir.path())).contains("has more than"));
    // Rows do not go along.
    let dir = folder(&[
        ("task.toml", "data = 'rows.jsonl'\n[grader]\ncommand = 'x'"),
        ("rows.jsonl", ""),
    ]);
    fs::File::options()
        .write(true)
        .open(dir.path().join("rows.jsonl"))
        .unwrap()
        .set_len(MAX_FOLDER)
        .unwrap();
    assert!(load(dir.path()).is_ok());
}

#[test]
fn rows_come_from_the_folder_itself() {
    let other = folder(&[("rows.jsonl", ROW)]);
    let elsewhere = other.path().join("rows.jsonl");
    let grader = "\n[grader]\nkind = 'math'\n";
    let absolute = toml(&format!("data = {:?}{grader}", elsewhere.to_str().unwrap()));
    assert!(refusal(absolute).contains("line 1: `data` is outside the task folder"));
    let dir =
        folder(&[("task.toml", &format!("data = 'link.jsonl'{grader}")), ("rows.jsonl", ROW)]);
    let link = dir.path().join("link.jsonl");
    std::os::unix::fs::symlink(&elsewhere, &link).unwrap();
    assert!(refusal(load(dir.path())).contains("outside the task folder"));
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("rows.jsonl", &link).unwrap();
    assert!(load(dir.path()).unwrap().data.is_some());

    let config =
        format!("system_prompt: x\ndataset: json\ndata_files: ../..{}", elsewhere.display());
    let theirs = folder(&[("task/config.yaml", &config), ("task/reward.py", "")]);
    assert!(refusal(load(&theirs.path().join("task"))).contains("there is no file"));
}

#[test]
fn a_benchmark_has_few_names() {
    let named = |count: usize, length: usize| {
        let names = vec!["n".repeat(length); count];
        toml(&format!("known_as = {names:?}\n[grader]\nkind = 'math'"))
    };
    assert_eq!(named(50, 100).unwrap().known_as.len(), 50);
    for bad in [named(51, 1), named(1, 101)] {
        assert!(refusal(bad).contains("line 1: `known_as` has to be at most 50 names"));
    }
}
