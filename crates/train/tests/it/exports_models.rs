//! Trained runs are exported as a model that loads again, and as adapters.

use std::fs;

use policy::Network;
use serde_json::json;
use tch::{Device, Kind};

use crate::support::Toy;

const CONFIG: &str = r#"
model = "DIR/model"
output = "DIR/run"
epochs = 4
batch = 1
device = "cpu"
precision = "f32"
[data]
task = "DIR/task"
trajectories = ["DIR/records"]
keep = "submitted"
[rollout]
format = "fenced"
tokens = 1024
[optimiser]
rate = 1e-2
"#;

/// A run trained on one recorded episode, whose prompts are short enough for the model.
fn trained(more: &str) -> Toy {
    let toy = Toy::new();
    let record = json!({
        "problem_statement": "A",
        "steps": [{"thought": "", "action": {"function": "submit", "parameters": {}}, "observation": ""}],
    });
    fs::create_dir(toy.path("records")).unwrap();
    fs::write(toy.path("records/trajectory.json"), record.to_string()).unwrap();
    let config = toy.config("sft.toml", &format!("{}{more}", CONFIG.replace("fenced", "native")));
    toy.succeeds(&["sft", config.to_str().unwrap()]);
    toy
}

fn weights(net: &Network) -> Vec<f32> {
    let all = net.parameters().unwrap();
    all.iter()
        .flat_map(|(_, tensor)| Vec::<f32>::try_from(tensor.detach().reshape([-1])).unwrap())
        .collect()
}

#[test]
fn a_trained_model_loads_again_with_its_vocabulary() {
    let toy = trained("");
    let losses: Vec<f64> =
        toy.metrics("run").iter().map(|line| line["loss"].as_f64().unwrap()).collect();
    assert_eq!(losses.len(), 4);
    assert!(losses[3] < losses[0], "{losses:?}");
    let (run, to) = (toy.path("run"), toy.path("exported"));
    toy.succeeds(&["export", run.to_str().unwrap(), "--to", to.to_str().unwrap()]);
    let load = |name: &str| Network::load(&toy.path(name), Device::Cpu, Kind::Float).unwrap();
    assert_ne!(weights(&load("model")), weights(&load("exported")));
    assert!(to.join("tokenizer.json").is_file());
    let refused = toy.run(&["export", run.to_str().unwrap(), "--to", "x", "--adapter", "x.gguf"]);
    assert_eq!(refused.status.code(), Some(2));
    let refused = toy.run(&["export", run.to_str().unwrap(), "--to", "x", "--step", "77"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("step 77"), "{said}");
    // Nothing is written where a part is missing.
    fs::remove_file(toy.path("model/tokenizer.json")).unwrap();
    let refused = toy.run(&["export", run.to_str().unwrap(), "--to", "x"]);
    assert_eq!(refused.status.code(), Some(2), "{}", String::from_utf8_lossy(&refused.stderr));
    assert!(!toy.path("x").exists());
    assert!(partial(&toy).is_empty());
}

/// Leftover partial exports.
fn partial(toy: &Toy) -> Vec<String> {
    let entries = fs::read_dir(toy.path("")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(".partial")).collect()
}

#[test]
fn an_adapter_is_merged_or_written_alone() {
    let toy = trained("[lora]\nrank = 4\n");
    let (run, to) = (toy.path("run"), toy.path("exported"));
    let (gguf, peft) = (toy.path("adapter.gguf"), toy.path("peft"));
    fs::create_dir(&peft).unwrap();
    // The target of a link stays unchanged.
    fs::write(toy.path("precious"), "precious").unwrap();
    std::os::unix::fs::symlink(toy.path("precious"), &gguf).unwrap();
    toy.succeeds(&[
        "export",
        run.to_str().unwrap(),
        "--to",
        to.to_str().unwrap(),
        "--adapter",
        gguf.to_str().unwrap(),
        "--peft",
        peft.to_str().unwrap(),
    ]);
    let load = |name: &str| Network::load(&toy.path(name), Device::Cpu, Kind::Float).unwrap();
    assert_ne!(weights(&load("model")), weights(&load("exported")));
    assert!(fs::read(&gguf).unwrap().starts_with(b"GGUF"));
    assert!(peft.join("adapter_config.json").is_file());
    assert_eq!(fs::read_to_string(toy.path("precious")).unwrap(), "precious");
    assert!(partial(&toy).is_empty());
}
