//! Runs and benchmarks written by version 0.1.0 before the settings were typed: they resume, replay and report.
//!
//! The files below `tests/data/version-0.1.0` were written by that version: a run that was killed in its third turn, a
//! finished run, and a benchmark that was killed with its plain attempts done and its sandboxed ones not.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;
use testkit::{Answer, MockServer, Received, bash, say, submit};

use crate::{
    episodes::json,
    support::{Home, code, crate_path, err, out},
};

/// A copy of the old files and of the key that signed them.
fn old_files(home: &Home) -> PathBuf {
    let data = crate_path("tests/data/version-0.1.0");
    let to = home.file("old");
    copy(&data, &to);
    fs::create_dir_all(home.state()).unwrap();
    fs::copy(data.join("home/record.key"), home.state().join("record.key")).unwrap();
    to
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// A model that answers plain questions at once and otherwise leaves an answer and submits.
fn model() -> MockServer {
    let turn = |asked: &Received| -> Answer {
        match (asked.turns(), asked.mentions("/testbed")) {
            (_, false) => say("\\boxed{42}").into(),
            (0, true) => {
                bash("mkdir -p /testbed/output; echo 42 > /testbed/output/answer.txt").into()
            }
            _ => submit().into(),
        }
    };
    MockServer::answering(turn).unwrap()
}

/// That version signed the settings and not the events.
#[test]
fn a_killed_run_resumes_with_its_old_signature_once_it_is_trusted() {
    let Some(home) = Home::with_sandboxes() else { return };
    let (old, server) = (old_files(&home), model());
    let mut command = home.command(["run", "--resume"]);
    command.arg(old.join("killed")).args(["--base-url", &server.base_url()]);
    let refused = command.output().unwrap();
    assert_eq!((code(&refused), server.count()), (2, 0), "{}", err(&refused));
    assert!(err(&refused).contains("a version that did not sign them"), "{}", err(&refused));
    let output = command.arg("--trust").output().unwrap();
    assert_eq!((code(&output), out(&output).as_str()), (0, "42\n"), "{}", err(&output));
    assert_eq!(json(&old.join("killed/run.json"))["outcome"], "submitted");
    // The image with its files belonged to another machine: the recorded commands are run again.
    assert!(server.requests()[0].mentions("Write the answer to life."));
    assert_eq!(server.requests()[0].turns(), 2);
}

#[test]
fn a_finished_run_is_replayed() {
    let home = Home::new();
    let old = old_files(&home);
    let mut command = home.command(["replay"]);
    let output = command.arg(old.join("finished")).output().unwrap();
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(out(&output).contains("Write the answer to life."), "{}", out(&output));
}

#[test]
fn a_benchmark_resumes_and_reports() {
    let Some(home) = Home::with_sandboxes() else { return };
    let (old, server) = (old_files(&home), model());
    let mut command = home.command(["benchmark", "math", "--model", "scripted"]);
    command.args(["--base-url", &server.base_url(), "--tool-format", "native", "--mode", "both"]);
    command.args(["--max-turns", "10", "--seed", "7", "--json", "--quiet", "--data"]);
    command.arg(old.join("rows.jsonl")).arg("--output").arg(old.join("bench"));
    let output = command.output().unwrap();
    assert_eq!(code(&output), 0, "{}", err(&output));
    let results: Value = serde_json::from_str(&out(&output)).unwrap();
    assert_eq!((&results["total"], &results["missing"]), (&4.into(), &0.into()), "{results}");
    // The plain attempts are those of the old version.
    assert!(server.requests().iter().all(|asked| asked.mentions("/testbed")));
    let output = home.command(["report"]).arg(old.join("bench")).output().unwrap();
    assert_eq!(code(&output), 0, "{}", err(&output));
    let report = json(&old.join("bench/report/report.json"));
    assert!(report.to_string().contains("scripted"), "{report}");
}
