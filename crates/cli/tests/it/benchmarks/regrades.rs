//! Answers graded again: by another grader or judge, without the model, with the earlier grades kept, also after a kill.

use std::{fs, path::PathBuf};

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{MockServer, say};

use super::{attempts, bench, benched, sum, sums, sums_script};
use crate::{
    episodes::json as read_json,
    support::{Home, Running, code, err, is_running, out, refusal, unique_sleep, wait_for, write},
};

/// A task of sums whose grader is a script.
fn task(home: &Home, grade: &str) {
    let rows: String = (0..3).map(|n| sum(n).to_string() + "\n").collect();
    write(&home.file("mine/rows.jsonl"), rows);
    let task = "name = \"mine\"\ndata = \"rows.jsonl\"\n\n[grader]\ncommand = \"sh grade.sh\"\n";
    write(&home.file("mine/task.toml"), task);
    write(&home.file("mine/grade.sh"), grade);
}

fn scores(home: &Home) -> Vec<Value> {
    attempts(&home.file("out")).iter().map(|attempt| attempt["score"].clone()).collect()
}

#[test]
fn a_changed_grader_grades_again_and_the_earlier_grades_are_kept() {
    let Some(home) = Home::with_sandboxes() else { return };
    task(&home, "echo strict; echo 0\n");
    let server = sums_script(3).serve();
    let args = ["./mine", "--mode", "llm"];
    benched(&home, &server, &args, 0);
    assert_eq!(attempts(&home.file("out"))[0]["grade"]["output"], "strict");
    write(&home.file("mine/grade.sh"), "echo lenient; echo 1\n");
    let output = bench(&home, &server.base_url(), args).output().unwrap();
    let line = refusal(&output, 2);
    assert!(line.contains("the grader of the task mine has changed"), "{line}");
    assert!(line.contains("--regrade"), "{line}");
    assert_eq!(scores(&home), vec![json!(0.0); 3]);
    let results = benched(&home, &server, &[&args[..], &["--regrade"]].concat(), 0);
    assert_eq!((&results["mean_score"], &results["total"]), (&json!(1.0), &json!(3)));
    assert_eq!(read_json(&home.file("out/results.json"))["mean_score"], 1.0);
    let first = &attempts(&home.file("out"))[0];
    assert_eq!(first["grade"]["output"], "lenient");
    let earlier = json!([{"score": 0.0, "grade": {"output": "strict"}}]);
    assert_eq!(first["grading"]["earlier"], earlier, "{first}");
    assert_eq!(server.count(), 3, "the model was not called again");
    // The new grader is the run's now.
    benched(&home, &server, &args, 0);
    assert_eq!(server.count(), 3);
    let nothing = ["./mine", "--mode", "llm", "--output", "none", "--regrade"];
    let output = bench(&home, &server.base_url(), nothing).output().unwrap();
    assert!(refusal(&output, 2).contains("has no attempts"), "{}", err(&output));
    assert!(!home.file("none").exists());
}

#[test]
fn grading_again_continues_after_a_kill_and_never_mixes_grades() {
    let Some(home) = Home::with_sandboxes() else { return };
    task(&home, "echo 0\n");
    let server = sums_script(3).serve();
    benched(&home, &server, &["./mine", "--mode", "llm"], 0);
    // The second answer takes for ever.
    let sleep = unique_sleep();
    let slow = format!("grep -q 'sum-1' row.json && {}; echo 1\n", sleep.join(" "));
    write(&home.file("mine/grade.sh"), &slow);
    let args = ["./mine", "--mode", "llm", "--regrade", "--quiet"];
    let mut running = Running(bench(&home, &server.base_url(), args).spawn().unwrap());
    wait_for("two grades", || {
        (scores(&home) == [json!(1.0), json!(0.0), json!(1.0)]).then_some(())
    });
    running.signal(Signal::KILL);
    running.0.wait().unwrap();
    wait_for("clean-up", || home.traces().is_empty().then_some(()));
    // What is reported meanwhile counts no grade of the old grader.
    let output = home.command(["report", "out", "--output", "r"]).output().unwrap();
    assert_eq!(code(&output), 0, "{}", err(&output));
    let report = read_json(&home.file("r/report.json")).to_string();
    assert!(report.contains("not graded again yet"), "{report}");
    let output = home.command(["replay", "out", "--id", "sum-1"]).output().unwrap();
    assert!(out(&output).contains("score: not graded"), "{} {}", out(&output), err(&output));
    let graded: Vec<_> = kept(&home, &["sum-0", "sum-2"]);
    let mut running = Running(bench(&home, &server.base_url(), args).spawn().unwrap());
    wait_for("the last one", || is_running(&sleep).then_some(()));
    running.signal(Signal::INT);
    assert_eq!(running.end(), 130);
    assert_eq!(kept(&home, &["sum-0", "sum-2"]), graded, "they are not graded twice");
    let results = read_json(&home.file("out/results.json"));
    assert_eq!((&results["ungraded"], &results["mean_score"]), (&json!(1), &json!(1.0)));
    assert_eq!(scores(&home)[1], json!(0.0), "a grade is kept until there is a new one");
    assert_eq!(server.count(), 3);
}

