//! Commands that run into their limits: the code and the line that tell so.

use std::time::{Duration, Instant};

use crate::support::{Home, code, err, is_running, out, unique_sleep};

#[test]
fn time_ends_with_124_and_takes_everything_along() {
    let Some(home) = Home::with_sandboxes() else { return };
    let [sleep, long] = unique_sleep();
    let script = format!("setsid {sleep} {long} & echo before; {sleep} {long}");
    let begun = Instant::now();
    let output = home.run(["sandbox", "run", "--timeout", "0.5", "--", "bash", "-c", &script]);
    assert_eq!((code(&output), out(&output).as_str()), (124, "before\n"));
    assert_eq!(
        err(&output),
        "llm-in-sandbox: out of time: the sandbox reached its limit of 0.5s; allow more with --timeout\n"
    );
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert!(!is_running(&[sleep, long]));
}

#[test]
fn a_command_may_end_with_124_by_itself() {
    let Some(home) = Home::with_sandboxes() else { return };
    let output = home.run(["sandbox", "run", "--", "sh", "-c", "exit 124"]);
    assert_eq!((code(&output), err(&output).as_str()), (124, ""));
}

#[test]
fn memory_ends_with_137_and_a_line() {
    let Some(home) = Home::with_sandboxes() else { return };
    if !home.enforces("memory limit") {
        return;
    }
    let script = "x=a; while :; do x=$x$x; done";
    let output = home.run(["sandbox", "run", "--memory", "64M", "--", "bash", "-c", script]);
    assert_eq!(code(&output), 137, "{}", err(&output));
    let line = "llm-in-sandbox: out of memory: the sandbox reached its limit of 64M; allow more with --memory";
    assert!(err(&output).lines().any(|found| found == line), "{}", err(&output));
}

#[test]
fn memory_is_reported_as_data() {
    let Some(home) = Home::with_sandboxes() else { return };
    if !home.enforces("memory limit") {
        return;
    }
    let script = "x=a; while :; do x=$x$x; done";
    let output =
        home.run(["sandbox", "run", "--json", "--memory", "64M", "--", "bash", "-c", script]);
    assert_eq!(code(&output), 137);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["cause"], "oom");
}

#[test]
fn processes_are_counted_and_told() {
    let Some(home) = Home::with_sandboxes() else { return };
    if !home.enforces("process limit") {
        return;
    }
    let script = "for i in {1..30}; do sleep 2 & done 2>/dev/null; exit 9";
    let output = home.run(["sandbox", "run", "--pids", "20", "--", "bash", "-c", script]);
    let text = err(&output);
    assert!(text.contains("out of processes: the sandbox reached its limit of 20"), "{text}");
    assert!(text.contains("--pids"), "{text}");
    assert_ne!(code(&output), 0);
}

#[test]
fn disk_space_is_bounded_and_told() {
    let Some(home) = Home::with_sandboxes() else { return };
    let script = "while :; do n=$((n+1)); head -c 1000000 /dev/zero > f$n; done";
    let output = home.run(["sandbox", "run", "--disk", "10M", "--", "bash", "-c", script]);
    let text = err(&output);
    assert!(text.contains("out of disk space: the sandbox reached its limit of 10M"), "{text}");
    assert!(text.contains("--disk"), "{text}");
    assert_ne!(code(&output), 0);
}

#[test]
fn lifted_limits_do_not_bind() {
    let Some(home) = Home::with_sandboxes() else { return };
    let output = home.run([
        "sandbox",
        "run",
        "--memory",
        "none",
        "--cpus",
        "none",
        "--pids",
        "none",
        "--disk",
        "none",
        "--timeout",
        "none",
        "--",
        "echo",
        "free",
    ]);
    assert_eq!((code(&output), out(&output).as_str()), (0, "free\n"), "{}", err(&output));
}
