//! Verdicts on mathematical answers equal those of Math-Verify.

use lis_grade::math::{Target, reward, same_answer};
use serde_json::Value;

use crate::support::{own_cases, shared_cases};

fn text<'c>(case: &'c Value, field: &str) -> &'c str {
    case[field].as_str().unwrap()
}

/// Cases with a different verdict.
fn differing(cases: &[Value]) -> Vec<&Value> {
    let verdict = |case: &Value| match case["params"].as_object() {
        Some(params) => {
            let targets: Vec<Target> = params["match_types"]
                .as_array()
                .unwrap()
                .iter()
                .map(|kind| if kind == "latex" { Target::Latex } else { Target::Plain })
                .collect();
            let places = u32::try_from(params["precision"].as_u64().unwrap()).unwrap();
            same_answer(text(case, "gold"), text(case, "pred"), &targets, places)
        }
        None => reward(text(case, "gold"), text(case, "pred")) > 0.0,
    };
    cases.iter().filter(|case| verdict(case) != case["expected"].as_bool().unwrap()).collect()
}

#[test]
fn fresh_cases() {
    let cases = own_cases("math.jsonl");
    let wrong = differing(&cases);
    assert!(cases.len() > 200 && wrong.is_empty(), "{wrong:#?}");
}

/// Intervals as inequalities and the reverse, fractions and operators as single characters: Math-Verify 0.9.0 accepts an
/// interval for an inequality but not the reverse, and reads no fraction such as `½`.
#[test]
fn other_notations() {
    let cases = own_cases("math_notation.jsonl");
    let wrong = differing(&cases);
    assert!(cases.len() > 500 && wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn shared_cases_agree() {
    let Some(cases) = shared_cases("math_verify.jsonl") else { return };
    let settled = |case: &&Value| case["timeout_suspect"] != true;
    for mode in ["reward", "compare_strings"] {
        let cases: Vec<Value> =
            cases.iter().filter(settled).filter(|case| case["mode"] == mode).cloned().collect();
        let wrong = differing(&cases);
        println!("{mode}: {} of {} cases agree", cases.len() - wrong.len(), cases.len());
        assert!(wrong.len() * 100 <= cases.len(), "{wrong:#?}");
    }
}

#[test]
fn quirks() {
    for (gold, answer, score) in [
        ("16", "Answer: 16", 0.0),
        ("150", "150.", 0.0),
        ("70", "**70**", 0.0),
        ("3", "2 = 3", 1.0),
        ("2", r"\boxed{1} and then \boxed{2}", 1.0),
        ("cat", "act", 1.0),
        ("dog", "god", 0.0),
        ("295", "7 288", 1.0),
        ("3", "3.0000001", 0.0),
        ("0.3333333", "1/3", 1.0),
        ("9", r"9\%", 1.0),
        ("9.5", r"9.5\%", 0.0),
        ("x^2=-1", "x^2=-4", 1.0),
        ("2=3", "5=7", 1.0),
        ("i=13", "i=14", 1.0),
        ("S=7^2", "7^2=a_7=7^2", 1.0),
        ("c", "--c", 0.0),
        ("x+10^{40}", "y+10^{40}", 0.0),
        ("S=6^{55}", "x=6^{55}", 0.0),
    ] {
        assert!((reward(gold, answer) - score).abs() < 1e-9, "{gold} {answer}");
    }
}

#[test]
fn a_set_may_answer_a_relation_but_not_the_reverse() {
    for (relation, set) in [("x \\ge 2", "[2,\\infty)"), ("1<x<2", "(1,2)")] {
        assert_eq!(reward(relation, set), 1.0, "{relation} {set}");
        assert_eq!(reward(set, relation), 0.0, "{set} {relation}");
    }
}

#[test]
fn huge_numbers_are_bounded_in_time() {
    for hostile in [
        "10^{10^{10}}",
        "9!!!!!!!!",
        "(10^{100})!",
        r"\binom{10^{50}}{10^{49}}",
        r"\sum_{k=1}^{10^{9}} k",
        r"\prod_{k=1}^{1000} k^{k}",
        r"\int_0^1 \int_0^1 \int_0^1 x dx dy dz",
        "2^{2^{2^{2^{2^{2}}}}}",
        "1E999999999",
        r"\lfloor 10^{5000}\pi \rfloor",
    ] {
        for other in ["1", "x", hostile] {
            let _ = reward(hostile, other);
            let _ = reward(other, hostile);
        }
    }
}
