//! A recorded episode can be looked at and carried out once more.

use std::path::Path;

use serde_json::Value;
use testkit::{MockServer, bash, submit};

use crate::{
    episodes::{folder, run},
    support::{Home, code, err, out, skip},
};

fn recorded(home: &Home, command: &str) {
    let server = MockServer::scripted([bash(command), submit()]).unwrap();
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
        assert!(out(&again).contains("0 of 2 actions came out differently"), "{}", out(&again));
    }
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
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/trajectories");
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
    for path in ["x.json", "missing.json", "."] {
        let output = home.command(["replay", path]).output().unwrap();
        assert_eq!(code(&output), 2, "{path}: {}", err(&output));
    }
}
