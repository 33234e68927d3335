//! Dependencies between our crates point one way, a plain build needs no libtorch, and unsafe code is confined.

use std::process::Command;

use serde_json::{Value, json};

use crate::{none, root, texts};

/// Each crate and those of ours it may depend on.
const ALLOWED: &[(&str, &[&str])] = &[
    // Megabytes of weights, which only the program links.
    ("adapters", &[]),
    ("agent", &["model", "sandbox", "trajectory"]),
    ("atomic-file", &[]),
    ("attempt", &["agent", "model", "problems", "sandbox", "trajectory"]),
    ("benchmark", &["attempt", "model", "problems", "results", "sandbox", "trajectory"]),
    ("catalogue", &["atomic-file", "error-text", "hub"]),
    ("chat-template", &["model", "trajectory"]),
    (
        "cli",
        &[
            "adapters",
            "agent",
            "atomic-file",
            "attempt",
            "benchmark",
            "catalogue",
            "curriculum",
            "curves",
            // The tasks that `serve` offers.
            "environment",
            "episodes",
            // Tests write adapters.
            "gguf",
            "grade",
            "http-server",
            "image",
            "mcp",
            "model",
            "model-local",
            "model-server",
            "perf",
            "problems",
            "random-id",
            "report",
            "results",
            "runtimes",
            "sandbox",
            "sandbox-docker",
            "sandbox-native",
            "server",
            "startup",
            "supervisor",
            "trajectory",
            "viewer",
        ],
    ),
    // Tests load its rows as tasks.
    ("curriculum", &["grade", "problems", "seeded"]),
    ("curves", &["plot"]),
    (
        "environment",
        &["agent", "attempt", "model", "problems", "random-id", "sandbox", "seeded", "trajectory"],
    ),
    // Plays episodes through `agent`, as `run` does, and reads files below its directory as `results` does.
    (
        "episodes",
        &[
            "agent",
            "atomic-file",
            "attempt",
            "error-text",
            "model",
            "random-id",
            "results",
            "sandbox",
            "trajectory",
        ],
    ),
    ("error-text", &[]),
    ("examples", &["agent", "model", "problems", "sandbox", "trajectory"]),
    ("gguf", &[]),
    ("grade", &[]),
    ("guide", &[]),
    ("http", &[]),
    ("http-server", &[]),
    ("hub", &["error-text", "http"]),
    ("image", &["error-text", "http"]),
    // The tools are the agent's own.
    ("mcp", &["agent", "model", "sandbox", "trajectory"]),
    ("model", &["atomic-file", "http", "trajectory"]),
    ("model-local", &["chat-template", "gguf", "model", "sampling", "trajectory"]),
    ("model-server", &["http-server", "model", "openai-wire", "sampling", "trajectory"]),
    // Errors of models and of bodies become responses in one place for both servers.
    ("openai-wire", &["http-server", "model", "trajectory"]),
    (
        "perf",
        &[
            "agent",
            "attempt",
            "benchmark",
            "grade",
            "http",
            "model",
            "problems",
            "results",
            "sandbox",
            "seeded",
            "trajectory",
        ],
    ),
    ("plot", &[]),
    ("policy", &["gguf", "sampling", "seeded"]),
    ("problems", &["agent", "atomic-file", "error-text", "grade", "hub"]),
    ("random-id", &[]),
    ("report", &["plot", "results", "seeded", "trajectory"]),
    ("results", &["atomic-file", "trajectory"]),
    // The Python package: a program of its own, like `cli`.
    (
        "python",
        &[
            "agent",
            "attempt",
            "error-text",
            "grade",
            "model",
            "model-server",
            "problems",
            "rollout",
            "runtimes",
            "sampling",
            "sampling-http",
            "sandbox",
            "sandbox-docker",
            "sandbox-native",
            "startup",
            "trajectory",
            "vocabulary",
        ],
    ),
    (
        "rollout",
        &[
            "agent",
            "attempt",
            "chat-template",
            "model",
            "problems",
            "sampling",
            "sandbox",
            "seeded",
            "trajectory",
            "vocabulary",
        ],
    ),
    // The one crate that knows every runtime.
    ("runtimes", &["image", "sandbox", "sandbox-docker", "sandbox-native"]),
    ("sampling", &[]),
    // The connections, retries and errors of the chat clients. Tests serve a sampler to it.
    ("sampling-http", &["model", "model-server", "sampling", "seeded"]),
    ("sandbox", &["error-text"]),
    ("sandbox-conformance", &["error-text", "sandbox"]),
    ("sandbox-docker", &["sandbox"]),
    ("sandbox-native", &["image", "sandbox"]),
    ("sandbox-testkit", &["sandbox", "sandbox-conformance", "sandbox-native"]),
    ("seeded", &[]),
    // Any runtime that supports remote clients, and only through its traits. Any model as well; episodes are played by
    // `episodes`, whose requests have limits and messages; environments play tasks.
    (
        "server",
        &[
            "agent",
            "atomic-file",
            "attempt",
            "environment",
            "episodes",
            "http-server",
            "mcp",
            "model",
            "openai-wire",
            "problems",
            "random-id",
            "sandbox",
            "trajectory",
        ],
    ),
    ("startup", &["error-text", "sandbox-native", "trajectory"]),
    // Any runtime, and only through its traits.
    ("supervisor", &["error-text", "sandbox"]),
    ("testkit", &["model", "trajectory"]),
    (
        "train",
        &[
            "model",
            "model-server",
            "policy",
            "rollout",
            "sandbox-native",
            "startup",
            "training",
            "vocabulary",
        ],
    ),
    (
        "training",
        &[
            "agent",
            "atomic-file",
            "attempt",
            "curriculum",
            "error-text",
            "model",
            "policy",
            "problems",
            "report",
            "rollout",
            "sampling",
            "sampling-http",
            "sandbox",
            "seeded",
            "trajectory",
            "vocabulary",
        ],
    ),
    ("trajectory", &["error-text"]),
    // Reads what the others write, through their types where they are public.
    ("viewer", &["curves", "http-server", "report", "results", "trajectory"]),
    ("vocabulary", &["atomic-file", "gguf"]),
    ("xtask", &[]),
];

