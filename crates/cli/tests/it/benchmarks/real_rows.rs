//! The whole path on real rows: right answers in, all points out; wrong ones in, none out.

use std::collections::HashMap;

use serde_json::{Value, json};
use testkit::{Keep, MockServer, Received, bash, say};

use super::{Script, attempts, benched, group, leave, rows, shared, text};
use crate::support::Home;

/// A judge that compares candidate and official answer letter by letter.
fn strict_judge() -> MockServer {
    let verdict = |asked: &Received| {
        let prompt = text(&asked.messages()[0]["content"]);
        let after = |mark: &str| prompt.split_once(mark).unwrap().1.to_owned();
        let official = after("The OFFICIAL ANSWER: ");
        let candidate = after("CANDIDATE ANSWER TO ASSESS: ");
        let candidate = candidate.rsplit_once("\n\nReply only").unwrap().0;
        say(if official.starts_with(&format!("{candidate}\nCANDIDATE")) {
            "CORRECT"
        } else {
            "INCORRECT"
        })
    };
    MockServer::answering_and(Keep::Counts, verdict).unwrap()
}

/// Right and wrong answers to all rows of a task that a program grades.
fn check(
    task: &str,
    file: &str,
    count: usize,
    right: fn(&Value) -> String,
    wrong: fn(&Value) -> String,
) {
    let Some(path) = shared(file) else { return };
    let Some(home) = Home::with_sandboxes() else { return };
    let rows = rows(&path);
    assert_eq!(rows.len(), count);
    let data = path.to_str().unwrap();
    for (answer, score, out) in [(right, 1.0, "right"), (wrong, 0.0, "wrong")] {
        let server = Script::new(&rows, answer).serve();
        let args = [task, "--data", data, "--mode", "both", "--output", out];
        let results = benched(&home, &server, &args, 0);
        for mode in ["llm", "sandbox"] {
            let group = group(&results, task, mode);
            assert_eq!(group["mean_score"], score, "{mode}: {group}");
            assert_eq!((&group["graded"], &group["asked"]), (&json!(count), &json!(count)));
        }
        // One call for each attempt: nothing was asked twice.
        assert_eq!(server.count(), 2 * count);
    }
}

#[test]
fn mathematics() {
    let right = |row: &Value| format!("\\boxed{{{}}}", text(&row["ground_truth"]));
    let wrong = |row: &Value| format!("\\boxed{{1{}}}", text(&row["ground_truth"]));
    check("math", "data/tasks/math.jsonl", 30, right, wrong);
}

#[test]
fn medicine() {
    let right = |row: &Value| format!("The answer is {}.", text(&row["ground_truth"]));
    let wrong = |row: &Value| (if row["ground_truth"] == "A" { "B" } else { "A" }).to_owned();
    check("biomed", "data/tasks/biomed.jsonl", 100, right, wrong);
}

/// The rows hold no right answers. The official program's verdicts on other texts tell some: those on the same
/// constraint with the same values. Rows with several constraints, and those nobody wrote a good text for, are
/// only asked to fail: an empty text follows no constraint.
#[test]
fn instructions() {
    let (Some(path), Some(cases)) =
        (shared("data/tasks/instruct_follow.jsonl"), shared("cases/ifbench.jsonl"))
    else {
        return;
    };
    let Some(home) = Home::with_sandboxes() else { return };
    let all = rows(&path);
    assert_eq!(all.len(), 300);
    let given = |kwargs: &Value| {
        let map = kwargs.as_object().cloned().unwrap_or_default();
        Value::Object(map.into_iter().filter(|(_, value)| !value.is_null()).collect()).to_string()
    };
    let mut good = HashMap::new();
    for case in rows(&cases) {
        // What surrounds an answer does not reach the grader.
        let response = text(&case["response"]);
        let bare = response.trim() == response && !response.contains(['\r', '\u{1b}']);
        if case["loose_verdict"] == true && bare && !response.is_empty() {
            good.insert(
                (text(&case["instruction_id"]), given(&case["kwargs"])),
                text(&case["response"]),
            );
        }
    }
    let known = |row: &Value| {
        let truth: Value = serde_json::from_str(&text(&row["ground_truth"])).unwrap();
        let ids = truth["instruction_id_list"].as_array().unwrap();
        let key = (text(&ids[0]), given(&truth["kwargs"][0]));
        good.get(&key).filter(|_| ids.len() == 1).cloned()
    };
    let followed: Vec<Value> = all.iter().filter(|row| known(row).is_some()).cloned().collect();
    assert!(followed.len() >= 200, "only {}", followed.len());
    let ids: Vec<String> = followed.iter().map(|row| text(&row["id"])).collect();
    let data = path.to_str().unwrap();

    let server = Script::new(&followed, |row| known(row).unwrap()).serve();
    let ids = ids.join(",");
    let args = ["instruct_follow", "--data", data, "--ids", &ids, "--output", "right"];
    let results = benched(&home, &server, &args, 0);
    let failed: Vec<Value> = attempts(&home.file("right"))
        .into_iter()
        .filter(|attempt| attempt["score"] != 1.0)
        .collect();
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(results["total"], followed.len());

    let server = MockServer::answering_and(Keep::Counts, |_| say("")).unwrap();
    let args = ["instruct_follow", "--data", data, "--mode", "llm", "--output", "wrong"];
    let results = benched(&home, &server, &args, 0);
    assert_eq!((&results["mean_score"], &results["total"]), (&json!(0.0), &json!(300)));
}

