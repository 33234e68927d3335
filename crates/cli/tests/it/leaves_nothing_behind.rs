//! However the program ends, what it made is gone; and while it runs, others can see it.

use std::path::PathBuf;

use rustix::process::Signal;

use crate::support::{Home, Running, groups_of, is_running, skip, unique_sleep, wait_for};

fn start(home: &Home, sleep: &[String]) -> Running {
    let mut command = home.command(["sandbox", "run", "--"]);
    let running = Running(command.args(sleep).spawn().unwrap());
    wait_for("the command", || is_running(sleep).then_some(()));
    running
}

#[test]
fn ctrl_c_destroys_the_sandbox_and_ends_with_130() {
    let Some(home) = Home::with_sandboxes() else { return };
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let sleep = unique_sleep();
        let mut running = start(&home, &sleep);
        running.signal(signal);
        assert_eq!(running.end(), code);
        assert!(!is_running(&sleep));
        assert_eq!(home.traces(), Vec::<PathBuf>::new());
    }
}

#[test]
fn a_second_ctrl_c_ends_at_once() {
    let Some(home) = Home::with_sandboxes() else { return };
    let sleep = unique_sleep();
    let mut running = start(&home, &sleep);
    // Without its spawner the sandbox can neither be destroyed nor tell that it is gone.
    let spawner = wait_for("the spawner", || spawner_of(running.0.id()));
    rustix::process::kill_process(spawner, Signal::STOP).unwrap();
    running.signal(Signal::INT);
    // However slow the machine, it cannot end by itself: the spawner is stopped.
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert!(running.0.try_wait().unwrap().is_none(), "it should wait for the sandbox's end");
    // Signals that arrive together count as one, so the second is sent until it is noticed.
    let ended = wait_for("the program's end", || {
        running.signal(Signal::INT);
        running.0.try_wait().unwrap()
    });
    assert_eq!(ended.code(), Some(130));
    rustix::process::kill_process(spawner, Signal::CONT).unwrap();
    wait_for("the command's end", || (!is_running(&sleep)).then_some(()));
    wait_for("the spawner's clean-up", || home.traces().is_empty().then_some(()));
}

pub(crate) fn spawner_of(pid: u32) -> Option<rustix::process::Pid> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok();
    // Any thread may have started it.
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    let all = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let words: String = all.chain(children).collect::<Vec<_>>().join(" ");
    words.split_whitespace().next()?.parse().ok().and_then(rustix::process::Pid::from_raw)
}

#[test]
fn a_running_sandbox_is_listed_until_it_ends() {
    let Some(home) = Home::with_sandboxes() else { return };
    let list = || home.json(["sandbox", "list", "--runtime", "native", "--json"]);
    assert_eq!(list(), serde_json::json!([]));
    let sleep = unique_sleep();
    let mut running = start(&home, &sleep);
    let listed = list();
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(listed[0]["owner_pid"], running.0.id());
    assert_eq!((&listed[0]["alive"], &listed[0]["image"]), (&true.into(), &"host".into()));
    let table = home.ok(["sandbox", "list", "--runtime", "native"]);
    assert!(
        table.contains("alive") && table.contains(listed[0]["id"].as_str().unwrap()),
        "{table}"
    );
    // Pruning leaves the living alone.
    let pruned = home.json(["sandbox", "prune", "--runtime", "native", "--json"]);
    assert_eq!(pruned, serde_json::json!([]));
    assert!(is_running(&sleep));
    running.signal(Signal::INT);
    assert_eq!(running.end(), 130);
    assert_eq!(list(), serde_json::json!([]));
}

#[test]
fn a_killed_program_takes_its_sandbox_along() {
    let Some(home) = Home::with_sandboxes() else { return };
    let sleep = unique_sleep();
    let mut running = start(&home, &sleep);
    running.0.kill().unwrap();
    running.0.wait().unwrap();
    wait_for("the command's end", || (!is_running(&sleep)).then_some(()));
    wait_for("the removal of every trace", || home.traces().is_empty().then_some(()));
    let pruned = home.json(["sandbox", "prune", "--runtime", "native", "--json"]);
    assert_eq!(pruned, serde_json::json!([]));
}

#[test]
fn what_a_killed_spawner_left_is_found_and_removed() {
    let Some(home) = Home::with_sandboxes() else { return };
    let sleep = unique_sleep();
    let mut running = start(&home, &sleep);
    let spawner = wait_for("the spawner", || spawner_of(running.0.id()));
    rustix::process::kill_process(spawner, Signal::KILL).unwrap();
    wait_for("the command's end", || (!is_running(&sleep)).then_some(()));
    assert_eq!(running.end(), 4);
    assert_eq!(home.traces().len(), 1);
    let pruned = home.json(["sandbox", "prune", "--runtime", "native", "--json"]);
    assert_eq!(pruned.as_array().unwrap().len(), 1, "{pruned}");
    assert_eq!(pruned[0]["alive"], false);
    assert_eq!(home.traces(), Vec::<PathBuf>::new());
}

#[test]
fn control_groups_are_found_even_if_the_state_directory_is_gone() {
    let Some(home) = Home::with_sandboxes() else { return };
    let sleep = unique_sleep();
    let mut running = start(&home, &sleep);
    let process = running.0.id();
    let spawner = wait_for("the spawner", || spawner_of(process));
    rustix::process::kill_process(spawner, Signal::KILL).unwrap();
    assert_eq!(running.end(), 4);
    drop(home);
    let groups = groups_of(process);
    if groups.is_empty() {
        return skip("cgroup", "this user has no control groups");
    }
    let Some(other) = Home::with_sandboxes() else { return };
    other.ok(["sandbox", "run", "--", "true"]);
    assert_eq!(groups_of(process), groups, "their owner may not be done with such young groups");
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(60);
    for group in &groups {
        std::fs::File::open(group).unwrap().set_modified(old).unwrap();
    }
    other.ok(["sandbox", "run", "--", "true"]);
    assert_eq!(groups_of(process), Vec::<PathBuf>::new());
}

#[test]
fn nothing_is_left_after_ordinary_use() {
    let Some(home) = Home::with_sandboxes() else { return };
    home.run([
        "sandbox",
        "run",
        "--",
        "bash",
        "-c",
        "sleep 1000 & dd if=/dev/zero of=f bs=1M count=3",
    ]);
    home.run(["sandbox", "run", "--timeout", "0.2", "--", "sleep", "100"]);
    home.run(["sandbox", "run", "--image", "nope", "--", "true"]);
    assert_eq!(home.traces(), Vec::<PathBuf>::new());
}
