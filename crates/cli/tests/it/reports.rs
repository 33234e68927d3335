//! A user asks what runs mean.

use std::{fs, path::Path};

use results::{AttemptKey, AttemptRecord, Mode, ResultsDir, Run, RunSettings, TaskInfo};
use serde_json::{Value, json};

use crate::support::{Home, code, err, out, refusal, write};

/// A run of ten problems: without a computer three are right, with one eight, and the last attempt is missing.
fn run(directory: &Path, model: &str) -> String {
    let folder = ResultsDir::new(directory);
    let task = TaskInfo {
        name: "math".to_owned(),
        problems: 10,
        repeats: 1,
        grader: "math".to_owned(),
        ..TaskInfo::default()
    };
    let asked = Run {
        v: results::VERSION,
        program: "0.1.0".to_owned(),
        started: 1_768_521_600_000,
        model: model.to_owned(),
        tasks: vec![task],
        modes: vec![Mode::Llm, Mode::Sandbox],
        without: Vec::new(),
        documents: "files".to_owned(),
        settings: RunSettings::default(),
    };
    folder.save_run(&asked).unwrap();
    for (mode, right) in [(Mode::Llm, 3), (Mode::Sandbox, 8)] {
        for problem in 0..10 - usize::from(mode == Mode::Sandbox) {
            let key =
                AttemptKey { task: "math".to_owned(), mode, id: format!("p{problem}"), repeat: 0 };
            if mode == Mode::Llm {
                write(&folder.trajectory_path(&key), "");
            }
            folder.save(&attempt(&key, problem < right)).unwrap();
        }
    }
    directory.to_str().unwrap().to_owned()
}

fn attempt(key: &AttemptKey, right: bool) -> AttemptRecord {
    let score = if right { 1.0 } else { 0.0 };
    let answer = if right { "2" } else { "<img src=x onerror=alert(1)>\u{202e}" };
    serde_json::from_value(json!({
        "v": 1, "task": key.task, "mode": key.mode, "id": key.id, "repeat": 0, "answer": answer,
        "ground_truth": "2", "score": score, "outcome": "submitted",
        "spent": {"turns": 2, "usage": {}, "context": 10, "model_ms": 5, "tool_ms": 5},
    }))
    .unwrap()
}

#[test]
fn one_run_is_reported_beside_its_results() {
    let home = Home::new();
    let dir = tempfile::tempdir().unwrap();
    let path = run(&dir.path().join("run"), "small");
    let done = home.run(["report", &path]);
    assert_eq!(code(&done), 0, "{}", err(&done));
    let text = out(&done);
    assert!(text.contains("math: 30.0% without a sandbox, 88.9% with one"), "{text}");
    assert!(text.contains("1 of 20 attempts are missing"), "{text}");
    let files = "report.html, report.md, report.json and the pages of 13 episodes";
    assert!(err(&done).contains(files), "{}", err(&done));
    let report = Path::new(&path).join("report");
    let read = |name: &str| fs::read_to_string(report.join(name)).unwrap();
    let page = read("report.html");
    assert!(page.contains("<svg") && !page.contains("<img") && page.contains("&lt;img"));
    assert!(page.contains("href=\"./episodes/math%2Cllm%2Cp3%2C0.html\""));
    assert!(read("report.md").contains("## Failures"));
    let data: Value = serde_json::from_str(&read("report.json")).unwrap();
    assert_eq!(data["runs"][0]["missing"], 1);
    assert_eq!(data["runs"][0]["without_events"], 9);
    assert_eq!(data["systems"][0]["tasks"][0]["difference"]["test"], "mcnemar");
    let files = || ["report.html", "report.md", "report.json"].map(read);
    let before = files();
    assert_eq!(code(&home.run(["report", &path])), 0);
    assert!(before == files(), "the same run gave another report");
}

#[test]
fn episodes_get_pages_as_asked() {
    let home = Home::new();
    let dir = tempfile::tempdir().unwrap();
    let run = |name: &str| run(&dir.path().join(name), name);
    let (small, large) = (run("small"), run("large"));
    let output = dir.path().join("here");
    let report = |more: &[&str]| {
        let _ = fs::remove_dir_all(&output);
        let args = [&["report", &small, "--output", output.to_str().unwrap()], more].concat();
        let done = home.run(args);
        assert_eq!(code(&done), 0, "{}", err(&done));
        let pages = fs::read_dir(output.join("episodes")).into_iter().flatten().flatten();
        (fs::read_to_string(output.join("report.html")).unwrap_or_default(), pages.count())
    };
    let (page, pages) = report(&[]);
    // Failures, and the problems gained with a sandbox.
    assert_eq!(pages, 13);
    for link in page.split("href=\"./episodes/").skip(1) {
        let name = link.split_once('"').unwrap().0.replace("%2C", ",");
        assert!(output.join("episodes").join(&name).is_file(), "{name}");
    }
    let failed = output.join("episodes/math,sandbox,p8,0.html");
    assert!(fs::read_to_string(failed).unwrap().contains("No trajectory was recorded."));
    assert_eq!(report(&["--pages", "all"]).1, 19);
    let (page, pages) = report(&["--pages", "none"]);
    assert!(pages == 0 && !page.contains("./episodes/"));
    assert!(page.contains("trajectories/math/llm/p3.0.jsonl"));
    assert_eq!(report(&["--format", "json"]).1, 0);
    // Attempts of several runs have the same names.
    report(&[&large]);
    for run in ["1", "2"] {
        assert!(output.join("episodes").join(run).join("math,llm,p9,0.html").is_file(), "{run}");
    }
}

