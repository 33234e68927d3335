//! `doctor` says what holds, and what it says agrees with what happens.

use crate::support::{Home, code, err, out};

#[test]
fn the_diagnosis_is_data() {
    let Some(home) = Home::with_sandboxes() else { return };
    let found = home.json(["doctor", "--json"]);
    assert_eq!(found["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(found["native"]["works"], true);
    assert!(found["native"]["start_ms"].as_f64().unwrap() > 0.0);
    let machine: Vec<_> = found["machine"].as_array().unwrap().iter().map(|l| &l["name"]).collect();
    for name in ["namespaces", "overlay", "cgroups", "seccomp", "id maps"] {
        assert!(machine.iter().any(|found| *found == name), "{machine:?} lacks {name}");
    }
    let networks = found["native"]["networks"].as_array().unwrap();
    let names: Vec<_> = networks.iter().map(|mode| mode["network"].as_str().unwrap()).collect();
    assert_eq!(names, ["none", "allow", "internet", "full"]);
    assert_eq!(networks[2]["works"], true);
    assert!(networks[2]["detail"].as_str().unwrap().starts_with("public addresses only"));
    assert_eq!(found["docker"]["works"], false);
    // The report is that of a real sandbox.
    let run = home.json(["sandbox", "run", "--json", "--", "true"]);
    assert_eq!(found["native"]["protection"], run["protection"]);
    assert!(home.traces().is_empty());
}

#[test]
fn the_diagnosis_is_readable() {
    let Some(home) = Home::with_sandboxes() else { return };
    let text = home.ok(["doctor"]);
    for word in [
        "This machine",
        "Native sandboxes",
        "memory limit",
        "Docker sandboxes",
        "network internet: public",
        " ms",
    ] {
        assert!(text.contains(word), "no {word} in {text}");
    }
    assert!(!text.contains('\x1b'), "colours without a terminal: {text}");
}

#[test]
fn where_nothing_works_the_code_is_4() {
    let home = Home::new();
    crate::support::write(&home.state(), "a file where the state should be");
    let mut command = home.command(["doctor"]);
    let output = command.env("DOCKER_HOST", "unix:///nonexistent.sock").output().unwrap();
    assert_eq!(code(&output), 4, "{}", err(&output));
    assert!(out(&output).contains("LLM_IN_SANDBOX_HOME"), "{}", out(&output));
}

#[test]
fn a_run_says_which_protections_do_not_hold() {
    let Some(home) = Home::with_sandboxes() else { return };
    let found = home.json(["doctor", "--json"]);
    let layers = found["native"]["protection"]["layers"].as_array().unwrap();
    let weak = |layer: &&serde_json::Value| {
        let partial_disk = layer["name"] == "disk limit" && layer["state"] == "partial";
        layer["state"] != "enforced" && !partial_disk && layer["name"] != "pause"
    };
    let weak: Vec<_> = layers.iter().filter(weak).map(|l| l["name"].as_str().unwrap()).collect();
    let server = testkit::MockServer::scripted([testkit::submit(), testkit::submit()]).unwrap();
    let output = crate::episodes::ran(&home, &server, ["Do it"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let line = format!("not fully enforced on this machine: {};", weak.join(", "));
    assert_eq!(err(&output).contains(&line), !weak.is_empty(), "{weak:?}: {}", err(&output));
    // Layers of the machine have a reason, whoever asks.
    for layer in layers.iter().chain(found["machine"].as_array().unwrap()) {
        let detail = layer["detail"].as_str().unwrap();
        assert!(!detail.is_empty() && !detail.contains(": ;"), "{layer}");
    }
}
