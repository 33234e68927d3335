//! The life of a named sandbox: created, used by several commands, forked, saved, removed.

use std::path::PathBuf;

use serde_json::json;

use super::Kept;
use crate::support::{code, err, groups_of, out, wait_for};

#[test]
fn files_and_processes_last_from_command_to_command() {
    let Some(kept) = Kept::new() else { return };
    let created = kept.json(["sandbox", "create", "box", "--env", "WHO=me", "--json"]);
    assert_eq!((&created["name"], &created["image"]), (&json!("box"), &json!("host")));
    assert_eq!(created["idle_timeout_seconds"], 1800.0);
    assert_eq!(created["protection"]["runtime"], "native");
    kept.exec_ok("echo $WHO > note; sleep 1000 & echo $! > pid");
    assert_eq!(kept.exec_ok("cat note; kill -0 $(cat pid) && pwd"), "me\n/testbed\n");
    assert_eq!(kept.ok(["sandbox", "exec", "box", "--cwd", "/usr", "--", "pwd"]), "/usr\n");
    let with_env = kept.ok(["sandbox", "exec", "box", "--env", "A=b c", "--", "printenv", "A"]);
    assert_eq!(with_env, "b c\n");

    let listed = kept.list();
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(listed[0]["name"], "box");
    assert_eq!(listed[0]["state"], "idle");
    assert_eq!(listed[0]["id"], created["id"]);
    assert_eq!(listed[0]["owner_pid"], created["owner_pid"]);
    assert_eq!(listed[0]["idle_timeout_seconds"], 1800.0);
    let idle = listed[0]["idle_seconds"].as_f64().unwrap();
    assert!(idle < 60.0, "{idle}");
    let disk = listed[0]["disk_bytes"].as_u64().unwrap();
    assert!((1..1 << 20).contains(&disk), "{disk}");
    if kept.enforces("memory limit") {
        let memory = listed[0]["memory_bytes"].as_u64().unwrap();
        assert!((1..1 << 30).contains(&memory), "{memory}");
    }
    let table = kept.ok(["sandbox", "list", "--runtime", "native"]);
    let row = table.lines().nth(1).unwrap();
    assert!(row.starts_with("box ") && row.contains(" idle "), "{table}");

    let owner = kept.owner();
    assert_eq!(kept.ok(["sandbox", "rm", "box"]), "box\n");
    assert_eq!(kept.names(), Vec::<String>::new());
    kept.is_clean(owner);
    assert_eq!(groups_of(owner), Vec::<PathBuf>::new());
}

#[test]
fn a_fork_has_the_files_but_not_the_processes() {
    let Some(kept) = Kept::with_box() else { return };
    kept.exec_ok("echo one > f; sleep 1000 & echo $! > pid");
    assert_eq!(kept.ok(["sandbox", "fork", "box", "other"]), "other\n");
    kept.exec_ok("echo two > f");
    let other = ["sandbox", "exec", "other", "--", "sh", "-c", "cat f; kill -0 $(cat pid)"];
    let output = kept.run(other);
    assert_eq!((out(&output).as_str(), code(&output)), ("one\n", 1));
    kept.ok(["sandbox", "exec", "other", "--", "sh", "-c", "echo three > f"]);
    assert_eq!(kept.exec_ok("cat f"), "two\n");
    assert_eq!(kept.names().len(), 2);
    assert_eq!(kept.ok(["sandbox", "rm", "box", "other"]), "box\nother\n");
}

#[test]
fn a_saved_sandbox_is_an_image() {
    let Some(kept) = Kept::with_box() else { return };
    kept.exec_ok("mkdir -p /opt/tool && echo saved > /opt/tool/f");
    assert_eq!(kept.ok(["sandbox", "save", "box", "mine:1"]), "mine:1\n");
    kept.ok(["sandbox", "rm", "box"]);
    let read = ["sandbox", "run", "--image", "mine:1", "--", "cat", "/opt/tool/f"];
    assert_eq!(kept.ok(read), "saved\n");
    assert_eq!(kept.ok(["sandbox", "create", "box", "--image", "mine:1"]), "box\n");
    assert_eq!(kept.exec_ok("cat /opt/tool/f"), "saved\n");
}

#[test]
fn the_shell_keeps_its_state() {
    let Some(kept) = Kept::with_box() else { return };
    let shell = |script: &str| kept.run(["sandbox", "exec", "box", "--shell", "--", script]);
    assert_eq!(code(&shell("cd /usr; A=1; f() { echo $A-$PWD; }")), 0);
    let output = shell("f; echo oops >&2; (exit 7)");
    assert_eq!((out(&output).as_str(), code(&output)), ("1-/usr\n", 7));
    assert_eq!(err(&output), "oops\n");
    let slow = kept.run(["sandbox", "exec", "box", "--shell", "--timeout", "0.3", "--", "sleep 9"]);
    assert_eq!(code(&slow), 124);
    assert_eq!(out(&shell("f")), "1-/usr\n");
    assert_eq!(kept.exec_ok("pwd"), "/testbed\n", "a fresh process by default");
}

#[test]
fn eight_first_commands_start_one_supervisor_and_run_at_once() {
    let Some(kept) = Kept::new() else { return };
    let names: Vec<_> = (0..8).map(|i| format!("box-{i}")).collect();
    std::thread::scope(|scope| {
        for name in &names {
            scope.spawn(|| kept.ok(["sandbox", "create", name, "--pids", "64"]));
        }
    });
    assert_eq!(kept.names(), names);
    let owner = kept.owner();
    assert!(kept.list().iter().all(|found| found["owner_pid"] == owner));
    // Each waits for all: they run at once, or never end.
    let meet = |name: &str| {
        let id = std::thread::current().id();
        let script = format!(
            "touch \"here-{id:?}\"; for i in $(seq 500); do [ $(ls -d here-* | wc -l) = 8 ] && exit 5; sleep 0.05; done"
        );
        code(&kept.run(["sandbox", "exec", name, "--", "sh", "-c", &script]))
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..8).map(|_| scope.spawn(|| meet("box-0"))).collect();
        for one in all {
            assert_eq!(one.join().unwrap(), 5);
        }
    });
    let removed = kept.ok(["sandbox", "rm", "--all"]);
    assert_eq!(removed.lines().collect::<Vec<_>>(), names);
    wait_for("their end", || kept.names().is_empty().then_some(()));
}
