//! Runs of a listed local model that were recorded with another default adapter, or without one: the same command
//! continues them. No model is loaded, since every attempt is finished.

use std::{fs, process::Output};

use serde_json::{Value, json};

use super::{bench, sums, sums_script};
use crate::{
    episodes::json as read_json,
    support::{Home, code, err, refusal},
};

const MODEL: &str = "qwen2.5-coder-1.5b";

/// Settings whose defaults depend on where a model runs.
const SAME: [&str; 6] = ["--mode", "llm", "--temperature", "0.2", "--max-tokens-per-call", "512"];

/// A finished run in `out` of the local model. `adapter` is added to the recorded settings of the model, and `id` to
/// those that must not change.
fn recorded(adapter: &Value, id: &Value) -> Home {
    let home = Home::new();
    let data = sums(&home, 2);
    let server = sums_script(2).serve();
    let args = ["math", "--data", data.to_str().unwrap(), "--model", MODEL, "--quiet"];
    let output = bench(&home, &server.base_url(), [&args[..], &SAME].concat()).output().unwrap();
    assert_eq!(code(&output), 0, "{}", err(&output));
    let path = home.file("out/run.json");
    let mut run = read_json(&path);
    let mut local =
        json!({"file": {"listed": MODEL}, "context": null, "threads": null, "sequences": 4});
    let mut fixed = json!({"context": null});
    merge(&mut local, adapter);
    merge(&mut fixed, id);
    run["settings"]["asked"]["model"]["place"] = json!({"here": local});
    run["settings"]["same"]["local"] = fixed;
    fs::write(&path, run.to_string()).unwrap();
    home
}

fn merge(into: &mut Value, from: &Value) {
    let from = from.as_object().unwrap().clone();
    into.as_object_mut().unwrap().extend(from);
}

/// The command that started the run, with more arguments.
fn again(home: &Home, more: &[&str]) -> Output {
    let data = home.file("sums.jsonl");
    let model = format!("local:{MODEL}");
    let mut command = home.command(["benchmark", "math", "--output", "out", "--model", &model]);
    command.arg("--data").arg(data).args(SAME).args(more);
    command.env_remove("LLM_BASE_URL").env_remove("LLM_IN_SANDBOX_CONFIG");
    command.env("HOME", home.file("nobody")).output().unwrap()
}

#[test]
fn the_same_command_continues_a_run_without_an_adapter() {
    for (adapter, id) in
        [(json!({"adapter": null}), json!({"adapter": null})), (json!({}), json!({}))]
    {
        let home = recorded(&adapter, &id);
        for more in [&[][..], &["--regrade"]] {
            let output = again(&home, more);
            assert_eq!(code(&output), 0, "{}", err(&output));
            let said = err(&output);
            assert!(said.contains("was started without an adapter"), "{said}");
            assert!(!said.contains("is used with its adapter"), "{said}");
        }
        let run = read_json(&home.file("out/run.json"));
        assert_eq!(run["settings"]["same"]["local"]["adapter"], Value::Null);
        // What the user chooses is compared as before.
        let line = refusal(&again(&home, &["--adapter", "/m/a.gguf"]), 2);
        assert!(line.contains("--adapter was none, now it is `/m/a.gguf`"), "{line}");
    }
}

#[test]
fn the_same_command_continues_a_run_with_the_adapter_of_another_version() {
    let sha256 = "0".repeat(64);
    let adapter = json!({"adapter": {"name": "earlier", "sha256": sha256}});
    let home = recorded(&adapter, &json!({"adapter": format!("earlier@{sha256}")}));
    let output = again(&home, &[]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(err(&output).contains("was started with the adapter earlier"), "{}", err(&output));
    let line = refusal(&again(&home, &["--adapter", "none"]), 2);
    assert!(line.contains("--adapter was `earlier@"), "{line}");
}
