//! What is wrong is said before anything is played: servers, keys, names, images, judges, tasks, and what a run will take.

use std::{
    fs::File,
    io::{Read, Write},
    process::Stdio,
    time::{Duration, Instant},
};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::{Value, json};
use testkit::{Answer, MockServer, UnusedPort, say};

use super::{attempts, bench, sum, sums, sums_script};
use crate::support::{Home, Running, code, err, out, refusal, write};

fn math<'a>(data: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["math", "--data", data, "--mode", "llm"][..], more].concat()
}

#[test]
fn a_server_that_is_down_is_one_line_at_once() {
    let home = Home::new();
    let data = sums(&home, 20);
    let nobody = UnusedPort::new().unwrap();
    let url = nobody.base_url().unwrap();
    let began = Instant::now();
    let output = bench(&home, &url, math(data.to_str().unwrap(), &[])).output().unwrap();
    let line = refusal(&output, 4);
    assert!(
        line.contains("cannot reach http://127.0.0.1") && line.contains("--base-url"),
        "{line}"
    );
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert!(!home.file("out").exists());
}

#[test]
fn a_wrong_model_is_told_with_the_names_of_the_server() {
    let home = Home::new();
    let data = sums(&home, 20);
    let server = MockServer::answering(|_| Answer::error(404, "no such model")).unwrap();
    server.list_models(&["small", "large"]);
    let output = bench(&home, &server.base_url(), math(data.to_str().unwrap(), &[])).output();
    let line = refusal(&output.unwrap(), 2);
    assert!(line.contains("has no model `mock`; it has `small`, `large`"), "{line}");
    assert_eq!((server.lists(), server.count()), (1, 1), "one call for one token");
    assert_eq!(server.requests()[0].body["max_tokens"], 1);
    assert!(!home.file("out").exists());
    // An alias that the server knows and does not list.
    let server = sums_script(20).serve();
    server.list_models(&["mock:latest"]);
    let more = ["--limit", "1", "--no-preflight", "--quiet"];
    let args = math(data.to_str().unwrap(), &more);
    let output = bench(&home, &server.base_url(), args).output().unwrap();
    assert_eq!((code(&output), server.lists()), (0, 0), "{}", err(&output));
}

#[test]
fn a_refused_key_ends_at_once() {
    let home = Home::new();
    let data = sums(&home, 20);
    let data = data.to_str().unwrap();
    let refusing = || MockServer::answering(|_| Answer::error(401, "who are you?")).unwrap();
    let server = refusing();
    server.list_models(&[]);
    let output = bench(&home, &server.base_url(), math(data, &[])).output().unwrap();
    let line = refusal(&output, 4);
    assert!(line.contains("none was sent") && line.contains("LLM_API_KEY"), "{line}");
    assert_eq!(server.count(), 1);
    // A server that lists its models to anybody.
    let server = refusing();
    let mut command = bench(&home, &server.base_url(), math(data, &["--concurrency", "1"]));
    let output = command.env("LLM_API_KEY", "wrong").output().unwrap();
    assert_eq!(code(&output), 4, "{}", err(&output));
    let said = err(&output);
    assert!(said.contains("the run was aborted: the server refuses the key (401)"), "{said}");
    assert!(server.count() <= 2, "{} calls with a refused key", server.count());
    assert_eq!(attempts(&home.file("out")).len(), 0, "they are played when the run is resumed");
}

#[test]
fn nothing_is_checked_where_nothing_is_played() {
    let home = Home::new();
    let data = sums(&home, 2);
    let server = sums_script(2).serve();
    let args = math(data.to_str().unwrap(), &["--quiet"]);
    let url = server.base_url();
    let output = bench(&home, &url, &args).output().unwrap();
    assert_eq!((code(&output), server.lists()), (0, 1), "{}", err(&output));
    drop(server);
    let output = bench(&home, &url, &args).output().unwrap();
    assert_eq!(code(&output), 0, "all attempts are there: {}", err(&output));
}

