//! Run directories: complete, in progress, damaged.

use std::fs;

use lis_report::{FailureKind, Report, html, markdown, read};
use results::{AttemptKey, Mode, ResultsDir};
use serde_json::json;

use crate::fabricate::Plan;

fn plan() -> Plan {
    Plan {
        model: "small",
        seed: 5,
        problems: 12,
        repeats: 1,
        tasks: vec![("math", 0.3, 0.6)],
        broken: 0,
    }
}

fn key(mode: Mode, problem: usize) -> AttemptKey {
    AttemptKey { task: "math".to_owned(), mode, id: format!("p{problem:05}"), repeat: 0 }
}

#[test]
fn a_run_on_disk_is_the_run_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let path = plan().write(&dir.path().join("run"));
    let sources = read(&[path], &dir.path().join("run/report")).unwrap();
    let report = Report::of(&sources);
    let mut in_memory = plan().source();
    in_memory.facts.iter_mut().for_each(|fact| fact.recorded = true);
    let in_memory = Report::of(&[in_memory]);
    assert_eq!(report.systems[0].tasks, in_memory.systems[0].tasks);
    assert_eq!(report.runs[0].missing, 0);
    let domains = &report.systems[0].domains;
    assert_eq!(domains.iter().map(|domain| domain.attempts).sum::<usize>(), 12);
    let counts = domains[0].capabilities.paper;
    assert!(counts.file > 0 && counts.computation > 0 && counts.external == 0, "{counts:?}");
}

#[test]
fn a_run_in_progress_reports_missing_attempts() {
    let dir = tempfile::tempdir().unwrap();
    let path = plan().write(dir.path());
    let folder = ResultsDir::new(&path);
    for problem in 0..3 {
        fs::remove_file(folder.attempt_path(&key(Mode::Sandbox, problem))).unwrap();
    }
    fs::remove_file(folder.trajectory_path(&key(Mode::Sandbox, 5))).unwrap();
    let report = Report::of(&read(&[path], dir.path()).unwrap());
    assert_eq!((report.runs[0].missing, report.runs[0].without_events), (3, 1));
    let task = &report.systems[0].tasks[0];
    assert_eq!(task.sandbox.as_ref().unwrap().missing, 3);
    assert_eq!(task.llm.as_ref().unwrap().missing, 0);
    assert_eq!(task.difference.unwrap().problems, 9);
    assert!(report.notes[0].contains("3 of 24 attempts are missing"), "{:?}", report.notes);
}

#[test]
fn damaged_files_are_listed_and_hide_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = plan().write(&dir.path().join("run"));
    let folder = ResultsDir::new(&path);
    fs::write(folder.attempt_path(&key(Mode::Llm, 0)), "{").unwrap();
    fs::write(folder.trajectory_path(&key(Mode::Sandbox, 1)), "nonsense\n").unwrap();
    let mut wild = folder.attempt(&key(Mode::Llm, 2)).unwrap().unwrap();
    wild.score = Some(7.0);
    folder.save(&wild).unwrap();
    let copy = folder.attempt_path(&key(Mode::Llm, 3));
    fs::copy(&copy, copy.with_file_name("copy.0.json")).unwrap();
    fs::write(path.join("run.json"), "[").unwrap();
    let report = Report::of(&read(std::slice::from_ref(&path), dir.path()).unwrap());
    let damaged = &report.runs[0].damaged;
    assert_eq!((damaged.total, damaged.items.len()), (5, 5), "{damaged:?}");
    let text = damaged.items.join("\n");
    for word in
        ["run.json", "p00000.0.json", "p00001.0.jsonl", "p00002.0.json", "duplicate of another"]
    {
        assert!(text.contains(word), "{word}: {text}");
    }
    // Absolute paths of this machine are not shown.
    assert!(!text.contains(dir.path().to_str().unwrap()), "{text}");
    assert_eq!(report.runs[0].read, 22);
    assert_eq!(report.systems[0].label, "unknown model");
    assert!(markdown(&report).contains("p00000.0.json"));
}

#[test]
fn failures_link_to_their_trajectories() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("runs of mine/50%");
    plan().write(&run);
    let out = dir.path().join("reports");
    fs::create_dir(&out).unwrap();
    let report = Report::of(&read(std::slice::from_ref(&run), &out).unwrap());
    assert!(!report.failures.items.is_empty());
    for failure in &report.failures.items {
        let path = out.join(failure.attempt.trajectory.as_ref().unwrap());
        assert!(path.exists(), "{}", path.display());
        assert!(!failure.answer.is_empty() && failure.expected == "42");
    }
    let lost =
        report.failures.items.iter().find(|failure| failure.kind == FailureKind::LostWithSandbox);
    assert!(lost.is_none_or(|failure| failure.other_mode == Some(1.0)));
    assert!(html(&report).contains("href=\"./../runs%20of%20mine/50%25/trajectories/math/"));
    let first = report.failures.items[0].attempt.trajectory.as_ref().unwrap();
    fs::remove_file(out.join(first)).unwrap();
    let report = Report::of(&read(&[run], &out).unwrap());
    assert_eq!(report.failures.items[0].attempt.trajectory, None);
}

#[test]
fn runs_with_odd_fields_are_compared_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let [plain, odd, double] =
        ["plain", "odd", "double"].map(|name| plan().write(&dir.path().join(name)));
    let file = odd.join("run.json");
    let mut run: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    run["future"] = json!({"x": [1, 2, 3]});
    run["settings"]["same"] = json!({
        "sampling": {"temperature": "warm", "new": {"deep": [[1], {"a": null}]}},
        "caps": "none", "huge": "x".repeat(5_000_000), "selection": 7,
    });
    run["tasks"] = json!([run["tasks"][0], run["tasks"][0]]);
    fs::write(&file, run.to_string()).unwrap();
    // The same field twice is no run file, and the attempts count all the same.
    let file = double.join("run.json");
    let text = fs::read_to_string(&file).unwrap().replacen('{', "{\"model\":\"x\",", 1);
    fs::write(&file, text).unwrap();
    let report = Report::of(&read(&[plain, odd, double], dir.path()).unwrap());
    let labels: Vec<_> = report.systems.iter().map(|system| system.label.as_str()).collect();
    assert_eq!(labels, ["small", "small t=warm", "unknown model"]);
    assert_eq!(report.comparisons.len(), 4);
    for row in &report.comparisons {
        let found = row.difference.unwrap();
        assert_eq!((found.problems, found.difference, found.p), (12, 0.0, 1.0));
    }
    let size = markdown(&report).len() + html(&report).len();
    assert!(size < 300_000, "{size}");
}

#[test]
fn an_empty_run_is_reported_as_such() {
    let dir = tempfile::tempdir().unwrap();
    ResultsDir::new(dir.path()).save_run(&plan().run()).unwrap();
    let report = Report::of(&read(&[dir.path().to_owned()], dir.path()).unwrap());
    assert_eq!((report.runs[0].planned, report.runs[0].read), (24, 0));
    assert!(markdown(&report).contains("24 of 24 attempts are missing"));
    assert!(html(&report).contains("24 of 24"));
}

#[test]
fn a_run_is_given_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = plan().write(dir.path());
    let error = read(&[path.clone(), path.join(".")], dir.path()).unwrap_err();
    assert!(error.to_string().contains("twice"), "{error}");
}
