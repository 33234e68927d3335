//! Invalid input is named, and exits with code 2 before anything starts.

use std::fs;

use crate::support::Toy;

fn refused(toy: &Toy, args: &[&str]) -> String {
    let output = toy.run(args);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
    said
}

#[test]
fn invalid_configurations_are_rejected() {
    let toy = Toy::new();
    let least = "model = \"DIR/model\"\noutput = \"DIR/run\"\nsteps = 1\ndevice = \"cpu\"\n[data]\ntask = \"DIR/task\"\n\
                 train = [\"DIR/rows.jsonl\"]\n[rollout]\nmode = \"llm\"\nproblems = 2\nmembers = 2\ntokens = 256\n";
    let path = toy.config("rl.toml", least);
    let path = path.to_str().unwrap();
    for (change, word) in [
        ("steps=2000000", "steps"),
        ("rollout.turns=0", "rollout.turns"),
        ("nonsense=1", "nonsense"),
        ("rollout.problems=99", "has 4 problems"),
        ("data.task=nowhere", "nowhere"),
        ("model=nowhere", "there is no model nowhere"),
        ("device=\"cuda:7\"", "cuda:7"),
        ("nonsense", "KEY=VALUE"),
    ] {
        let said = refused(&toy, &["rl", path, "--set", change, "--set", "output=other"]);
        assert!(said.contains(word), "{change}: {said}");
    }
    assert!(refused(&toy, &["rl", path, "--no-such-option"]).contains("--no-such-option"));
    // A pulled model is known by its name.
    fs::create_dir_all(toy.path("home/models/pulled")).unwrap();
    fs::write(toy.path("home/models/pulled/weights.gguf"), "no weights").unwrap();
    let said = refused(&toy, &["rl", path, "--set", "model=pulled"]);
    assert!(said.contains("pulled/weights.gguf"), "{said}");
}

#[test]
fn missing_files_are_named() {
    let toy = Toy::new();
    fs::create_dir(toy.path("empty")).unwrap();
    fs::create_dir(toy.path("other")).unwrap();
    fs::write(toy.path("other/config.json"), "{}").unwrap();
    fs::write(toy.path("bytes.toml"), [0xff]).unwrap();
    for (args, word) in [
        (["rl", "nowhere.toml"].as_slice(), "nowhere.toml"),
        (&["sft", "empty"], "empty"),
        (&["rl", "bytes.toml"], "bytes.toml"),
        (&["export", "nowhere", "--to", "x"], "nowhere"),
        (&["export", "empty", "--to", "x"], "empty"),
        (&["export", "rows.jsonl", "--to", "x"], "rows.jsonl"),
        (&["export", "other", "--to", "x"], "is not a run directory"),
        (&["export", "nowhere", "--to", "other"], "must be new or empty"),
        (&["export", "nowhere", "--peft", "other"], "must be new or empty"),
        (&["export", "nowhere", "--adapter", "other"], "not a file"),
        (&["export", "nowhere", "--to", "x", "--peft", "x"], "different directories"),
    ] {
        let said = refused(&toy, args);
        assert!(said.contains(word), "{args:?}: {said}");
    }
    assert!(!toy.path("x").exists());
}

#[test]
fn a_grader_that_cannot_run_its_command_is_named_with_the_reason() {
    let toy = Toy::new();
    let text = "model = \"DIR/model\"\noutput = \"DIR/run\"\nsteps = 1\ndevice = \"cpu\"\n[data]\ntask = \"DIR/chance\"\n\
                train = [\"DIR/rows.jsonl\"]\n[rollout]\nmode = \"llm\"\nproblems = 2\nmembers = 2\ntokens = 256\n";
    let config = toy.config("rl.toml", text);
    let mut command = toy.command(&["rl", config.to_str().unwrap()]);
    // A state directory below a file is impossible, so there are no sandboxes.
    let output = command.env("LLM_IN_SANDBOX_HOME", toy.path("rows.jsonl/below")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("for state"), "{said}");
    assert!(said.contains("graded by a command") && !said.contains("or mode `llm`"), "{said}");
}

#[test]
fn missing_training_data_is_reported() {
    let toy = Toy::new();
    fs::create_dir(toy.path("records")).unwrap();
    fs::write(toy.path("records/x.jsonl"), "nonsense\n").unwrap();
    let text = "model = \"DIR/model\"\noutput = \"DIR/run\"\ndevice = \"cpu\"\n[data]\ntask = \"DIR/task\"\n\
                trajectories = [\"DIR/records\"]\n";
    let path = toy.config("sft.toml", text);
    let said = refused(&toy, &["sft", path.to_str().unwrap()]);
    assert!(said.contains("nothing to train on") && said.contains("x.jsonl"), "{said}");
}
