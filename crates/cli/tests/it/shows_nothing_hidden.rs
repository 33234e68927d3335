//! What models, commands, servers and files say reaches neither a terminal nor a file of results with characters that steer
//! the terminal, or hide or reorder text. JSON is escaped and parses to the same text.

use std::{
    fs,
    io::{Read, Write},
    os::unix::net::UnixListener,
    path::Path,
    process::Output,
    thread,
};

use serde_json::{Value, json};
use testkit::{Answer, MockServer, bash, say, submit};
use trajectory::is_hidden;

use crate::{
    episodes::{events, folder, ran},
    support::{Home, code, err, write},
};

/// C1 and DEL, bidirectional controls, separators, marks, zero-width characters, a byte order mark and a tag.
const HOSTILE: &str = "\u{9b}2J\u{85}\u{7f}\u{202e}\u{2066}\u{2069}\u{200e}\u{61c}\u{2028}\u{2029}\u{200b}\u{feff}\u{e0041}";

/// The same for `printf`.
fn octal() -> String {
    HOSTILE.bytes().map(|byte| format!("\\{byte:03o}")).collect()
}

fn check(what: &str, text: &str) {
    let found = text.chars().find(|c| *c != '\n' && *c != '\t' && is_hidden(*c));
    assert_eq!(found, None, "{what}: {text:?}");
}

/// Checks both streams; returns standard output, if it is JSON.
fn checked(what: &str, output: &Output) -> Value {
    let out = String::from_utf8(output.stdout.clone()).unwrap();
    check(what, &out);
    check(what, &err(output));
    serde_json::from_str(&out).unwrap_or_default()
}

/// Checks every file of a directory that is text for people or programs.
fn check_files(dir: &Path) -> usize {
    let mut checked = 0;
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        let name = path.to_string_lossy().into_owned();
        if entry.file_type().unwrap().is_dir() {
            // What the model wrote is kept as it is.
            checked += if path.ends_with("files") { 0 } else { check_files(&path) };
        } else if name.ends_with(".json") || name.ends_with(".jsonl") {
            check(&name, &fs::read_to_string(&path).unwrap());
            checked += 1;
        }
    }
    checked
}

#[test]
fn of_commands_and_their_files() {
    let Some(home) = Home::with_sandboxes() else { return };
    let text = octal();
    let script = format!(
        "printf '{text}'; printf 'e{text}' >&2; mkdir o; cd o; mkfifo \"$(printf 'pipe{text}')\" \
         \"$(printf 'odd\\377')\"; ln -s /etc \"$(printf 'link{text}')\"; echo 1 > a"
    );
    let run = |more: &[&str], to: &str| {
        let copy = format!("o:{to}");
        let args = ["sandbox", "run", "--copy-out", &copy].into_iter().chain(more.iter().copied());
        home.run(args.chain(["--", "bash", "-c", &script]))
    };
    let output = run(&["--json"], "one");
    assert_eq!(code(&output), 0, "{}", err(&output));
    let report = checked("--json", &output);
    assert_eq!(report["stdout"]["text"], HOSTILE, "{report}");
    let skipped = report["copied"]["out"][0]["skipped"].as_array().unwrap();
    let mut names: Vec<_> = skipped.iter().map(|entry| entry["path"].as_str().unwrap()).collect();
    names.sort();
    let expected = [&format!("link{HOSTILE}"), "odd\u{fffd}", &format!("pipe{HOSTILE}")];
    assert_eq!(names, expected);
    // The command's own output passes as it is; what we say about its files does not.
    let said = err(&run(&[], "two"));
    let ours: Vec<_> =
        said.lines().filter_map(|line| line.split_once("llm-in-sandbox: ")).collect();
    assert_eq!(ours.len(), 3, "{said}");
    ours.iter().for_each(|(_, line)| check("notes", line));
}

