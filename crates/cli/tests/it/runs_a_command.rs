//! A command in a fresh sandbox: its streams, its code, its surroundings.

use std::{
    io::{Read, Write},
    process::{Command, Output, Stdio},
    time::Instant,
};

use crate::support::{Home, Running, code, err, out, program};

/// Runs the README's command that starts so, with our program in place of its name.
fn from_readme(home: &Home, name: &str, start: &str, fill: impl Fn(&str) -> String) -> Output {
    let readme = include_str!("../../../../README.md");
    let from = readme.find(&format!("\n{name} {start}")).unwrap() + name.len() + 1;
    let lines: Vec<&str> = readme[from..].split_inclusive('\n').collect();
    let count = lines.iter().take_while(|line| line.ends_with("\\\n")).count() + 1;
    let script = format!("exec {} {}", program().display(), fill(&lines[..count].concat()));
    Command::new("bash")
        .args(["-c", &script])
        .env("LLM_IN_SANDBOX_HOME", home.state())
        .current_dir(home.file(""))
        .output()
        .unwrap()
}

#[test]
fn the_readmes_sandbox_greets() {
    let Some(home) = Home::with_sandboxes() else { return };
    let output = from_readme(&home, "llm-in-sandbox", "sandbox run -- bash", str::to_owned);
    assert_eq!((code(&output), out(&output).as_str()), (0, "hello from sandbox\n"));
    assert_eq!(err(&output), "");
}

#[test]
fn exit_codes_pass_through() {
    let Some(home) = Home::with_sandboxes() else { return };
    for wanted in [0, 1, 2, 3, 77, 255] {
        let output = home.run(["sandbox", "run", "--", "sh", "-c", &format!("exit {wanted}")]);
        assert_eq!(code(&output), wanted);
        assert_eq!(err(&output), "", "a command's own code needs no words of ours");
    }
    let killed = home.run(["sandbox", "run", "--", "bash", "-c", "kill -SEGV $$"]);
    assert_eq!(code(&killed), 128 + 11);
    let absent = home.run(["sandbox", "run", "--", "no-such-program"]);
    assert_eq!(code(&absent), 127);
    assert!(err(&absent).contains("no-such-program"), "{}", err(&absent));
}

#[test]
fn outputs_stay_apart_and_exact() {
    let Some(home) = Home::with_sandboxes() else { return };
    let script = r"printf 'a\0b\377'; printf 'no newline' >&2";
    let output = home.run(["sandbox", "run", "--", "bash", "-c", script]);
    assert_eq!(output.stdout, b"a\0b\xff");
    assert_eq!(err(&output), "no newline");
}

#[test]
fn input_passes_through() {
    let Some(home) = Home::with_sandboxes() else { return };
    let sent: Vec<u8> = (0..3_000_000u32).map(|i| ((i * 31) >> 3) as u8).collect();
    let mut child = home.command(["sandbox", "run", "--", "cat"]);
    let mut child = child.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn({
        let sent = sent.clone();
        move || stdin.write_all(&sent).unwrap()
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(output.stdout == sent, "{} of {} bytes", output.stdout.len(), sent.len());
}

#[test]
fn input_that_never_ends_keeps_nobody_waiting() {
    let Some(home) = Home::with_sandboxes() else { return };
    let mut command = home.command(["sandbox", "run", "--", "echo", "done"]);
    let mut running = Running(command.stdin(Stdio::piped()).spawn().unwrap());
    let _held_open = running.0.stdin.take().unwrap();
    assert_eq!(running.end(), 0);
}

#[test]
fn output_comes_as_it_is_written() {
    let Some(home) = Home::with_sandboxes() else { return };
    let script = "printf partial; read -r go; echo rest";
    let mut command = home.command(["sandbox", "run", "--", "bash", "-c", script]);
    let mut running = Running(command.stdin(Stdio::piped()).spawn().unwrap());
    let (mut stdin, mut stdout) =
        (running.0.stdin.take().unwrap(), running.0.stdout.take().unwrap());
    // Blocks for ever, and is killed by the test runner, if anything on the way waits for a line.
    let mut partial = [0; 7];
    stdout.read_exact(&mut partial).unwrap();
    assert_eq!(&partial, b"partial");
    stdin.write_all(b"go\n").unwrap();
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "rest\n");
    assert_eq!(running.end(), 0);
}

#[test]
fn large_output_arrives_whole_and_fast() {
    let Some(home) = Home::with_sandboxes() else { return };
    let begun = Instant::now();
    let mut command =
        home.command(["sandbox", "run", "--", "head", "-c", "200000000", "/dev/zero"]);
    let mut running = Running(command.spawn().unwrap());
    let mut stdout = running.0.stdout.take().unwrap();
    let mut buffer = vec![0; 1 << 16];
    let mut total = 0;
    loop {
        match stdout.read(&mut buffer).unwrap() {
            0 => break,
            n => total += n,
        }
    }
    assert_eq!((running.end(), total), (0, 200_000_000));
    // Far above what a slow machine needs, far below what a byte at a time would.
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
}

#[test]
fn a_slow_reader_gets_everything() {
    let Some(home) = Home::with_sandboxes() else { return };
    let script = format!("{} sandbox run -- seq 300000 | (sleep 0.7; wc -l)", program().display());
    let output = Command::new("bash")
        .args(["-c", &script])
        .env("LLM_IN_SANDBOX_HOME", home.state())
        .output()
        .unwrap();
    assert_eq!(out(&output).trim(), "300000", "{}", err(&output));
}

#[test]
fn a_reader_that_leaves_ends_the_command() {
    let Some(home) = Home::with_sandboxes() else { return };
    let mut command = home.command(["sandbox", "run", "--", "yes"]);
    let mut running = Running(command.spawn().unwrap());
    let mut stdout = running.0.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 2]).unwrap();
    drop(stdout);
    assert_eq!(running.end(), 128 + 13);
}

