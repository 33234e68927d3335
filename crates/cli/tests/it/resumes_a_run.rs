//! A run whose process died goes on: the conversation from its record, the files as they were.

use std::fs;

use rustix::process::Signal;
use testkit::{Answer, MockServer, bash, submit};

use crate::{
    episodes::{check_record, events, folder, kinds, run},
    support::{Home, Running, code, err, out, wait_for},
};

/// Starts a run that hangs in its third turn, and kills it there.
fn killed(home: &Home, server: &MockServer) {
    server.push(bash(
        "echo one > /testbed/output/list.txt; mkdir -p /opt/kept; echo deep > /opt/kept/x",
    ));
    server.push(bash("echo two >> /testbed/output/list.txt"));
    server.push(Answer::hang());
    let mut running = Running(run(home, &server.base_url(), ["Make a list"]).spawn().unwrap());
    server.wait_for_requests(3).unwrap();
    running.signal(Signal::KILL);
    running.0.wait().unwrap();
    wait_for("clean-up", || home.traces().is_empty().then_some(()));
}

fn go_on(home: &Home, server: &MockServer) -> std::process::Output {
    server.push(bash("cat /opt/kept/x >> /testbed/output/list.txt; tr '\\n' ' ' < /testbed/output/list.txt > /testbed/output/answer.txt"));
    server.push(submit());
    let mut command = home.command(["run", "--base-url", &server.base_url(), "--resume"]);
    command.arg(folder(home)).output().unwrap()
}

#[test]
fn a_killed_run_goes_on_where_it_was() {
    let Some(home) = Home::with_sandboxes() else { return };
    let server = MockServer::start().unwrap();
    killed(&home, &server);
    let folder = folder(&home);
    assert!(kinds(&folder).contains(&"saved".to_owned()));
    // Half a line, as a kill in the middle of a write leaves it.
    let path = folder.join("events.jsonl");
    let mut text = fs::read_to_string(&path).unwrap();
    text.push_str("{\"v\":1,\"at\":17");
    fs::write(&path, text).unwrap();

    let output = go_on(&home, &server);
    assert_eq!((code(&output), out(&output).as_str()), (0, "one two deep\n"), "{}", err(&output));
    check_record(&home, &output, "submitted");
    let asked = server.requests();
    // The model hears again all it had heard, and learns that its computer was restarted.
    assert_eq!(asked[3].turns(), 2);
    assert!(asked[3].mentions("Make a list") && asked[3].mentions("restarted"));
    let turns: Vec<_> = events(&folder)
        .into_iter()
        .filter(|event| event["kind"] == "replied")
        .map(|event| event["turn"].as_u64().unwrap())
        .collect();
    assert_eq!(turns, [1, 2, 3, 4]);
}

#[test]
fn without_the_saved_files_everything_is_done_again() {
    let Some(home) = Home::with_sandboxes() else { return };
    let server = MockServer::start().unwrap();
    killed(&home, &server);
    let images = home.json(["image", "list", "--json"]);
    for image in images.as_array().unwrap() {
        home.ok(["image", "rm", image["name"].as_str().unwrap()]);
    }
    let output = go_on(&home, &server);
    assert_eq!((code(&output), out(&output).as_str()), (0, "one two deep\n"), "{}", err(&output));
    check_record(&home, &output, "submitted");
}

#[test]
fn only_what_broke_off_can_go_on() {
    let Some(home) = Home::with_sandboxes() else { return };
    let server = MockServer::scripted([submit()]).unwrap();
    assert_eq!(code(&run(&home, &server.base_url(), ["Do it"]).output().unwrap()), 0);
    let done = home.command(["run", "--resume"]).arg(folder(&home)).output().unwrap();
    assert_eq!(code(&done), 2, "{}", err(&done));
    assert!(err(&done).contains("submitted"), "{}", err(&done));
    let nothing = home.command(["run", "--resume", "nowhere"]).output().unwrap();
    assert_eq!(code(&nothing), 2);
    assert!(err(&nothing).contains("events.jsonl"), "{}", err(&nothing));
}

#[test]
fn a_run_under_way_is_left_alone() {
    let Some(home) = Home::with_sandboxes() else { return };
    let server = MockServer::start().unwrap();
    server.push(bash("true"));
    server.push(Answer::hang());
    let running = Running(run(&home, &server.base_url(), ["Do it"]).spawn().unwrap());
    server.wait_for_requests(2).unwrap();
    let output = home.command(["run", "--resume"]).arg(folder(&home)).output().unwrap();
    assert_eq!(code(&output), 2, "{}", err(&output));
    assert!(err(&output).contains("another process"), "{}", err(&output));
    drop(running);
}
