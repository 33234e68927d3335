//! A recorded episode can be looked at and carried out once more.

use serde_json::Value;
use testkit::{MockServer, bash, say, submit};

use crate::{
    episodes::{folder, run},
    support::{Home, code, err, out, shared, skip},
};

fn recorded(home: &Home, command: &str) {
    let server = MockServer::scripted([bash(command), submit(), submit()]).unwrap();
    let output = run(home, &server.base_url(), ["Do it"]).output().unwrap();
    assert_eq!(code(&output), 0, "{}", err(&output));
}

#[test]
fn the_same_actions_come_out_the_same() {
    let Some(home) = Home::with_sandboxes() else { return };
    recorded(&home, "cd /tmp; echo hello; ls -d /testbed; false");
    let record = folder(&home);
    for path in [record.clone(), record.join("trajectory.json"), record.join("events.jsonl")] {
        let shown = home.command(["replay"]).arg(&path).output().unwrap();
        assert_eq!(code(&shown), 0, "{}", err(&shown));
        assert!(out(&shown).contains("$ cd /tmp; echo hello"), "{}", out(&shown));
        let again = home.command(["replay", "--sandbox"]).arg(&path).output().unwrap();
        assert_eq!(code(&again), 0, "{}{}", out(&again), err(&again));
        assert!(out(&again).contains("0 of 3 results differ"), "{}", out(&again));
    }
}

#[test]
fn long_outputs_and_reminders_come_out_the_same() {
    let Some(home) = Home::with_sandboxes() else { return };
    let script =
        [say("Hm."), bash("sleep 0.5; seq 20000"), bash("ls /tmp/outputs"), submit(), submit()];
    let server = MockServer::scripted(script).unwrap();
    let args = ["Do it", "--command-timeout", "200"];
    assert_eq!(code(&run(&home, &server.base_url(), args).output().unwrap()), 0);
    let again = home.command(["replay", "--sandbox"]).arg(folder(&home)).output().unwrap();
    assert_eq!(code(&again), 0, "{}{}", out(&again), err(&again));
    assert!(out(&again).contains("0 of 4 results"), "{}", out(&again));
}

#[test]
fn another_exit_code_is_a_difference() {
    let Some(home) = Home::with_sandboxes() else { return };
    recorded(&home, "test ! -e /testbed/input/x");
    crate::support::write(&home.file("in/x"), "");
    let folder = folder(&home);
    let args = ["replay", "--sandbox", "--input", "in"];
    let again = home.command(args).arg(&folder).output().unwrap();
    assert_eq!(code(&again), 1, "{}", err(&again));
    assert!(out(&again).contains("now: exit code 1"), "{}", out(&again));
    let nowhere = ["replay", "--sandbox", "--input", "nowhere"];
    let refused = home.command(nowhere).arg(&folder).output().unwrap();
    assert!(crate::support::refusal(&refused, 2).contains("--input"));
}

#[test]
fn what_comes_out_differently_is_shown() {
    let Some(home) = Home::with_sandboxes() else { return };
    recorded(&home, "echo same; cat /proc/sys/kernel/random/uuid");
    let again =
        home.command(["replay", "--sandbox", "--json"]).arg(folder(&home)).output().unwrap();
    assert_eq!(code(&again), 1, "{}", err(&again));
    let steps: Value = serde_json::from_str(&out(&again)).unwrap();
    assert_eq!((&steps[0]["same"], &steps[1]["same"]), (&Value::Bool(false), &Value::Bool(true)));
    let again = home.command(["replay", "--sandbox"]).arg(folder(&home)).output().unwrap();
    assert!(out(&again).contains("DIFFERS"), "{}", out(&again));
    assert!(!out(&again).contains(": same"), "{}", out(&again));
    assert_eq!(home.traces().len(), 0);
}

#[test]
fn records_of_the_first_implementation_are_shown() {
    let dir = shared("data/trajectories");
    let Ok(entries) = std::fs::read_dir(&dir) else {
        return skip("shared", "the recorded episodes of ../shared are not here");
    };
    let home = Home::new();
    let mut seen = 0;
    for path in entries.flatten().map(|entry| entry.path()) {
        let shown = home.command(["replay"]).arg(&path).output().unwrap();
        assert_eq!(code(&shown), 0, "{}", err(&shown));
        assert!(out(&shown).contains("# Step 2"), "{}", path.display());
        assert!(!out(&shown).contains('\u{1b}'));
        seen += 1;
    }
    assert_eq!(seen, 3);
}

#[test]
fn what_is_no_record_is_refused() {
    let home = Home::new();
    crate::support::write(&home.file("x.json"), "[1]");
    let hostile = "{\"v\":1,\"at\":1,\"kind\":\"ended\",\"outcome\":\"\u{1b}[2J\",\"spent\":{}}\n";
    crate::support::write(&home.file("x.jsonl"), hostile);
    crate::support::write(&home.file("run/events.jsonl"), hostile);
    for path in ["x.json", "missing.json", ".", "x.jsonl", "run"] {
        let output = home.command(["replay", path]).output().unwrap();
        assert_eq!(code(&output), 2, "{path}: {}", err(&output));
        assert!(!err(&output).contains('\u{1b}'), "{path}");
    }
}
