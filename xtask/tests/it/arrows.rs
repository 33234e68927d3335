//! Dependencies between our crates point one way, and dangerous code stays in one of them.

use std::process::Command;

use serde_json::{Value, json};

use crate::{none, root, texts};

/// Each crate and those of ours it may build upon.
const ALLOWED: [(&str, &[&str]); 19] = [
    ("agent", &["model", "sandbox", "trajectory"]),
    ("benchmark", &["agent", "grade", "model", "problems", "results", "sandbox", "trajectory"]),
    ("catalogue", &[]),
    ("grade", &[]),
    ("image", &[]),
    (
        "llm-in-sandbox",
        &[
            "agent",
            "benchmark",
            "catalogue",
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
    ("model-local", &["model", "trajectory"]),
    ("model-server", &["model", "trajectory"]),
    ("problems", &["agent", "grade"]),
    ("report", &["results", "trajectory"]),
    ("results", &["trajectory"]),
    ("sandbox", &[]),
    ("sandbox-conformance", &["sandbox"]),
    ("sandbox-docker", &["sandbox"]),
    ("sandbox-native", &["image", "sandbox"]),
    ("testkit", &["model", "trajectory"]),
    ("trajectory", &[]),
    ("xtask", &[]),
];

/// What crates may use in their tests besides.
const IN_TESTS: [&str; 5] =
    ["sandbox", "sandbox-conformance", "sandbox-docker", "sandbox-native", "testkit"];

/// The crate that may hold `unsafe` code.
const UNSAFE: &str = "crates/sandbox-native/";

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

#[test]
fn dependencies_point_one_way() {
    let cargo = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(cargo.status.success(), "{}", String::from_utf8_lossy(&cargo.stderr));
    none(&wrong_arrows(&serde_json::from_slice(&cargo.stdout).unwrap()));
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
    (lifted && !path.starts_with(UNSAFE)).then(|| format!("{path} may not use unsafe code"))
}

#[test]
fn unsafe_code_lives_in_one_crate() {
    let complaints =
        texts().iter().filter_map(|(path, text)| lifted_lints(path, text)).collect::<Vec<_>>();
    none(&complaints);
}

#[test]
fn a_lifted_lint_is_seen() {
    let lift = ["#![expect(unsafe", "_code, reason = \"\")]"].concat();
    assert!(lifted_lints("crates/image/src/lib.rs", &lift).is_some());
    assert!(lifted_lints("crates/sandbox-native/src/lib.rs", &lift).is_none());
    assert!(lifted_lints("crates/image/Cargo.toml", "[package]").is_some());
}