#[test]
fn several_runs_stand_side_by_side() {
    let home = Home::new();
    let dir = tempfile::tempdir().unwrap();
    let small = run(&dir.path().join("a"), "small");
    let large = run(&dir.path().join("b"), "large");
    let output = dir.path().join("here");
    let told = [
        "report",
        &small,
        &large,
        "--output",
        output.to_str().unwrap(),
        "--json",
        "--format",
        "md",
    ];
    let done = home.run(told);
    assert_eq!(code(&done), 0, "{}", err(&done));
    let data: Value = serde_json::from_str(&out(&done)).unwrap();
    let labels: Vec<_> =
        data["systems"].as_array().unwrap().iter().map(|system| &system["label"]).collect();
    assert_eq!(labels, ["small", "large"]);
    let files: Vec<_> =
        fs::read_dir(output).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(files, ["report.md"]);
}

#[test]
fn runs_are_compared_with_a_baseline() {
    let home = Home::new();
    let dir = tempfile::tempdir().unwrap();
    let small = run(&dir.path().join("a"), "small");
    let large = run(&dir.path().join("b"), "large");
    let folder = ResultsDir::new(&large);
    let attempts: Vec<AttemptRecord> = folder.attempts().unwrap().map(Result::unwrap).collect();
    for mut attempt in attempts {
        // One problem more without a sandbox, and an answer that nobody graded.
        match (attempt.key.mode, attempt.key.id.as_str()) {
            (Mode::Llm, "p3") => attempt.score = Some(1.0),
            (Mode::Llm, "p4") => attempt.score = None,
            _ => continue,
        }
        folder.save(&attempt).unwrap();
    }
    let output = dir.path().join("out");
    let report = |args: &[&str]| {
        let args = ["report"].into_iter().chain(args.iter().copied());
        let done = home.run(args.chain(["--output", output.to_str().unwrap()]));
        assert_eq!(code(&done), 0, "{}", err(&done));
        out(&done)
    };
    let text = report(&[&small, &large]);
    assert!(text.starts_with("# Comparison of benchmark runs"), "{text}");
    let row = "| large | llm | math | 9 | 1 | 33.3 | 44.4 | +11.1 |";
    assert!(text.contains(row), "{text}");
    let left_out = "| large | llm | math | 9 | 0 | 0 | 0 | 1 | 1 |";
    assert!(text.contains(left_out), "{text}");
    let swapped = report(&[&small, &large, "--baseline", &format!("{large}/.")]);
    assert!(swapped.contains("| small | llm | math | 9 | 1 | 44.4 | 33.3 | −11.1 |"), "{swapped}");
    assert_eq!(report(&[&small, "--baseline", &large]), report(&[&large, &small]));
    let gone = dir.path().join("gone");
    let why = refusal(&home.run(["report", &small, "--baseline", gone.to_str().unwrap()]), 2);
    assert!(why.contains("there is no directory"), "{why}");
}

#[test]
fn a_directory_of_something_else_is_refused() {
    let home = Home::new();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let why = refusal(&home.run(["report", path]), 2);
    assert!(why.contains("is not a run directory"), "{why}");
    let why = refusal(&home.run(["report", &format!("{path}/gone")]), 2);
    assert!(why.contains("there is no directory"), "{why}");
    let run = run(&dir.path().join("run"), "small");
    let why = refusal(&home.run(["report", &run, &run]), 2);
    assert!(why.contains("given twice"), "{why}");
    fs::write(dir.path().join("file"), "").unwrap();
    let why = refusal(&home.run(["report", &run, "--output", &format!("{path}/file")]), 4);
    assert!(why.contains("choose another directory with --output"), "{why}");
    assert!(!dir.path().join("run/report").exists());
}

#[test]
fn a_strangers_run_leads_the_report_nowhere_else() {
    let home = Home::new();
    let dir = tempfile::tempdir().unwrap();
    let path = run(&dir.path().join("run"), "small");
    let (report, other) = (dir.path().join("run/report"), dir.path().join("other"));
    fs::create_dir(&other).unwrap();
    std::os::unix::fs::symlink(&other, &report).unwrap();
    let said = refusal(&home.run(["report", &path]), 2);
    assert!(said.contains("is a symbolic link") && said.contains("--output"), "{said}");
    assert_eq!(fs::read_dir(&other).unwrap().count(), 0);

    fs::remove_file(&report).unwrap();
    fs::create_dir(&report).unwrap();
    std::os::unix::fs::symlink(&other, report.join("episodes")).unwrap();
    let said = refusal(&home.run(["report", &path]), 2);
    assert!(said.contains("episodes is a symbolic link"), "{said}");
    assert_eq!(fs::read_dir(&other).unwrap().count(), 0);
    fs::remove_file(report.join("episodes")).unwrap();
    let precious = other.join("precious");
    write(&precious, "mine");
    for name in ["report.html", "report.html.partial", "report.md.partial", "report.json.partial"] {
        std::os::unix::fs::symlink(&precious, report.join(name)).unwrap();
    }
    let done = home.run(["report", &path]);
    assert_eq!(code(&done), 0, "{}", err(&done));
    assert_eq!(fs::read_to_string(&precious).unwrap(), "mine");
    assert!(!report.join("report.html").is_symlink());
}