#[test]
fn a_missing_judge_is_told_before_tokens_are_spent() {
    let home = Home::new();
    let data = sums(&home, 2);
    let server = sums_script(2).serve();
    let args = ["physics", "--data", data.to_str().unwrap(), "--mode", "llm"];
    let output = bench(&home, &server.base_url(), args).output().unwrap();
    assert_eq!(code(&output), 4, "{}", err(&output));
    let said = err(&output);
    let (warned, began) = (said.find("none is named"), said.find("2 attempts to run"));
    assert!(warned.is_some() && warned < began, "{said}");
    // Neither the table nor the record has a score.
    let table = out(&output);
    assert!(table.contains("physics  llm   -  "), "{table}");
    let results = crate::episodes::json(&home.file("out/results.json"));
    assert_eq!((&results["mean_score"], &results["ungraded"]), (&Value::Null, &json!(2)));
    // A judge that cannot be reached is told as well.
    let nobody = UnusedPort::new().unwrap();
    let url = nobody.base_url().unwrap();
    let more = ["--judge-model", "j", "--judge-base-url", &url, "--retries", "0", "--output", "b"];
    let output = bench(&home, &server.base_url(), [&args[..], &more].concat()).output().unwrap();
    assert!(err(&output).contains("warning: the judge cannot be used now"), "{}", err(&output));
}

#[test]
fn an_image_that_is_not_there_is_told_with_its_command_and_leaves_nothing() {
    let Some(home) = Home::with_sandboxes() else { return };
    let row = |id: &str| {
        json!({"instance_id": id, "problem_statement": "mend it", "patch": "", "repo": "django/django",
               "version": "3.0", "FAIL_TO_PASS": ["t"], "PASS_TO_PASS": [],
               "test_patch": "--- a/t.py\n+++ b/t.py\n@@ -1 +1 @@\n-a\n+b\n"})
    };
    write(
        &home.file("swe.jsonl"),
        format!("{}\n{}\n", row("django__django-1"), row("django__django-2")),
    );
    let server = MockServer::start().unwrap();
    let args = ["swe", "--data", "swe.jsonl"];
    let output = bench(&home, &server.base_url(), args).output().unwrap();
    let line = refusal(&output, 2);
    assert!(line.contains("2 images are not in the store, needed by 2 problems"), "{line}");
    assert!(line.contains("`llm-in-sandbox image pull "), "{line}");
    assert!(!home.file("out").exists());
    assert_eq!((server.count(), server.lists()), (0, 0));
}

