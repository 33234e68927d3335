//! Measures of episodes against values computed by hand.

use std::{fs, os::unix::fs::symlink, path::Path};

use serde_json::{Value, json};

use super::*;
use crate::validation::{
    CompareOptions, Comparison, Point, SetInfo, Step, VERSION, compare, markdown, step_directory,
};

/// An episode: the end of its record, and its responses with their stops.
struct Episode {
    end: &'static str,
    responses: Vec<(Value, &'static str)>,
}

fn command(text: &str) -> (Value, &'static str) {
    let call = json!({"id": "1", "name": "execute_bash", "arguments": {"command": text}});
    (json!({"text": "so", "calls": [call]}), "tool_calls")
}

/// Writes a set of one episode per problem, with their events.
fn write(run: &Path, set: &str, mode: &str, episodes: &[Episode]) {
    let dir = step_directory(run, 0);
    fs::create_dir_all(&dir).unwrap();
    fs::create_dir_all(run.join("episodes")).unwrap();
    let mut records = String::new();
    for (at, Episode { end, responses }) in episodes.iter().enumerate() {
        let events = format!("episodes/{set}-{at}.jsonl");
        let record = EpisodeRecord {
            id: format!("p{at}"),
            score: Some(0.0),
            answer: "4".into(),
            turns: responses.len() as u32,
            end: (*end).to_owned(),
            events: Some(events.clone()),
            ..EpisodeRecord::default()
        };
        records += &format!("{}\n", serde_json::to_string(&record).unwrap());
        let started =
            json!({"kind": "started", "problem_statement": "p", "messages": [], "model": "m"});
        let responses = responses.iter().zip(1..).map(|((message, stop), turn)| {
            json!({"kind": "replied", "turn": turn, "message": message, "stop": stop, "usage": {}, "millis": 1})
        });
        let lines = [started].into_iter().chain(responses).map(|mut line| {
            line["v"] = json!(1);
            line["at"] = json!(0);
            format!("{line}\n")
        });
        fs::write(run.join(events), lines.collect::<String>()).unwrap();
    }
    fs::write(dir.join(format!("{set}.jsonl")), records).unwrap();
    let settings = json!({"mode": mode}).as_object().cloned().unwrap();
    let metrics = serde_json::Map::new();
    let info = SetInfo { version: VERSION, name: Some(set.into()), step: 0, settings, metrics };
    fs::write(dir.join(format!("{set}.json")), serde_json::to_vec(&info).unwrap()).unwrap();
}

fn compared(base: &Path, other: &Path) -> Comparison {
    let [base, other] = [base, other].map(|run| Point { run: run.to_owned(), step: Step::Last });
    let options = CompareOptions { analyses: true, ..CompareOptions::default() };
    compare(&base, &other, &options).unwrap()
}

fn analyses_of(found: &Comparison) -> &SetAnalyses {
    found.sets[0].analyses.as_ref().unwrap()
}

#[track_caller]
fn means(found: &Comparison, name: &str) -> (usize, [f64; 2]) {
    let measures = &analyses_of(found).measures;
    let measured = measures.iter().find(|measured| measured.measure.name() == name).unwrap();
    (measured.difference.problems, measured.difference.means)
}

#[test]
fn use_of_the_sandbox_is_a_share_of_turns() {
    let dir = tempfile::tempdir().unwrap();
    let [base, other] = ["base", "other"].map(|name| dir.path().join(name));
    let reading = || command("cat a.txt");
    let computing = || command("python3 -c 'print(sum(range(9)))'");
    let cut_off = || (json!({"text": "so it"}), "length");
    write(
        &base,
        "set",
        "sandbox",
        &[
            Episode { end: "submitted", responses: vec![reading(), computing()] },
            Episode {
                end: "max_turns",
                responses: vec![computing(), cut_off(), cut_off(), reading()],
            },
            Episode { end: "timeout", responses: vec![] },
        ],
    );
    write(
        &other,
        "set",
        "sandbox",
        &[
            Episode { end: "submitted", responses: vec![reading()] },
            Episode { end: "submitted", responses: vec![reading()] },
            Episode { end: "submitted", responses: vec![reading()] },
        ],
    );
    let found = compared(&base, &other);
    assert_eq!(means(&found, "turns"), (3, [2.0, 1.0]));
    assert_eq!(means(&found, "at_limit"), (3, [2.0 / 3.0, 0.0]));
    // An episode without a turn has no share of turns, but it uses nothing.
    assert_eq!(means(&found, "extended/file"), (2, [0.375, 1.0]));
    assert_eq!(means(&found, "extended/computation"), (2, [0.375, 0.0]));
    assert_eq!(means(&found, "paper/external"), (2, [0.0, 0.0]));
    assert_eq!(means(&found, "cut_off"), (2, [0.25, 0.0]));
    assert_eq!(means(&found, "uses/computation"), (3, [2.0 / 3.0, 0.0]));
    assert_eq!(means(&found, "programs"), (2, [0.375, 0.0]));
    assert_eq!(means(&found, "uses/programs"), (3, [2.0 / 3.0, 0.0]));
    let analyses = analyses_of(&found);
    assert_eq!((analyses.read, analyses.unread), ([3, 3], [0, 0]));
    let pooled = analyses.capabilities.unwrap();
    assert_eq!((pooled[0].extended.turns, pooled[0].extended.computation), (6, 2));
    assert_eq!(analyses.styles, None);
    let text = markdown(&found);
    assert!(text.contains("| set | 3 | 2.00 → 1.00, -1.00 "), "{text}");
    assert!(text.contains("| set | 2 | 0.0% → 0.0%, +0.0 | 37.5% → 100.0%, +62.5 "), "{text}");
    assert!(!text.contains("Plain"), "{text}");
    let json = serde_json::to_value(&found).unwrap();
    let first = &json["sets"][0]["analyses"]["measures"][0];
    assert_eq!((&first["measure"], &first["problems"]), (&json!("response_tokens"), &json!(3)));
}

#[test]
fn plain_responses_are_read_from_their_events() {
    let dir = tempfile::tempdir().unwrap();
    let [base, other] = ["base", "other"].map(|name| dir.path().join(name));
    let said =
        |text: &str| Episode { end: "submitted", responses: vec![(json!({"text": text}), "end")] };
    write(&base, "a|b", "llm", &[said("It is 4."), said("So 5."), said(" ")]);
    let checked = "1. Add.\n2. Halve.\nLet's verify this.\nAnswer: 4";
    write(&other, "a|b", "llm", &[said(checked), said("So 5."), said("Six")]);
    let found = compared(&base, &other);
    // An empty response has no style.
    assert_eq!(means(&found, "checks_itself"), (2, [0.0, 0.5]));
    assert_eq!(means(&found, "structured"), (2, [0.0, 0.5]));
    assert_eq!(means(&found, "pattern/numbered"), (2, [0.0, 1.0]));
    assert_eq!(means(&found, "words"), (2, [2.5, 4.5]));
    assert_eq!(analyses_of(&found).styles.unwrap().map(|style| style.answers), [2, 3]);
    let text = markdown(&found);
    assert!(text.contains("| a\\|b | 2 |") && !text.contains("Use of the sandbox"), "{text}");
    // Another mode is another behavior: only what both have is compared.
    fs::write(step_directory(&base, 0).join("a|b.json"), {
        let text = fs::read_to_string(step_directory(&base, 0).join("a|b.json")).unwrap();
        text.replace("llm", "sandbox")
    })
    .unwrap();
    let found = compared(&base, &other);
    assert_eq!((analyses_of(&found).mode, analyses_of(&found).measures.len()), (None, 2));
}

#[test]
fn events_that_cannot_be_read_are_counted_and_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let [base, other] = ["base", "other"].map(|name| dir.path().join(name));
    let reading = || Episode { end: "submitted", responses: vec![command("cat a.txt")] };
    let episodes: Vec<Episode> = (0..5).map(|_| reading()).collect();
    write(&base, "set", "sandbox", &episodes);
    write(&other, "set", "sandbox", &episodes);
    fs::remove_file(base.join("episodes/set-0.jsonl")).unwrap();
    fs::write(base.join("episodes/set-1.jsonl"), "{\"v\":1\n").unwrap();
    let outside = dir.path().join("outside.jsonl");
    fs::rename(other.join("episodes/set-2.jsonl"), &outside).unwrap();
    symlink(&outside, other.join("episodes/set-2.jsonl")).unwrap();
    let records = step_directory(&other, 0).join("set.jsonl");
    let text = fs::read_to_string(&records).unwrap();
    fs::write(&records, text.replace("episodes/set-3.jsonl", "../outside.jsonl")).unwrap();
    let found = compared(&base, &other);
    assert_eq!((analyses_of(&found).read, analyses_of(&found).unread), ([3, 3], [2, 2]));
    assert_eq!(means(&found, "extended/file"), (1, [1.0, 1.0]));
    assert_eq!(means(&found, "turns").0, 5);
}
