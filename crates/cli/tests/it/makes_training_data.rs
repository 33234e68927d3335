//! A user makes tasks to train on, from documents with questions and from nothing.

use std::{fs, path::Path, process::Command};

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{MockServer, bash, submit};

use crate::support::{Home, Running, code, err, out, program, refusal, wait_for, write};

fn rows(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The blocks of a page that are marked with this word.
fn blocks(page: &str, mark: &str) -> Vec<String> {
    let fence = format!("```{mark}\n");
    let begun = page.split(&fence).skip(1);
    begun.filter_map(|block| block.split("```").next().map(str::to_owned)).collect()
}

#[test]
fn with_the_commands_of_the_page() {
    let home = Home::new();
    let page = include_str!("../../../../docs/data.md");
    write(&home.file("questions.jsonl"), blocks(page, "json").concat());
    let bin = home.file("bin");
    fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(program(), bin.join("llm-in-sandbox")).unwrap();
    let commands: Vec<String> = blocks(page, "sh")
        .concat()
        .lines()
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect();
    assert_eq!(commands.len(), 5);
    for command in commands {
        let output = Command::new("bash")
            .args(["-c", &command])
            .current_dir(home.file("."))
            .env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()))
            .output()
            .unwrap();
        assert!(output.status.success(), "{command}: {}", err(&output));
        let manifest = serde_json::from_slice::<Value>(&output.stdout);
        assert_eq!(manifest.is_ok(), command.contains("--json"), "{command}: {}", out(&output));
    }
    let own = home.file("tasks/own");
    let all = [rows(&own.join("train.jsonl")), rows(&own.join("validation.jsonl"))].concat();
    assert_eq!(all.len(), 5, "{all:?}");
    let owners = all.iter().find(|row| row["ground_truth"] == "the Brandt family").unwrap();
    assert_eq!(owners["input_files"].as_object().unwrap().len(), 2, "{owners}");
    let manifest: Value =
        serde_json::from_slice(&fs::read(own.join("manifest.json")).unwrap()).unwrap();
    assert_eq!(
        (&manifest["licences"], &manifest["inputs"][0]["questions"]),
        (&json!(["CC0"]), &json!(5))
    );
    assert!(
        rows(&home.file("tasks/prompt/train.jsonl"))
            .iter()
            .all(|row| row["input_files"] == json!({}))
    );
    assert_eq!(rows(&home.file("tasks/easy/validation.jsonl")).len(), 10);
}

#[test]
fn the_folder_is_a_task_for_a_benchmark() {
    let Some(home) = Home::with_sandboxes() else { return };
    let tasks = home.file("tasks");
    let tasks = tasks.to_str().unwrap();
    home.ok([
        "data",
        "synthesize",
        "--output",
        tasks,
        "--count",
        "10",
        "--seed",
        "3",
        "--kinds",
        "sum",
        "--levels",
        "1",
    ]);
    let row = &rows(&home.file("tasks/validation.jsonl"))[0];
    // A model that does what the demonstration shows.
    let commands = row["demonstration"]
        .as_array()
        .unwrap()
        .iter()
        .map(|command| bash(command.as_str().unwrap()));
    let server = MockServer::scripted(commands.chain([submit()]).collect::<Vec<_>>()).unwrap();
    let url = server.base_url();
    let output = home.run([
        "benchmark",
        tasks,
        "--model",
        "mock",
        "--base-url",
        &url,
        "--output",
        "run",
        "--json",
        "--quiet",
    ]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let summary: Value = serde_json::from_str(&out(&output)).unwrap();
    assert_eq!(summary["mean_score"], 1.0, "{summary}");
    assert!(server.requests()[0].mentions("sales.csv"));
}

#[test]
fn bad_wishes_are_one_line_and_leave_nothing() {
    let home = Home::new();
    write(&home.file("a.jsonl"), "{\"context\": \"x\"}\nnonsense\n");
    write(&home.file("full/x"), "");
    for (args, why) in [
        (&["prepare", "--input", "a.jsonl", "--output", "full"][..], "already exists"),
        (
            &["prepare", "--input", "a.jsonl", "--output", "new"],
            "no row is left: 1 of an unknown shape, 1 that cannot be read",
        ),
        (&["prepare", "--input", "none.jsonl", "--output", "new"], "No such file"),
        (&["prepare", "--input", "full", "--output", "new"], ".jsonl or .json"),
        (&["prepare", "--input", "a.jsonl", "--output", "new", "--validation", "-1"], "fraction"),
        (&["prepare", "--output", "new"], "--input"),
        (&["synthesize", "--output", "new", "--count", "0"], "between 1 and"),
        (
            &["synthesize", "--output", "new", "--count", "5", "--kinds", "sum,tag"],
            "there are find, count",
        ),
        (&["synthesize", "--output", "new", "--count", "5", "--levels", "0..3"], "from 1 to 5"),
    ] {
        let line = refusal(&home.run([&["data"], args].concat()), 2);
        assert!(line.contains(why), "{line}");
    }
    let mut left: Vec<_> =
        fs::read_dir(home.file(".")).unwrap().flatten().map(|entry| entry.file_name()).collect();
    left.sort();
    assert_eq!(left, ["a.jsonl", "full"]);
}

#[test]
fn what_is_left_out_is_told() {
    let home = Home::new();
    let good =
        json!({"context": "Bees make honey.", "question": "What do bees make?", "answer": "honey"});
    write(
        &home.file("a.jsonl"),
        format!("{good}\nnonsense\n{{\"context\": \"y\", \"question\": \"?\"}}\n{good}\n"),
    );
    let output = home.run(["data", "prepare", "--input", "a.jsonl", "--output", "new"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let said = err(&output);
    for text in [
        "skipped: 1 that cannot be read, 1 that repeat others, 1 without an answer",
        "a.jsonl, line 2: not JSON",
        "a.jsonl, line 3: it has no answer",
        "the validation set is empty",
    ] {
        assert!(said.contains(text), "{text}: {said}");
    }
    assert!(out(&output).contains("training"), "{}", out(&output));
}

#[test]
fn two_prepared_tasks_have_the_names_of_their_folders() {
    let home = Home::new();
    let row =
        json!({"context": "Bees make honey.", "question": "What do bees make?", "answer": "honey"});
    write(&home.file("a.jsonl"), row.to_string());
    for output in ["bees", "wasps"] {
        home.ok(["data", "prepare", "--input", "a.jsonl", "--output", output]);
    }
    let tried = ["benchmark", "./bees", "./wasps", "--dry-run", "--mode", "llm", "--json"];
    let found = home.json(tried);
    let names = found["tasks"].as_array().unwrap().iter().map(|task| task["task"].clone());
    assert_eq!(names.collect::<Vec<Value>>(), ["bees", "wasps"], "{found}");
}

#[test]
fn a_cancelled_command_leaves_nothing() {
    let home = Home::new();
    let args = ["data", "synthesize", "--output", "big", "--count", "300000", "--levels", "5"];
    let mut running = Running(home.command(args).spawn().unwrap());
    let entries = || fs::read_dir(home.file(".")).unwrap().flatten().count();
    wait_for("the folder under way", || (entries() > 0).then_some(()));
    running.signal(Signal::INT);
    assert_eq!(running.end(), 130);
    assert_eq!(entries(), 0);
}
