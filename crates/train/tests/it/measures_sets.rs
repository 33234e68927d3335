//! A user measures a model on several sets at once, in sandboxes and without, and finds what became of every problem.

use std::fs;

use serde_json::Value;

use crate::support::{Toy, has_sandboxes};

const CONFIG: &str = r#"
model = "DIR/model"
output = "DIR/measured"
steps = 0
device = "cpu"
[rollout]
format = "native"
turns = 1
tokens = 256
tokens_per_reply = 8
sandboxes = 256
[[validation]]
name = "sandbox"
task = "DIR/task"
data = ["DIR/rows.jsonl"]
[[validation]]
name = "plain"
task = "DIR/chance"
data = ["DIR/rows.jsonl"]
mode = "llm"
problems = 2
members = 2
"#;

fn records(toy: &Toy, set: &str) -> Vec<Value> {
    let path = toy.path("measured/validation/step-000000").join(format!("{set}.jsonl"));
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn sets_in_sandboxes_and_without_are_measured_in_one_process() {
    if !has_sandboxes() {
        return;
    }
    let toy = Toy::new();
    let config = toy.config("measure.toml", CONFIG);
    let output = toy.run(&["rl", config.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    for set in ["sandbox", "plain"] {
        assert!(said.contains(&format!("validation set {set}: success 0.")), "{said}");
    }
    let ids = |set: &str| {
        let id = |record: &Value| record["id"].as_str().unwrap().to_owned();
        records(&toy, set).iter().map(id).collect::<Vec<_>>()
    };
    assert_eq!(
        (ids("sandbox"), ids("plain")),
        (
            ["A", "B", "C", "D"].map(String::from).to_vec(),
            ["A", "A", "B", "B"].map(String::from).to_vec()
        )
    );
    for record in records(&toy, "sandbox").iter().chain(&records(&toy, "plain")) {
        assert!(record["score"].is_number() && record["response_tokens"].as_u64() > Some(0));
        assert!(toy.path("measured").join(record["events"].as_str().unwrap()).is_file());
    }
    let metrics = &toy.metrics("measured")[0];
    assert_eq!(metrics["validation/sandbox/episodes"], 4);
    assert!(metrics["validation/plain/success_se"].is_number());
}
