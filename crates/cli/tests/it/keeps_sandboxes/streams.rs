//! The streams and the exit code of a command in a named sandbox.

use std::{
    io::{Read, Write},
    process::Stdio,
    time::Instant,
};

use super::Kept;
use crate::support::{Running, code, err, out, refusal};

#[test]
fn exit_codes_and_outputs_pass_through() {
    let Some(kept) = Kept::with_box() else { return };
    for wanted in [0, 3, 255] {
        let output = kept.exec(&format!("exit {wanted}"));
        assert_eq!((code(&output), err(&output).as_str()), (wanted, ""));
    }
    assert_eq!(code(&kept.exec("kill -SEGV $$")), 128 + 11);
    let absent = kept.run(["sandbox", "exec", "box", "--", "no-such-program"]);
    assert_eq!(code(&absent), 127);
    assert!(err(&absent).contains("no-such-program"), "{}", err(&absent));
    let apart = kept.exec(r"printf 'a\000b\377'; printf 'no newline' >&2");
    assert_eq!(apart.stdout, b"a\0b\xff");
    assert_eq!(err(&apart), "no newline");
    let slow = kept.run(["sandbox", "exec", "box", "--timeout", "0.3", "--", "sleep", "100"]);
    assert_eq!(code(&slow), 124);
    assert!(err(&slow).contains("--timeout"), "{}", err(&slow));
    assert_eq!(kept.exec_ok("echo still here"), "still here\n");
}

#[test]
fn input_passes_through_exactly() {
    let Some(kept) = Kept::with_box() else { return };
    let sent: Vec<u8> = (0..3_000_000u32).map(|i| ((i * 31) >> 3) as u8).collect();
    let pass = |program: &[&str]| {
        let mut command = kept.command(["sandbox", "exec", "box", "--"]);
        let mut child = command.args(program).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let sent = sent.clone();
        // A program that does not read it closes the pipe.
        let writer = std::thread::spawn(move || drop(stdin.write_all(&sent)));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        output
    };
    let output = pass(&["cat"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(output.stdout == sent, "{} of {} bytes", output.stdout.len(), sent.len());
    let output = pass(&["head", "-c", "5"]);
    assert_eq!((code(&output), output.stdout.as_slice()), (0, &sent[..5]));
    assert_eq!(code(&pass(&["true"])), 0);
    assert_eq!(kept.ok(["sandbox", "exec", "box", "--", "cat"]), "", "no input is an empty input");
}

#[test]
fn output_arrives_while_the_command_runs() {
    let Some(kept) = Kept::with_box() else { return };
    let mut command = kept.command([
        "sandbox",
        "exec",
        "box",
        "--",
        "sh",
        "-c",
        "echo first; read line; echo $line",
    ]);
    let mut running = Running(command.stdin(Stdio::piped()).spawn().unwrap());
    let mut stdout = running.0.stdout.take().unwrap();
    let mut first = [0; 6];
    stdout.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"first\n");
    let mut stdin = running.0.stdin.take().unwrap();
    stdin.write_all(b"second\n").unwrap();
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "second\n");
    assert_eq!(running.end(), 0);
}

#[test]
fn a_slow_reader_keeps_nobody_waiting_and_takes_no_memory() {
    let Some(kept) = Kept::with_box() else { return };
    let owner = kept.owner();
    let resident = || {
        let status = std::fs::read_to_string(format!("/proc/{owner}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
    };
    let before = resident();
    let mut command = kept.command(["sandbox", "exec", "box", "--", "cat", "/dev/zero"]);
    let _unread = Running(command.spawn().unwrap());
    let begun = Instant::now();
    for _ in 0..10 {
        assert_eq!(kept.exec_ok("echo hi"), "hi\n");
    }
    assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
    let grown = resident().saturating_sub(before);
    assert!(grown < 32 << 10, "{grown} KiB");
    assert_eq!(kept.list()[0]["state"], "busy");
}

#[test]
fn a_closed_output_ends_the_command() {
    let Some(kept) = Kept::with_box() else { return };
    let mut command = kept.command(["sandbox", "exec", "box", "--", "yes"]);
    let mut running = Running(command.spawn().unwrap());
    let mut some = [0; 4];
    running.0.stdout.take().unwrap().read_exact(&mut some).unwrap();
    assert_eq!(running.end(), 128 + 13);
    assert_eq!(kept.exec_ok("grep -qsx yes /proc/*/comm || echo none"), "none\n");
}

#[test]
fn refused_connections_are_explained_once() {
    let Some(kept) = Kept::new() else { return };
    kept.ok(["sandbox", "create", "box", "--network", "allow=good.example"]);
    let connect = "exec 3<>/dev/tcp/127.0.0.1/3128; \
                   printf 'CONNECT bad.example:443 HTTP/1.1\\r\\n\\r\\n' >&3; head -1 <&3 >&2";
    let script = format!("for i in 1 2; do ({connect}); done");
    let output = kept.run(["sandbox", "exec", "box", "--", "bash", "-c", &script]);
    let text = err(&output);
    assert!(text.contains("2 to bad.example:443"), "{text}");
    let remedy = "--network allow=good.example,bad.example when you create the sandbox";
    assert!(text.contains(remedy), "{text}");
    assert_eq!(err(&kept.exec("true")), "", "not again");
}

#[test]
fn a_command_is_reported_as_one_object() {
    let Some(kept) = Kept::with_box() else { return };
    let script = "echo out; echo err >&2; exit 3";
    for shell in [&[][..], &["--shell"]] {
        let args = [&["sandbox", "exec", "box", "--json"], shell, &["--"]].concat();
        let mut command = kept.command(args);
        let command = match shell.is_empty() {
            true => command.args(["sh", "-c", script]),
            false => command.arg("(echo out; echo err >&2; exit 3)"),
        };
        let output = command.output().unwrap();
        assert_eq!(code(&output), 3, "{}", err(&output));
        let report: serde_json::Value = serde_json::from_str(&out(&output)).unwrap();
        assert_eq!((&report["exit_code"], &report["cause"]), (&3.into(), &serde_json::Value::Null));
        assert_eq!(
            (&report["stdout"]["text"], &report["stderr"]["text"]),
            (&"out\n".into(), &"err\n".into())
        );
        assert!(report["duration_ms"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn a_shell_opens_in_a_named_sandbox() {
    let Some(kept) = Kept::with_box() else { return };
    kept.exec_ok("echo kept > note");
    let mut command = kept.command(["sandbox", "shell", "box"]);
    let mut running = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
    let mut input = running.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, b"cat note; echo more >> note; exit 7\n").unwrap();
    drop(input);
    let output = running.wait_with_output().unwrap();
    assert_eq!((code(&output), out(&output).as_str()), (7, "kept\n"), "{}", err(&output));
    assert_eq!(kept.exec_ok("cat note"), "kept\nmore\n");
    let line = refusal(&kept.run(["sandbox", "shell", "box", "--memory", "1G"]), 2);
    assert!(line.contains("--memory"), "{line}");
}