/// What crates may use in their tests besides.
const IN_TESTS: [&str; 6] = [
    "sandbox",
    "sandbox-conformance",
    "sandbox-docker",
    "sandbox-native",
    "sandbox-testkit",
    "testkit",
];

/// What is left out of a plain build: what needs libtorch, and the Python extension.
const LEFT_OUT: [&str; 4] = ["policy", "python", "train", "training"];

/// Where `unsafe` code is allowed: in the native runtime, and where libtorch is set up, CUDA graphs are loaded and kernels
/// launched.
const UNSAFE: [&str; 5] = [
    "crates/sandbox-native/",
    "crates/policy/src/cpu.rs",
    "crates/policy/src/graph.rs",
    "crates/policy/src/kernels.rs",
    "crates/policy/src/kernels/training.rs",
];

/// The name of a package without the prefix that our libraries share: the name of its directory.
fn short(package: &str) -> &str {
    match package {
        "llm-in-sandbox" => "cli",
        "llm-in-sandbox-train" => "train",
        name => name.strip_prefix("lis-").unwrap_or(name),
    }
}

fn wrong_arrows(metadata: &Value) -> Vec<String> {
    let packages = metadata["packages"].as_array().unwrap();
    let name = |value: &Value| short(value["name"].as_str().unwrap()).to_owned();
    let ours: Vec<String> = packages.iter().map(name).collect();
    let mut wrong = Vec::new();
    for package in packages {
        let from = name(package);
        let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == from) else {
            wrong.push(format!("{from} is new: list in xtask/tests/it/arrows.rs what it may use"));
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

/// Cargo's metadata of the workspace.
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
        short(package.unwrap()["name"].as_str().unwrap()).to_owned()
    };
    let left_out = ids(&metadata["workspace_members"]).into_iter().filter(|id| !plain.contains(id));
    let mut left_out: Vec<String> = left_out.map(|id| name(&id)).collect();
    left_out.sort();
    assert_eq!(left_out, LEFT_OUT);
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

/// Crates that do not use the workspace's lints, or lift the ban on `unsafe`.
fn lifted_lints(path: &str, text: &str) -> Option<String> {
    let manifest = path.ends_with("/Cargo.toml");
    if manifest && !text.contains("[lints]\nworkspace = true") {
        return Some(format!("{path} does not use the workspace's lints"));
    }
    let lifts = ["allow", "expect", "warn"].map(|word| format!("{word}(unsafe_code"));
    // A module below one that lifts the ban needs no attribute of its own.
    let blocks = ["unsafe {", "unsafe fn", "unsafe impl"].map(|block| format!(" {block}"));
    let contains = |line: &str| {
        let code = line.split("//").next().unwrap_or_default();
        blocks.iter().any(|block| format!(" {code}").contains(block))
    };
    let lifted = path.ends_with(".rs")
        && (lifts.iter().any(|lift| text.contains(lift)) || text.lines().any(contains));
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
