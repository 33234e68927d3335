//! The example tasks from end to end: a repository whose tests decide, and receipts a command checks.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};
use testkit::{Answer, Keep, MockServer, Received, bash, calls, say, submit};

use super::{Script, attempts, benched, group, rows, text};
use crate::support::{Home, crate_path, err, refusal, skip, write};

fn example(name: &str) -> PathBuf {
    crate_path("../../examples/tasks").join(name)
}

/// A home whose sandboxes have these programs.
fn home_with(programs: &str) -> Option<Home> {
    let home = Home::with_sandboxes()?;
    let found = home.run(["sandbox", "run", "--", "sh", "-c", programs]);
    if found.status.success() {
        return Some(home);
    }
    skip("git", &format!("this machine lacks programs: {}", err(&found)));
    None
}

#[test]
fn a_repository_is_mended_and_its_tests_decide() {
    let Some(home) = home_with("command -v git && command -v python3") else { return };
    let dir = example("repository");
    let rows = rows(&dir.join("rows.jsonl"));
    let dir = dir.to_str().unwrap();
    for (out, score) in [("mended", 1.0), ("untouched", 0.0), ("forged", 0.0)] {
        let script = Script::new(&rows, |row| text(&row["patch"]));
        let server = MockServer::answering_and(Keep::Counts, move |asked: &Received| -> Answer {
            let patch = script.answer(asked);
            match (out, asked.body["tools"].is_null(), asked.turns()) {
                ("mended", true, _) => say(format!("Here it is:\n```diff\n{patch}```\n")).into(),
                ("mended", false, 0) => {
                    bash(format!("cd /testbed && git apply <<'END'\n{patch}END")).into()
                }
                ("forged", false, 0) => {
                    // A shell in which every test passes.
                    bash("python3() { echo OK; }; export -f python3; echo x >> README.md").into()
                }
                (_, true, _) => say("I see no repository.").into(),
                _ => submit().into(),
            }
        })
        .unwrap();
        let results = benched(&home, &server, &[dir, "--mode", "both", "--output", out], 0);
        let kept = attempts(&home.file(out));
        for mode in ["llm", "sandbox"] {
            let figures = group(&results, "repository", mode);
            assert_eq!(figures["mean_score"], score, "{out} {mode}: {kept:?}");
            assert_eq!(figures["graded"], rows.len(), "{out} {mode}");
        }
        let patch = |attempt: &&Value| attempt["mode"] == "sandbox";
        let answer = text(&kept.iter().find(patch).unwrap()["answer"]);
        assert_eq!(answer.is_empty(), out == "untouched", "{out}: {answer}");
    }
}

#[test]
fn an_image_that_is_not_there_costs_its_problem_alone() {
    let Some(home) = home_with("command -v git && command -v python3") else { return };
    let dir = example("repository");
    write(&home.file("mine/task.toml"), fs::read_to_string(dir.join("task.toml")).unwrap());
    let mut all = rows(&dir.join("rows.jsonl"));
    all[1]["image"] = "nowhere".into();
    write(&home.file("mine/rows.jsonl"), format!("{}\n{}\n", all[0], all[1]));
    let server = MockServer::answering(|_| submit()).unwrap();
    let results = benched(&home, &server, &["./mine", "--max-failures", "1"], 4);
    let figures = group(&results, "repository", "sandbox");
    assert_eq!((&figures["graded"], &figures["infrastructure"]), (&json!(1), &json!(1)));
    let kept = attempts(&home.file("out"));
    let failed = kept.iter().find(|attempt| attempt["outcome"] == "infrastructure").unwrap();
    assert_eq!(failed["tries"], 1, "{failed}");
    assert!(text(&failed["cause"]).contains("nowhere"), "{failed}");
}

#[test]
fn a_repository_that_cannot_be_there_or_change_is_refused() {
    let home = Home::new();
    let dir = example("repository");
    let server = MockServer::start().unwrap();
    for (option, value) in [("--without", "files"), ("--documents", "prompt")] {
        let args = [dir.to_str().unwrap(), option, value];
        let output = super::bench(&home, &server.base_url(), args).output().unwrap();
        assert!(refusal(&output, 2).contains(&format!("{option} {value}")), "{}", err(&output));
    }
}

#[test]
fn receipts_are_added_up_and_a_program_checks() {
    let Some(home) = home_with("command -v python3") else { return };
    let dir = example("receipts");
    let all = rows(&dir.join("rows.jsonl"));
    let dir = dir.to_str().unwrap();
    let server = Script::new(&all, |row| text(&row["ground_truth"])).serve();
    let results = benched(&home, &server, &[dir, "--mode", "both"], 0);
    assert_eq!(results["mean_score"], 1.0, "{:?}", attempts(&home.file("out")));
    let server = Script::new(&all, |_| "a lot".to_owned()).serve();
    let results = benched(&home, &server, &[dir, "--output", "wrong"], 0);
    assert_eq!(results["mean_score"], 0.0);
    // Two tasks at once, each with rows of its own.
    let math = super::sums(&home, 2);
    let data = format!("math={}", math.display());
    let rows: Vec<Value> = all.into_iter().chain((0..2).map(super::sum)).collect();
    let server = Script::new(&rows, |row| text(&row["ground_truth"])).serve();
    let args = [dir, "math", "--data", &data, "--mode", "llm", "--output", "two"];
    let results = benched(&home, &server, &args, 0);
    assert_eq!(results["task"], "receipts,math");
    assert_eq!(group(&results, "math", "llm")["mean_score"], 1.0);
    assert_eq!(group(&results, "receipts", "llm")["mean_score"], 1.0);
}

#[test]
fn calls_and_sandboxes_are_bounded_apart() {
    let Some(home) = Home::with_sandboxes() else { return };
    let data = super::sums(&home, 12);
    let script = super::sums_script(12);
    let slow = std::time::Duration::from_millis(40);
    let server =
        MockServer::answering_and(Keep::Counts, move |asked| script.reply(asked).after(slow))
            .unwrap();
    let args = ["math", "--data", data.to_str().unwrap(), "--mode", "both", "--model-calls", "2"];
    let results = benched(&home, &server, &args, 0);
    assert_eq!((&results["mean_score"], server.peak()), (&json!(1.0), 2));
}

#[test]
fn an_attempt_has_its_time_and_what_it_left_counts() {
    let Some(home) = Home::with_sandboxes() else { return };
    let data = super::sums(&home, 1);
    let server = MockServer::answering(|asked| match asked.body["tools"].is_null() {
        true => Answer::hang(),
        false => calls([
            testkit::Call::bash("echo '\\boxed{1}' > answer.txt"),
            testkit::Call::bash("sleep 60"),
        ])
        .into(),
    })
    .unwrap();
    let args = ["math", "--data", data.to_str().unwrap(), "--mode", "both", "--deadline", "2"];
    let results = benched(&home, &server, &args, 0);
    for (mode, score) in [("sandbox", 1.0), ("llm", 0.0)] {
        let figures = group(&results, "math", mode);
        assert_eq!(figures["outcomes"], json!({"deadline": 1}), "{mode}");
        assert_eq!(figures["mean_score"], score, "{mode}");
    }
}
