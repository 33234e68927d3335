//! Bad input is named, and ends the program with code 2 before anything is begun.

use std::fs;

use crate::support::Toy;

fn refused(toy: &Toy, args: &[&str]) -> String {
    let output = toy.run(args);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
    said
}

#[test]
fn configurations_that_make_no_sense_are_refused() {
    let toy = Toy::new();
    let least = "model = \"DIR/model\"\noutput = \"DIR/run\"\nsteps = 1\ndevice = \"cpu\"\n[data]\ntask = \"DIR/task\"\n\
                 train = [\"DIR/rows.jsonl\"]\n[rollout]\nmode = \"llm\"\nproblems = 2\nmembers = 2\ntokens = 256\n";
    let path = toy.config("rl.toml", least);
    let path = path.to_str().unwrap();
    for (change, word) in [
        ("steps=0", "steps"),
        ("rollout.turns=0", "rollout.turns"),
        ("nonsense=1", "nonsense"),
        ("rollout.problems=99", "gives 4 problems"),
        ("data.task=nowhere", "nowhere"),
        ("model=nowhere", "model"),
        ("device=\"cuda:7\"", "cuda:7"),
        ("nonsense", "KEY=VALUE"),
    ] {
        let said = refused(&toy, &["rl", path, "--set", change, "--set", "output=other"]);
        assert!(said.contains(word), "{change}: {said}");
    }
    assert!(refused(&toy, &["rl", path, "--no-such-option"]).contains("--no-such-option"));
}

#[test]
fn nothing_to_learn_from_is_said() {
    let toy = Toy::new();
    fs::create_dir(toy.path("records")).unwrap();
    fs::write(toy.path("records/x.jsonl"), "nonsense\n").unwrap();
    let text = "model = \"DIR/model\"\noutput = \"DIR/run\"\ndevice = \"cpu\"\n[data]\ntask = \"DIR/task\"\n\
                trajectories = [\"DIR/records\"]\n";
    let path = toy.config("sft.toml", text);
    let said = refused(&toy, &["sft", path.to_str().unwrap()]);
    assert!(said.contains("nothing to learn from") && said.contains("x.jsonl"), "{said}");
}