#[test]
fn the_surroundings_are_those_asked_for() {
    let Some(home) = Home::with_sandboxes() else { return };
    let mut command = home.command([
        "sandbox",
        "run",
        "--env",
        "GIVEN=a=b c",
        "--env",
        "TAKEN",
        "--workdir",
        "/made/here",
        "--",
        "bash",
        "-c",
        "echo \"$GIVEN|$TAKEN|${SECRET-unset}|$PWD\"",
    ]);
    let output = command.env("TAKEN", "from outside").env("SECRET", "s").output().unwrap();
    assert_eq!(out(&output), "a=b c|from outside|unset|/made/here\n", "{}", err(&output));
}

#[test]
fn without_a_network_there_is_only_loopback() {
    let Some(home) = Home::with_sandboxes() else { return };
    let devices = home.ok(["sandbox", "run", "--", "cat", "/proc/net/dev"]);
    let names: Vec<_> = devices
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, _)| name.trim())
        .collect();
    assert_eq!(names, ["lo"]);
}

#[test]
fn json_holds_the_result_and_the_output() {
    let Some(home) = Home::with_sandboxes() else { return };
    let script = r"echo out; printf 'x\377' >&2; exit 3";
    let output = home.run(["sandbox", "run", "--json", "--", "bash", "-c", script]);
    assert_eq!((code(&output), err(&output).as_str()), (3, ""));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["status"]["exited"], 3);
    assert_eq!(report["exit_code"], 3);
    assert_eq!(report["cause"], serde_json::Value::Null);
    assert_eq!(report["stdout"]["text"], "out\n");
    assert_eq!(report["stderr"]["text"], "x\u{fffd}");
    assert_eq!(report["stderr"]["bytes"], 2);
    assert!(report["duration_ms"].as_f64().unwrap() > 0.0);
    assert_eq!(report["protection"]["runtime"], "native");
}

#[test]
fn strict_runs_only_what_is_fully_protected() {
    let Some(home) = Home::with_sandboxes() else { return };
    let report = home.json(["sandbox", "run", "--json", "--", "true"]);
    let weak = report["protection"]["layers"].as_array().unwrap().iter().find(|layer| {
        let fine = layer["name"] == "disk limit" && layer["state"] == "partial";
        layer["state"] != "enforced" && !fine
    });
    let output = home.run(["sandbox", "run", "--strict", "--", "echo", "ran"]);
    match weak {
        None => {
            assert_eq!((code(&output), out(&output).as_str()), (0, "ran\n"), "{}", err(&output))
        }
        Some(layer) => {
            let line = crate::support::refusal(&output, 4);
            assert!(line.contains(layer["name"].as_str().unwrap()), "{line}");
        }
    }
}
