//! A server is measured: it creates every sandbox, runs every command, and leaves nothing.

use std::io::{BufRead, BufReader, Read};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Home, Running, code, err, out};

/// Far more than can be measured.
const ENDLESS: [&str; 4] = ["--rounds", "100000", "--count", "5"];

#[test]
fn a_measurement_that_is_interrupted_prints_what_it_has() {
    let Some(home) = Home::with_sandboxes() else { return };
    let mut command = home.command(["perf", "serve", "--json"].into_iter().chain(ENDLESS));
    let mut running = Running(command.spawn().unwrap());
    let lines = BufReader::new(running.0.stderr.take().unwrap()).lines();
    let mut lines = lines.map(Result::unwrap);
    // A line about the rounds is shown every five seconds.
    let progress = lines.by_ref().filter(|line| line.contains("of 100000 times")).nth(1);
    assert!(progress.unwrap().contains("0 errors"));
    running.signal(Signal::INT);
    std::thread::spawn(move || lines.for_each(drop));
    let mut text = String::new();
    running.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(running.end(), 130);
    let figures: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&figures["complete"], &figures["exec_ms"]), (&false.into(), &Value::Null));
    assert!(figures["memory"]["count"].as_u64().is_some_and(|count| count >= 10), "{figures}");
    assert_eq!(home.traces().len(), 0);
}

#[test]
fn missed_targets_are_named_and_change_the_exit_code() {
    let Some(home) = Home::with_sandboxes() else { return };
    let small = ["--count", "2", "--rounds", "1", "--commands", "1", "--streams", "1"];
    let none = ["--chats", "0", "--events", "0", "--episodes", "0", "--assert"];
    let output = home.run(["perf", "serve"].into_iter().chain(small).chain(none));
    let errors = err(&output);
    assert_eq!(code(&output), 1, "{errors}");
    assert!(errors.contains("missed: memory over sandboxes") && errors.contains("not measured"));
    assert!(out(&output).contains("create 2 sandboxes"), "{}", out(&output));
}

#[test]
fn a_server_is_measured_and_ended() {
    let Some(home) = Home::with_sandboxes() else { return };
    let args = ["--count", "20", "--commands", "5", "--streams", "6", "--json"];
    let model = ["--chats", "8", "--events", "30", "--episodes", "20"];
    let figures = home.json(["perf", "serve"].into_iter().chain(args).chain(model));
    assert_eq!(figures["complete"], true, "{figures}");
    assert!(figures["descriptors"].as_u64().is_some_and(|open| open > 20), "{figures}");
    let (create, streams) = (&figures["create"], &figures["streams"]);
    assert_eq!((&create["count"], &create["errors"]), (&20.into(), &0.into()), "{figures}");
    assert_eq!((&streams["count"], &streams["errors"]), (&6.into(), &0.into()), "{figures}");
    let positive = |value: &serde_json::Value| value.as_f64().is_some_and(|value| value > 0.0);
    assert!(positive(&create["per_second"]) && positive(&figures["exec_ratio"]), "{figures}");
    assert_eq!(figures["in_process_create"]["errors"], 0, "{figures}");
    // Sandboxes that have ended leave nothing in the server's memory that adds up.
    assert_eq!(figures["memory"]["count"], 60, "{figures}");
    assert!(figures["memory"]["ratio"].as_f64().is_some_and(|ratio| ratio < 1.2), "{figures}");
    for (part, count) in [("chats", 8), ("events", 30), ("episodes", 20)] {
        let part = &figures[part];
        assert_eq!((&part["count"], &part["errors"]), (&count.into(), &0.into()), "{figures}");
    }
    assert_eq!(home.traces().len(), 0);
}
