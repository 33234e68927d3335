//! Running the program on episodes: a mock server on one side, the directory of results on the other.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;
use testkit::MockServer;

use crate::support::{Home, err, wait_for};

/// `run` with a model at this server; the rest of the arguments follow.
pub(crate) fn run<S: AsRef<OsStr>>(
    home: &Home,
    base_url: &str,
    args: impl IntoIterator<Item = S>,
) -> Command {
    let mut command = home.command(["run", "--model", "mock", "--base-url", base_url]);
    command.args(["--output", "out"]).args(args);
    for name in ["LLM_NAME", "LLM_BASE_URL", "LLM_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"] {
        command.env_remove(name);
    }
    command.env_remove("LLM_IN_SANDBOX_CONFIG").env("HOME", home.file("nobody"));
    command
}

/// The same, to its end.
pub(crate) fn ran<S: AsRef<OsStr>>(
    home: &Home,
    server: &MockServer,
    args: impl IntoIterator<Item = S>,
) -> Output {
    run(home, &server.base_url(), args).output().unwrap()
}

/// The directory of the only run below `out`.
pub(crate) fn folder(home: &Home) -> PathBuf {
    let mut found: Vec<PathBuf> =
        fs::read_dir(home.file("out")).unwrap().flatten().map(|entry| entry.path()).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

/// A JSON file of it.
pub(crate) fn json(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}: {text}", path.display()))
}

/// The events of the run.
pub(crate) fn events(folder: &Path) -> Vec<Value> {
    let text = fs::read_to_string(folder.join("events.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The kinds of the events of the run.
pub(crate) fn kinds(folder: &Path) -> Vec<String> {
    events(folder).iter().map(|event| event["kind"].as_str().unwrap().to_owned()).collect()
}

/// Checks that the run left a record that reads, with this outcome, and nothing else on the machine.
pub(crate) fn check_record(home: &Home, output: &Output, outcome: &str) -> PathBuf {
    let folder = folder(home);
    let record = json(&folder.join("trajectory.json"));
    assert_eq!(record["metadata"]["outcome"], outcome, "{}", err(output));
    let summary = json(&folder.join("run.json"));
    assert_eq!(summary["outcome"], outcome);
    assert_eq!(kinds(&folder).last().unwrap(), "ended");
    assert!(folder.join("files").is_dir());
    let names = fs::read_dir(&folder).unwrap().flatten();
    assert!(
        names.map(|entry| entry.file_name()).all(|name| !name.to_string_lossy().starts_with('.'))
    );
    wait_for("clean-up", || home.traces().is_empty().then_some(()));
    let images = home.json(["image", "list", "--json"]);
    let images = images.as_array().unwrap();
    let layers = fs::read_dir(home.state().join("images/layers")).into_iter().flatten();
    match outcome {
        // These can be resumed: the last saved files are kept, and no others.
        "cancelled" | "infrastructure" | "max_turns" | "max_tokens" | "deadline" | "cost" => {
            assert!(images.len() <= 1, "{images:?}");
            for image in images {
                let name = image["name"].as_str().unwrap();
                assert!(name.starts_with("run-"), "{name}");
                home.ok(["image", "rm", name]);
            }
        }
        _ => {
            assert_eq!(images.len(), 0, "{images:?}");
            assert_eq!(layers.count(), 0, "layers of saved files were left behind");
        }
    }
    folder
}