#[test]
fn of_models_and_servers() {
    let Some(home) = Home::with_sandboxes() else { return };
    let script = format!("printf '{}'; echo -n 'x{HOSTILE}' > /testbed/output/answer.txt", octal());
    let server = MockServer::scripted([bash(&script), submit()]).unwrap();
    let output = ran(&home, &server, [&format!("Do it{HOSTILE}"), "--json"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert_eq!(checked("run --json", &output)["answer"], format!("x{HOSTILE}"));
    let dir = folder(&home);
    assert_eq!(check_files(&dir), 3);
    assert_eq!(events(&dir)[0]["problem_statement"], format!("Do it{HOSTILE}"));
    let dir = dir.to_str().unwrap();
    let replayed = checked("replay --json", &home.run(["replay", dir, "--json"]));
    assert!(replayed.to_string().contains(HOSTILE));
    checked("replay", &home.run(["replay", dir]));
    for answer in [
        Answer::error(400, HOSTILE),
        Answer::status(500, HOSTILE),
        Answer::events(format!("data: {{\"error\": {{\"message\": {:?}}}}}\n\n", HOSTILE)),
    ] {
        for form in ["--json", "-vv"] {
            let server = MockServer::scripted([answer.clone()]).unwrap();
            let output = ran(&home, &server, ["Do it", form, "--max-retries", "0"]);
            assert_ne!(code(&output), 0);
            checked("a refusal", &output);
        }
    }
}

#[test]
fn of_problems_and_their_results() {
    let home = Home::new();
    let row = |id: &str| {
        json!({
            "id": id, "domain": "math", "problem_statement": format!("1 + 1?{HOSTILE}"),
            "ground_truth": "2", "input_files": {},
        })
    };
    // The second is refused for its id, which is quoted.
    write(&home.file("rows.jsonl"), format!("{}\n{}\n", row("a"), row(HOSTILE)));
    let server = MockServer::answering(|_| say(format!("\\boxed{{3}}{HOSTILE}"))).unwrap();
    let url = server.base_url();
    let args = ["benchmark", "math", "--data", "rows.jsonl", "--mode", "llm", "--model", "m"];
    let bench = |to: &str, more: &[&str]| {
        let server = ["--base-url", &url, "--output", to];
        home.command(args.iter().chain(&server).chain(more))
            .env("HOME", home.file("nobody"))
            .output()
            .unwrap()
    };
    let output = bench("out", &["--json", "--json-progress"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    checked("benchmark --json", &output);
    checked("benchmark", &bench("two", &[]));
    assert!(check_files(&home.file("out")) >= 3);
    for more in [&["--json"][..], &[]] {
        checked("report", &home.run(["report", "out"].iter().chain(more)));
        checked("replay", &home.run(["replay", "out"].iter().chain(more)));
    }
    for name in ["report.json", "report.md", "report.html"] {
        let text = fs::read_to_string(home.file("out/report").join(name)).unwrap();
        assert!(text.contains("202e"), "{name} does not have the text");
        check(name, &text);
    }
    let line = json!({ "id": HOSTILE, "gold": "1", "pred": "1" });
    write(&home.file("grades.jsonl"), line.to_string());
    let graded = checked("grade", &home.run(["grade", "math", "--input", "grades.jsonl"]));
    assert_eq!(graded["id"], HOSTILE);
}

#[test]
fn of_a_docker_daemon() {
    let home = Home::new();
    let socket = home.file("daemon.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            // The first requests of each command are answered.
            let version = json!({
                "Version": HOSTILE, "ApiVersion": "1.41", "MinAPIVersion": "1.12", "message": HOSTILE,
            });
            let status = if number % 3 < 2 { "200 OK" } else { "500 No" };
            let body = version.to_string();
            let head = "content-type: application/json\r\nconnection: close";
            let length = body.len();
            let _ = write!(
                stream,
                "HTTP/1.1 {status}\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}"
            );
        }
    });
    let ask = |args: &[&str]| {
        let host = format!("unix://{}", socket.display());
        home.command(args).env("DOCKER_HOST", host).output().unwrap()
    };
    let mut shown = String::new();
    for args in
        [&["doctor"][..], &["doctor", "--json"], &["sandbox", "list", "--runtime", "docker"]]
    {
        for _ in 0..3 {
            let output = ask(args);
            checked("a daemon", &output);
            shown += &String::from_utf8(output.stdout).unwrap();
        }
    }
    assert!(shown.contains("202e"), "the daemon's version was never shown: {shown}");
}
