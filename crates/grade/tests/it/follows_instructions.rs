//! Constraints on texts: every verdict is the official one, strict and loose, exceptions included.

use std::time::Instant;

use lis_grade::ifbench::{Verdict, check, score};
use serde_json::{Value, json};

use crate::support::{own_cases, shared_cases};

/// The verdict on a case, and the official one.
fn verdicts(case: &Value) -> (Verdict, Verdict) {
    let text = |name: &str| case[name].as_str().unwrap();
    let flag = |name: &str| case[name].as_bool().unwrap();
    let ours = check(text("instruction_id"), case["kwargs"].as_object().unwrap(), text("response"));
    let official = Verdict {
        strict: flag("official_verdict"),
        loose: flag("loose_verdict"),
        loose8: flag("loose8_verdict"),
        raises: case["raises"].as_str().map(str::to_owned),
    };
    (ours, official)
}

fn agree(cases: &[Value]) {
    let start = Instant::now();
    let differ = |case: &&Value| {
        let (ours, official) = verdicts(case);
        ours != official
    };
    let wrong: Vec<&Value> = cases.iter().filter(differ).collect();
    let rate = cases.len() as f64 / start.elapsed().as_secs_f64();
    println!("{} of {} cases differ; {rate:.0} cases a second", wrong.len(), cases.len());
    for case in &wrong {
        println!("{:?} {case}", verdicts(case));
    }
    assert!(wrong.is_empty());
}

#[test]
fn as_on_the_shared_cases() {
    if let Some(cases) = shared_cases("ifbench.jsonl") {
        agree(&cases);
    }
}

#[test]
fn as_on_fresh_cases() {
    agree(&own_cases("ifbench.jsonl"));
}

#[test]
fn a_prompt_s_score_is_loose_and_wants_every_constraint() {
    let cases = own_cases("ifbench.jsonl");
    for pair in cases.chunks(2) {
        let truth = json!({
            "instruction_id_list": pair.iter().map(|case| &case["instruction_id"]).collect::<Vec<_>>(),
            "kwargs": pair.iter().map(|case| &case["kwargs"]).collect::<Vec<_>>(),
        });
        let response = pair[0]["response"].as_str().unwrap();
        let one = |case: &Value| {
            let id = case["instruction_id"].as_str().unwrap();
            check(id, case["kwargs"].as_object().unwrap(), response).loose
        };
        let all = pair.iter().all(one);
        assert_eq!(score(&truth.to_string(), response), f64::from(u8::from(all)), "{truth}");
    }
}