fn kept(home: &Home, ids: &[&str]) -> Vec<String> {
    let path = |id: &&str| home.file(&format!("out/attempts/mine/llm/{id}.0.json"));
    let paths: Vec<PathBuf> = ids.iter().map(path).collect();
    paths.iter().map(|path| fs::read_to_string(path).unwrap()).collect()
}

#[test]
fn another_judge_judges_again() {
    let home = Home::new();
    let data = sums(&home, 2);
    let server = sums_script(2).serve();
    let judge = |verdict: &'static str| MockServer::answering(move |_| say(verdict)).unwrap();
    let (strict, lenient) = (judge("INCORRECT"), judge("CORRECT"));
    let args = ["physics", "--data", data.to_str().unwrap(), "--mode", "llm"];
    let judged = |name: &str, server: &MockServer| {
        let more = ["--judge-model", name, "--judge-base-url", &server.base_url()];
        [&args[..], &more].concat().into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let with = |args: &[String], more: &[&str]| {
        let args = args.iter().map(String::as_str).chain(more.iter().copied());
        args.map(str::to_owned).collect::<Vec<_>>()
    };
    let run = |args: Vec<String>| {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        benched(&home, &server, &args, 0)
    };
    assert_eq!(run(judged("mock", &strict))["mean_score"], 0.0);
    let other = judged("scripted", &lenient);
    let output = bench(&home, &server.base_url(), &other).output().unwrap();
    let line = refusal(&output, 2);
    assert!(line.contains("--judge-model was `mock`, now it is `scripted`"), "{line}");
    assert!(line.contains("--regrade"), "{line}");
    // Without a judge they would lose their grades.
    let unjudged = [&args[..], &["--regrade"]].concat();
    let output = bench(&home, &server.base_url(), unjudged).output().unwrap();
    assert!(refusal(&output, 2).contains("--regrade: name the judge with --judge-model, or"));
    assert_eq!(run(with(&other, &["--regrade"]))["mean_score"], 1.0);
    assert_eq!((server.count(), strict.count(), lenient.count()), (2, 8, 8));
    let first = &attempts(&home.file("out"))[0];
    assert_eq!(first["grading"]["earlier"][0]["grade"]["judge"], "mock", "{first}");
}

#[test]
fn a_run_that_is_graded_again_does_not_grow() {
    let home = Home::new();
    let data = sums(&home, 5);
    let server = sums_script(5).serve();
    let args = ["math", "--data", data.to_str().unwrap()];
    benched(&home, &server, &[&args[..], &["--mode", "llm", "--limit", "3"]].concat(), 0);
    let again = benched(&home, &server, &[&args[..], &["--regrade"]].concat(), 0);
    assert_eq!((&again["asked"], &again["total"]), (&json!(3), &json!(3)));
    let run = read_json(&home.file("out/run.json"));
    assert_eq!((&run["modes"], &run["tasks"][0]["attempts"]), (&json!(["llm"]), &json!(3)));
    assert_eq!(run["settings"]["asked"]["selection"]["limit"], 3);
    let mut command = home.command(["benchmark", "--resume", "out", "--json", "--quiet"]);
    let output = command.env("HOME", home.file("nobody")).output().unwrap();
    assert_eq!((code(&output), server.count()), (0, 3), "{}", err(&output));
    let other = ["physics", "--data", args[2], "--judge-model", "mock", "--regrade"];
    let output = bench(&home, &server.base_url(), other).output().unwrap();
    assert!(refusal(&output, 2).contains("has no task physics"), "{}", err(&output));
}