#[test]
fn physics_with_a_judge() {
    let Some(path) = shared("data/tasks/physics.jsonl") else { return };
    let Some(home) = Home::with_sandboxes() else { return };
    let rows = rows(&path);
    assert_eq!(rows.len(), 65);
    let judge = strict_judge();
    let url = judge.base_url();
    let data = path.to_str().unwrap();
    for (score, out, mode) in [(1.0, "right", "both"), (0.0, "wrong", "sandbox")] {
        let answer = |row: &Value| match out {
            // What surrounds an answer is cut off.
            "right" => text(&row["ground_truth"]).trim().to_owned(),
            _ => "no idea".to_owned(),
        };
        let server = Script::new(&rows, answer).serve();
        let judged = ["--judge-model", "judge", "--judge-base-url", &url];
        let args = ["physics", "--data", data, "--mode", mode, "--output", out];
        let results = benched(&home, &server, &[&args[..], &judged].concat(), 0);
        assert_eq!(results["mean_score"], score, "{results}");
        assert_eq!(results["ungraded"], 0);
        let kept = attempts(&home.file(out));
        let votes = if score > 0.5 { "CORRECT" } else { "INCORRECT" };
        assert_eq!(kept[0]["grade"]["votes"], json!(vec![votes; 4]));
        assert_eq!(kept[0]["grade"]["judge"], "judge");
    }
    assert_eq!(judge.count(), 4 * (65 * 3));
}

#[test]
fn long_documents_reach_the_computer() {
    let Some(path) = shared("data/tasks/long_context_sample.jsonl") else { return };
    let Some(home) = Home::with_sandboxes() else { return };
    let rows = rows(&path);
    assert_eq!(rows.len(), 3);
    let judge = strict_judge();
    let url = judge.base_url();
    let sizes: HashMap<String, String> = rows
        .iter()
        .map(|row| {
            let files = row["input_files"].as_object().unwrap();
            let all: usize = files.values().map(|file| file.as_str().unwrap().len()).sum();
            (text(&row["problem_statement"]), format!("documents-hold-{all}-bytes"))
        })
        .collect();
    let script = Script::new(&rows, |row| text(&row["ground_truth"]));
    let server = MockServer::answering_and(Keep::Counts, move |asked| {
        let (statement, right) =
            script.answers.iter().find(|(statement, _)| asked.mentions(statement)).unwrap();
        // The model has seen all documents if their sizes add up.
        let size = "cat /testbed/documents/* | wc -c | sed 's/.*/documents-hold-&-bytes/'";
        match asked.turns() {
            0 => bash(size),
            _ if asked.mentions(&sizes[statement]) => leave(right),
            _ => leave("the documents did not come"),
        }
    })
    .unwrap();
    let data = path.to_str().unwrap();
    let args = ["long_context", "--data", data, "--judge-model", "judge", "--judge-base-url", &url];
    let results = benched(&home, &server, &args, 0);
    assert_eq!(results["mean_score"], 1.0, "{:?}", attempts(&home.file("out")));
    // Where the documents are in the prompt, the plain model reads them there.
    let script = Script::new(&rows, |row| text(&row["ground_truth"]));
    let server = MockServer::answering_and(Keep::Counts, move |asked| {
        let prompt = asked.messages()[0]["content"].to_string();
        say(if prompt.len() > 200_000 { script.answer(asked) } else { "no documents" })
    })
    .unwrap();
    let plain = [&args[..], &["--mode", "llm", "--output", "llm"]].concat();
    assert_eq!(benched(&home, &server, &plain, 0)["mean_score"], 1.0);
    // The judge sees a wrong answer for what it is, whoever gives it.
    let server = Script::new(&rows, |_| "no idea".to_owned()).serve();
    let wrong = [&args[..], &["--mode", "both", "--output", "wrong"]].concat();
    let results = benched(&home, &server, &wrong, 0);
    let told = [&results["mean_score"], &results["total"], &results["ungraded"]];
    assert_eq!(told, [&json!(0.0), &json!(6), &json!(0)]);
}