#[test]
fn a_task_is_tried_without_a_model() {
    let Some(home) = Home::with_sandboxes() else { return };
    let rows = format!("{}\n{}\n{}\nnot a row\n", sum(0), sum(1), sum(2));
    write(&home.file("mine/rows.jsonl"), rows);
    let task = "name = \"mine\"\ndata = \"rows.jsonl\"\n\n[grader]\ncommand = \"sh grade.sh\"\n";
    write(&home.file("mine/task.toml"), task);
    // A grader with a defect: it gives only a quarter for the third answer.
    let grade = "test \"$(cat answer.txt)\" = 3 && echo 0.25 || echo 1\n";
    write(&home.file("mine/grade.sh"), grade);
    let dry = |more: &[&str]| {
        let args = ["benchmark", "./mine", "--dry-run"];
        home.command(args.iter().chain(more)).env("HOME", home.file("nobody")).output().unwrap()
    };
    let output = dry(&["--mode", "both"]);
    assert_eq!(code(&output), 2, "{}", err(&output));
    let text = out(&output);
    for expected in [
        "mine: 3 problems, 6 attempts",
        "image    host",
        "sandbox  set up for problem sum-0",
        "grader   command: 2 of 3 right answers get the full score",
        "sum-2: the right answer gets 0.25, not 1",
        "prompt   mode llm, problem sum-0:",
        "Sum number 0: what is 0 + 1?",
        "prompt   mode sandbox, problem sum-0:",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert!(err(&output).contains("row 4"), "{}", err(&output));
    assert!(!text.contains("problem sum-1:"), "{text}");
    let output = dry(&["--mode", "llm", "--limit", "2", "--json", "--quiet"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let found = super::printed(&output);
    let task = &found["tasks"][0];
    assert_eq!((&task["fine"], task["prompts"].as_array().unwrap().len()), (&json!(true), 2));
    assert_eq!(task["answers"][1], json!({"id": "sum-1", "score": 1.0}));
    assert!(!home.file("benchmark-runs").exists());
    assert_eq!(home.traces(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn what_a_run_takes_is_estimated_from_finished_attempts() {
    let home = Home::new();
    let data = sums(&home, 6);
    let data = data.to_str().unwrap();
    let server = sums_script(6).serve();
    let prices = json!({"models": {"mock": {"input": 1000.0, "output": 1000.0}}});
    write(&home.file("prices.json"), prices.to_string());
    let run = |more: &[&str]| {
        let args = math(data, &["--prices", "prices.json"]);
        let output = bench(&home, &server.base_url(), [&args[..], more].concat()).output().unwrap();
        assert_eq!(code(&output), 0, "{}", err(&output));
        err(&output)
    };
    let first = run(&["--limit", "2"]);
    assert!(first.contains("2 attempts to play: tokens, cost and time are not known"), "{first}");
    let second = run(&[]);
    assert!(second.contains("4 attempts to play: about "), "{second}");
    assert!(second.contains("going by 2 finished attempts") && second.contains('$'), "{second}");
    assert!(!second.contains("Start?"), "nobody is asked without a terminal");
}

/// The program at a terminal.
fn at_a_terminal(home: &Home, url: &str, args: &[&str], keys: &str) -> (i32, String) {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY;
    let side = rustix::fs::open(name.as_c_str(), flags, rustix::fs::Mode::empty()).unwrap();
    let end = || Stdio::from(side.try_clone().unwrap());
    let mut command = bench(home, url, args);
    command.env("TERM", "dumb").stdin(end()).stderr(end()).stdout(Stdio::null());
    let mut running = Running(command.spawn().unwrap());
    drop(command);
    let mut terminal = File::from(terminal);
    terminal.write_all(keys.as_bytes()).unwrap();
    let ended = running.end();
    drop(side);
    let (mut shown, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(n @ 1..) = terminal.read(&mut buffer) {
        shown.extend_from_slice(&buffer[..n]);
    }
    (ended, String::from_utf8_lossy(&shown).into_owned())
}

#[test]
fn a_large_run_asks_at_a_terminal_and_nothing_is_left_after_a_no() {
    let home = Home::new();
    let data = sums(&home, 100);
    let server = sums_script(100).serve();
    let args = math(data.to_str().unwrap(), &[]);
    let (ended, shown) = at_a_terminal(&home, &server.base_url(), &args, "n\n");
    assert!(ended == 2 && shown.contains("100 attempts to play"), "{ended} {shown}");
    assert!(shown.contains("Start? [y/N]") && shown.contains("--yes"), "{shown}");
    assert!(!home.file("out").exists() && server.count() == 0);
    let (ended, shown) = at_a_terminal(&home, &server.base_url(), &args, "y\n");
    assert!(ended == 0 && server.count() == 100, "{ended} {shown}");
    let yes = [&args[..], &["--repeat", "2", "--yes"]].concat();
    let (ended, shown) = at_a_terminal(&home, &server.base_url(), &yes, "");
    assert!(ended == 0 && !shown.contains("Start?"), "{ended} {shown}");
    assert_eq!(server.count(), 200);
}

#[test]
fn a_name_the_server_does_not_list_is_tried() {
    let home = Home::new();
    let data = sums(&home, 2);
    let server = MockServer::answering(|asked| match asked.mentions("Sum number") {
        true => say("\\boxed{1}"),
        false => say("Hello"),
    })
    .unwrap();
    server.list_models(&["mock:latest"]);
    let output =
        bench(&home, &server.base_url(), math(data.to_str().unwrap(), &[])).output().unwrap();
    assert_eq!((code(&output), server.count()), (0, 3), "{}", err(&output));
}
