//! A run that is killed at any moment, however often, gives the same metrics as an uninterrupted one.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Toy, has_sandboxes};

const CONFIG: &str = r#"
model = "DIR/model"
output = "DIR/OUT"
steps = 5
seed = 3
device = "cpu"
[data]
task = "DIR/chance"
train = ["DIR/rows.jsonl"]
[rollout]
mode = "llm"
problems = 2
members = 4
tokens = 128
tokens_per_reply = 12
sandboxes = 4
slots = 1
overlong = "keep"
[algorithm]
resample = 1
[optimiser]
rate = 1e-3
[checkpoints]
every = 1
"#;

/// No step takes longer.
const LONGEST: Duration = Duration::from_secs(60);

/// A learnt step without what depends on the clock.
fn timeless(line: &Value) -> Value {
    let mut line = line.clone();
    line.as_object_mut()
        .unwrap()
        .retain(|name, _| !name.starts_with("seconds/") && name != "tokens_per_s");
    line
}

/// Starts the program and kills it this long after it has taken some steps more; false where it ended before.
pub(crate) fn run_and_kill(
    toy: &Toy,
    args: &[&str],
    run: &str,
    steps: usize,
    wait: Duration,
) -> bool {
    let before = toy.whole_lines(run);
    let mut child = toy.command(args).stderr(std::process::Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + LONGEST;
    while toy.whole_lines(run) < before + steps && child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "no step in {LONGEST:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(wait);
    let killed = child.try_wait().unwrap().is_none();
    // It may have exited already.
    let _ = child.kill();
    child.wait().unwrap();
    killed
}

#[test]
fn killed_runs_come_to_the_same_losses() {
    if !has_sandboxes() {
        return;
    }
    let toy = Toy::new();
    let alone = toy.config("alone.toml", &CONFIG.replace("OUT", "alone"));
    toy.succeeds(&["rl", alone.to_str().unwrap()]);
    let killed = toy.config("killed.toml", &CONFIG.replace("OUT", "killed"));
    let args = ["rl", killed.to_str().unwrap()];
    let mut kills = 0;
    // So many steps further, and then anywhere within the next: no machine is too slow or too fast for that.
    for (steps, wait) in [(0, 300), (1, 0), (1, 20), (1, 150), (1, 400)] {
        let wait = Duration::from_millis(wait);
        kills += usize::from(run_and_kill(&toy, &args, "killed", steps, wait));
    }
    assert!(kills > 1, "only {kills} kills came before the end");
    toy.succeeds(&args);
    let lines = |run: &str| toy.metrics(run).iter().map(timeless).collect::<Vec<_>>();
    let (alone, killed) = (lines("alone"), lines("killed"));
    assert_eq!(alone.len(), 5);
    // Advantages add up to 0, and so does the loss of episodes of the same length; the gradient does not.
    let learnt = |line: &&Value| line["grad_norm"].as_f64().is_some_and(|norm| norm > 0.0);
    let learnt = alone.iter().filter(learnt).count();
    assert!(learnt > 2, "too few steps had a gradient: {alone:?}");
    assert_eq!(alone, killed);
}

#[test]
fn another_configuration_is_rejected_and_more_steps_are_not() {
    if !has_sandboxes() {
        return;
    }
    let toy = Toy::new();
    let config =
        toy.config("run.toml", &CONFIG.replace("OUT", "run").replace("steps = 5", "steps = 1"));
    let path = config.to_str().unwrap();
    toy.succeeds(&["rl", path]);
    let refused = toy.run(&["rl", path, "--set", "optimiser.rate=1e-4"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("optimiser.rate"), "{said}");
    toy.succeeds(&["rl", path, "--set", "steps=2"]);
    assert_eq!(toy.metrics("run").len(), 2);
}

#[test]
fn problems_drawn_by_pass_rate_are_the_same_after_a_resume() {
    if !has_sandboxes() {
        return;
    }
    let toy = Toy::new();
    let config = CONFIG.replace("[data]", "[data]\ndraw = \"pass-rate\"");
    let config = config.replace("resample = 1", "").replace("steps = 5", "steps = 3");
    let alone = toy.config("alone.toml", &config.replace("OUT", "alone"));
    toy.succeeds(&["rl", alone.to_str().unwrap()]);
    let parts = toy.config("parts.toml", &config.replace("OUT", "parts"));
    for steps in ["steps=2", "steps=3"] {
        toy.succeeds(&["rl", parts.to_str().unwrap(), "--set", steps]);
    }
    let lines = |run: &str| toy.metrics(run).iter().map(timeless).collect::<Vec<_>>();
    let (alone, parts) = (lines("alone"), lines("parts"));
    assert!(alone[2]["rate/unknown"].as_f64().is_some_and(|rate| rate > 0.0), "{alone:?}");
    assert_eq!(alone, parts);
}
