//! A model of a hundred thousand random numbers learns to work in a sandbox: demonstrations teach it how to leave any of
//! four answers in a file, and rewards teach it which one is right.

use std::time::Instant;

use crate::support::{ANSWERS, Toy, has_sandboxes, row};

/// What every problem wants.
const RIGHT: &str = "3";

const WARM_START: &str = r#"
model = "DIR/model"
output = "DIR/warm"
epochs = 250
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
steps = 20
seed = 7
device = "cpu"
[data]
task = "DIR/task"
train = ["DIR/right.jsonl"]
validation = ["DIR/right.jsonl"]
[rollout]
problems = 4
members = 16
format = "native"
turns = 2
tokens = 512
tokens_per_reply = 128
sandboxes = 64
sampling = { temperature = 0.5 }
[optimiser]
rate = 5e-4
weight_decay = 0
[validation]
every = 20
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
    // Every digit as often: what is learnt from these is how to answer, not what.
    let digits = ANSWERS.map(|(_, digit)| digit);
    let rows = ANSWERS.iter().flat_map(|(letter, _)| {
        digits.map(move |digit| row(&format!("{letter}{digit}"), letter, digit))
    });
    toy.write_rows("demonstrations.jsonl", rows);
    let config = toy.config("warm.toml", WARM_START);
    toy.succeeds(&["sft", config.to_str().unwrap()]);
    toy.write_rows("right.jsonl", ANSWERS.iter().map(|(letter, _)| row(letter, letter, RIGHT)));
    let config = toy.config("rl.toml", REWARDS);
    toy.succeeds(&["rl", config.to_str().unwrap()]);
    let figures = toy.figures("rl");
    let success = |at: usize| figures[at]["validation/success"].as_f64().unwrap();
    let (before, after) = (success(0), success(figures.len() - 1));
    eprintln!("success {before} before, {after} after, {:?}", began.elapsed());
    assert!(before < 0.5, "it knows too much: {before}");
    assert!(after > 0.8, "it learnt too little: {after}");
}
