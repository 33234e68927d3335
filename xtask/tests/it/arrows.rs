//! Dependencies between our crates point one way, a plain build needs no libtorch, and dangerous code stays where it may
//! be.

use std::process::Command;

use serde_json::{Value, json};

use crate::{none, root, texts};

/// Each crate and those of ours it may build upon.
const ALLOWED: &[(&str, &[&str])] = &[
    ("agent", &["model", "sandbox", "trajectory"]),
    ("benchmark", &["agent", "grade", "model", "problems", "results", "sandbox", "trajectory"]),
    ("catalogue", &[]),
    ("chat-template", &["model", "trajectory"]),
    // Rows are tried out, in tests, as the tasks they are for.
    ("curriculum", &["grade", "problems"]),
    ("curves", &[]),
    ("gguf", &[]),
    ("grade", &[]),
    ("image", &[]),
    (
        "llm-in-sandbox",
        &[
            "agent",
            "benchmark",
            "catalogue",
            "curriculum",
            "curves",
            "grade",
            "image",
            "model",
            "model-local",
            "model-server",
            "problems",
            "report",
            "results",
            "sandbox",
            "sandbox-docker",
            "sandbox-native",
            "trajectory",
        ],
    ),
    ("model", &["trajectory"]),
    ("model-local", &["chat-template", "model", "trajectory"]),
    ("model-server", &["model", "trajectory"]),
    ("policy", &["gguf"]),
    ("problems", &["agent", "grade"]),
    ("report", &["results", "trajectory"]),
    ("results", &["trajectory"]),
    (
        "rollout",
        &["agent", "chat-template", "model", "problems", "sandbox", "trajectory", "vocabulary"],
    ),
    ("sandbox", &[]),
    ("sandbox-conformance", &["sandbox"]),
    ("sandbox-docker", &["sandbox"]),
    ("sandbox-native", &["image", "sandbox"]),
    ("testkit", &["model", "trajectory"]),
    (
        "train",
        &["agent", "policy", "rollout", "sandbox-native", "training", "trajectory", "vocabulary"],
    ),
    (
        "training",
        &[
            "agent",
            "curriculum",
            "model",
            "policy",
            "problems",
            "report",
            "rollout",
            "sandbox",
            "trajectory",
            "vocabulary",
        ],
    ),
    ("trajectory", &[]),
    ("vocabulary", &["gguf"]),
    ("xtask", &[]),
];

/// What crates may use in their tests besides.
const IN_TESTS: [&str; 5] =
    ["sandbox", "sandbox-conformance", "sandbox-docker", "sandbox-native", "testkit"];

/// What needs libtorch and is left out of a plain build.
const WITH_TORCH: [&str; 3] = ["policy", "train", "training"];

/// Where `unsafe` code may lie: all of the native runtime, and what loads CUDA's graphs at run time.
const UNSAFE: [&str; 2] = ["crates/sandbox-native/", "crates/policy/src/graph.rs"];

fn wrong_arrows(metadata: &Value) -> Vec<String> {
    let packages = metadata["packages"].as_array().unwrap();
    let name = |value: &Value| value["name"].as_str().unwrap().to_owned();
    let ours: Vec<String> = packages.iter().map(name).collect();
    let mut wrong = Vec::new();
    for package in packages {
        let from = name(package);
        let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == from) else {
            wrong.push(format!("{from} is new: say in xtask/tests/it/arrows.rs what it may use"));
            continue;
        };
        for dependency in package["dependencies"].as_array().unwrap() {
            let to = name(dependency);
            let in_tests = dependency["kind"] == "dev" && IN_TESTS.contains(&to.as_str());
            if ours.contains(&to) && !allowed.contains(&to.as_str()) && !in_tests {
                wrong.push(format!("{from} must not depend on {to}"));
            }
        }
    }
    wrong
}

/// What cargo says about the workspace.
fn metadata() -> Value {
    let cargo = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(cargo.status.success(), "{}", String::from_utf8_lossy(&cargo.stderr));
    serde_json::from_slice(&cargo.stdout).unwrap()
}

#[test]
fn dependencies_point_one_way() {
    none(&wrong_arrows(&metadata()));
}

#[test]
fn a_plain_build_needs_no_libtorch_and_leaves_nothing_else_out() {
    let metadata = metadata();
    let ids = |value: &Value| -> Vec<String> {
        value.as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned()).collect()
    };
    let plain = ids(&metadata["workspace_default_members"]);
    let name = |id: &str| {
        let package =
            metadata["packages"].as_array().unwrap().iter().find(|package| package["id"] == id);
        package.unwrap()["name"].as_str().unwrap().to_owned()
    };
    let left_out = ids(&metadata["workspace_members"]).into_iter().filter(|id| !plain.contains(id));
    let mut left_out: Vec<String> = left_out.map(|id| name(&id)).collect();
    left_out.sort();
    assert_eq!(left_out, WITH_TORCH);
}

#[test]
fn a_wrong_arrow_is_seen() {
    let package = |name: &str, uses: &str, kind: Value| json!({"name": name, "dependencies": [{"name": uses, "kind": kind}]});
    let seen = |package: Value| {
        let others = ["image", "sandbox", "sandbox-conformance", "sandbox-native"]
            .map(|name| json!({"name": name, "dependencies": []}));
        let mut packages = others.to_vec();
        packages.push(package);
        wrong_arrows(&json!({ "packages": packages })).len()
    };
    assert_eq!(seen(package("sandbox-native", "sandbox", Value::Null)), 0);
    assert_eq!(seen(package("sandbox-native", "serde", Value::Null)), 0);
    assert_eq!(seen(package("sandbox-native", "sandbox-conformance", json!("dev"))), 0);
    assert_eq!(seen(package("sandbox-native", "sandbox-conformance", Value::Null)), 1);
    assert_eq!(seen(package("sandbox", "sandbox-native", Value::Null)), 1);
    assert_eq!(seen(package("sandbox-docker", "image", json!("dev"))), 1);
    assert_eq!(seen(package("unheard-of", "serde", Value::Null)), 1);
}

/// Crates that let themselves off the workspace's lints, or off the ban on `unsafe`.
fn lifted_lints(path: &str, text: &str) -> Option<String> {
    let manifest = path.ends_with("/Cargo.toml");
    if manifest && !text.contains("[lints]\nworkspace = true") {
        return Some(format!("{path} does not take the workspace's lints"));
    }
    let lifts = ["allow", "expect", "warn"].map(|word| format!("{word}(unsafe_code"));
    let lifted = path.ends_with(".rs") && lifts.iter().any(|lift| text.contains(lift));
    let may = UNSAFE.iter().any(|place| path.starts_with(place));
    (lifted && !may).then(|| format!("{path} may not use unsafe code"))
}

#[test]
fn unsafe_code_lives_where_it_may() {
    let complaints =
        texts().iter().filter_map(|(path, text)| lifted_lints(path, text)).collect::<Vec<_>>();
    none(&complaints);
}

#[test]
fn a_lifted_lint_is_seen() {
    let lift = ["#![expect(unsafe", "_code, reason = \"\")]"].concat();
    assert!(lifted_lints("crates/image/src/lib.rs", &lift).is_some());
    assert!(lifted_lints("crates/policy/src/lib.rs", &lift).is_some());
    assert!(lifted_lints("crates/sandbox-native/src/lib.rs", &lift).is_none());
    assert!(lifted_lints("crates/image/Cargo.toml", "[package]").is_some());
}
