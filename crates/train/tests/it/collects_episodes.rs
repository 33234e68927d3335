//! `sample` collects episodes with their scores, resumes, and `sft` trains on the correct ones.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::support::{Toy, copy, crate_path, has_sandboxes, row};

const SAMPLE: &str = r#"
model = "DIR/model"
output = "DIR/samples"
seed = 3
device = "cpu"
[data]
task = "DIR/chance"
problems = ["DIR/rows.jsonl", "DIR/rows.jsonl"]
[rollout]
mode = "llm"
problems = 1
members = 3
tokens = 128
tokens_per_reply = 12
slots = 1
sandboxes = 2
"#;

/// The scores of a directory of episodes, by problem and member.
fn scores(dir: &Path) -> Vec<(String, u64, f64)> {
    let mut scores = Vec::new();
    for part in fs::read_dir(dir).unwrap() {
        let part = part.unwrap().path();
        for line in fs::read_to_string(part.join("scores.jsonl")).unwrap().lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            assert!(part.join(line["file"].as_str().unwrap()).is_file());
            let problem = line["problem"].as_str().unwrap().to_owned();
            scores.push((
                problem,
                line["member"].as_u64().unwrap(),
                line["score"].as_f64().unwrap(),
            ));
        }
    }
    scores.sort_by(|one, other| one.partial_cmp(other).unwrap());
    scores
}

#[test]
fn a_model_plays_every_problem_as_often_as_asked_and_only_once() {
    if !has_sandboxes() {
        return;
    }
    let toy = Toy::new();
    toy.write_rows(
        "rows.jsonl",
        [("a", "A"), ("b", "B")].iter().map(|(id, letter)| {
            let mut row = row(id, letter, "1");
            row["subject"] = json!(letter);
            row
        }),
    );
    let config = toy.config("sample.toml", SAMPLE);
    let args = ["sample", config.to_str().unwrap()];
    toy.succeeds(&args);
    let episodes = toy.path("samples/episodes");
    let whole = scores(&episodes);
    assert_eq!(whole.len(), 6, "rows that are listed twice are played once: {whole:?}");
    let right = whole.iter().filter(|(.., score)| *score == 1.0).count();
    assert!((1..6).contains(&right), "random rewards: {whole:?}");
    let summary = || -> Value {
        serde_json::from_slice(&fs::read(toy.path("samples/summary.json")).unwrap()).unwrap()
    };
    let first = summary();
    assert_eq!((&first["episodes"], &first["right"]), (&json!(6), &json!(right)));
    assert_eq!(first["kinds"]["A"]["episodes"], 3);
    // As a kill leaves it: the last line and its log are gone, another log has no score.
    let part = episodes.join("part-000000");
    let text = fs::read_to_string(part.join("scores.jsonl")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    fs::write(part.join("scores.jsonl"), lines[..lines.len() - 1].join("\n") + "\n{\"fi").unwrap();
    fs::write(part.join("0009-000.jsonl"), "").unwrap();
    let output = toy.run(&args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("resuming after step 1 of 2"), "{said}");
    assert!(said.contains(&format!("{right} of 6 episodes are right")), "{said}");
    assert_eq!(scores(&episodes), whole, "the same seeds give the same episodes");
    assert_eq!(summary(), first);
    assert!(!part.join("0009-000.jsonl").exists());
}

/// A directory with the model and task of an older run, and one submitted trajectory for each of these scores.
fn recorded(scores: &[Option<f64>]) -> Toy {
    let toy = Toy::empty();
    let data = crate_path("tests/data/older-run");
    for name in ["model", "task"] {
        copy(&data.join(name), &toy.path(name));
    }
    fs::copy(data.join("sft.toml"), toy.path("sft.toml")).unwrap();
    let text = fs::read(data.join("records/trajectory.json")).unwrap();
    for (at, score) in scores.iter().enumerate() {
        let mut record: Value = serde_json::from_slice(&text).unwrap();
        if let Some(score) = score {
            record["metadata"]["score"] = json!(score);
        }
        let dir = toy.path(&format!("records/{at}"));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("trajectory.json"), record.to_string()).unwrap();
    }
    toy
}

#[test]
fn only_correct_episodes_are_trained_on() {
    let toy = recorded(&[Some(1.0), Some(0.0), None]);
    let output = toy.run(&["sft", "sft.toml", "--set", "epochs=1"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("from 1 episodes"), "{said}");
    assert!(said.contains("1 of 3 submitted episodes have a wrong answer"), "{said}");
    assert!(said.contains("1 of 3 submitted episodes have no recorded score"), "{said}");
    let all = ["--set", "epochs=1", "--set", "data.keep=submitted", "--set", "output=all"];
    let output = toy.run(&[&["sft", "sft.toml"][..], &all].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("from 3 episodes"), "{said}");
}

#[test]
fn without_a_score_it_is_clear_what_to_do() {
    let toy = recorded(&[None]);
    let output = toy.run(&["sft", "sft.toml"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("no recorded score") && said.contains("data.keep = \"submitted\""),
        "{said}"
    );
}
