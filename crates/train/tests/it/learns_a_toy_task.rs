//! A randomly initialised model of a hundred thousand parameters learns to work in a sandbox: demonstrations teach it to
//! write any of four answers to a file, and rewards teach it which one is correct.

use std::time::Instant;

use crate::support::{ANSWERS, Toy, has_sandboxes, row};

/// The correct answer of every problem.
const CORRECT: &str = "3";

const WARM_START: &str = r#"
model = "DIR/model"
output = "DIR/warm"
epochs = 60
batch = 4
seed = 5
device = "cpu"
precision = "f32"
[data]
task = "DIR/task"
demonstrations = ["DIR/demonstrations.jsonl"]
[rollout]
format = "native"
turns = 2
tokens = 512
sandboxes = 8
[optimiser]
rate = 4e-3
schedule = "linear"
warmup = 5
weight_decay = 0
[checkpoints]
every = 10000
"#;

const REWARDS: &str = r#"
model = "DIR/model"
from = "DIR/warm"
output = "DIR/rl"
steps = 14
seed = 7
device = "cpu"
[data]
task = "DIR/task"
train = ["DIR/right.jsonl"]
validation = ["DIR/right.jsonl"]
[rollout]
problems = 4
members = 8
format = "native"
turns = 2
tokens = 512
tokens_per_reply = 128
sandboxes = 32
sampling = { temperature = 0.5 }
[optimiser]
rate = 5e-4
weight_decay = 0
[validation]
every = 14
members = 16
sampling = { temperature = 0.5, top_p = 1.0, top_k = 0 }
[checkpoints]
every = 1000
"#;

#[test]
fn success_rises_from_chance_to_over_four_fifths() {
    if !has_sandboxes() {
        return;
    }
    let began = Instant::now();
    let toy = Toy::new();
    // Every digit equally often: these teach how to answer, not which answer.
    let digits = ANSWERS.map(|(_, digit)| digit);
    let rows = ANSWERS.iter().flat_map(|(letter, _)| {
        digits.map(move |digit| row(&format!("{letter}{digit}"), letter, digit))
    });
    toy.write_rows("demonstrations.jsonl", rows);
    let config = toy.config("warm.toml", WARM_START);
    toy.succeeds(&["sft", config.to_str().unwrap()]);
    toy.write_rows("right.jsonl", ANSWERS.iter().map(|(letter, _)| row(letter, letter, CORRECT)));
    let config = toy.config("rl.toml", REWARDS);
    toy.succeeds(&["rl", config.to_str().unwrap()]);
    let metrics = toy.metrics("rl");
    let success = |at: usize| metrics[at]["validation/success"].as_f64().unwrap();
    let (before, after) = (success(0), success(metrics.len() - 1));
    eprintln!("success {before} before, {after} after, {:?}", began.elapsed());
    assert!(before < 0.5, "success before training is too high: {before}");
    assert!(after > 0.8, "success after training is too low: {after}");
}
