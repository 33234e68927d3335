//! Verdicts equal those of the official graders, on shared cases and our own.

use lis_grade::{
    judge,
    lines::{Kind, grade_line},
    rouge, stem,
};
use serde_json::Value;

use crate::support::{own_cases, shared_cases};

/// Grades each case as a line and compares one field of the grade with one of the case.
fn check(cases: &[Value], kind: Kind, (ours, theirs): (&str, &str)) {
    let mut wrong = Vec::new();
    for case in cases {
        let graded = grade_line(kind, &case.to_string()).unwrap();
        let line: Value = serde_json::from_str(&graded.json).unwrap();
        assert_eq!(line.get("id"), case.get("id"));
        let same = match (&line[ours], &case[theirs]) {
            (Value::Number(one), Value::Number(other)) => {
                (one.as_f64().unwrap() - other.as_f64().unwrap()).abs() < 1e-6
            }
            (one, other) => one == other,
        };
        if !same {
            wrong.push(format!("{} instead of {}: {case}", line[ours], case[theirs]));
        }
    }
    println!("{}: {} of {} cases agree", kind.name(), cases.len() - wrong.len(), cases.len());
    assert!(!cases.is_empty() && wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Our own files, and the shared ones where they exist.
fn check_both(own: &str, shared: &str, kind: Kind, fields: (&str, &str)) {
    check(&own_cases(own), kind, fields);
    if let Some(cases) = shared_cases(shared) {
        check(&cases, kind, fields);
    }
}

#[test]
fn choice_letters() {
    check_both("choice.jsonl", "multiple_choice.jsonl", Kind::Choice, ("score", "score"));
}

#[test]
fn extracted_letters() {
    for case in own_cases("choice.jsonl") {
        let letter = lis_grade::choice::letter(case["agent_answer"].as_str().unwrap());
        assert_eq!(letter, case["extracted"].as_str().unwrap(), "{case}");
    }
}

#[test]
fn rouge_l() {
    check_both("rouge.jsonl", "rouge_l.jsonl", Kind::Rouge, ("fmeasure", "fmeasure"));
}

#[test]
fn context_rewards() {
    check_both("context.jsonl", "context_reward.jsonl", Kind::Context, ("score", "score"));
}

#[test]
fn judges_verdicts() {
    let fields = ("verdict", "verdict");
    check_both("verdict.jsonl", "judge_verdict.jsonl", Kind::JudgeVerdict, fields);
}

#[test]
fn judges_prompts() {
    let shared = shared_cases("judge_prompt.jsonl").unwrap_or_default();
    for case in own_cases("prompt.jsonl").iter().chain(&shared) {
        let text = |field: &str| case[field].as_str().unwrap();
        let prompt = judge::prompt(text("question"), text("ground_truth"), text("model_answer"));
        assert_eq!(prompt, text("prompt"));
    }
}

#[test]
fn stems() {
    for case in own_cases("stem.jsonl") {
        assert_eq!(
            stem::stem(case["w"].as_str().unwrap()),
            case["stem"].as_str().unwrap(),
            "{case}"
        );
    }
    // Words of ROUGE-L, which does not stem short ones.
    for case in shared_cases("nlp/porter_stems.jsonl").unwrap_or_default() {
        assert_eq!(
            rouge::words(case["w"].as_str().unwrap()),
            [case["stem"].as_str().unwrap()],
            "{case}"
        );
    }
}
