//! Names and values of settings, from records of any origin.

use results::{JudgeRecord, Mode, RunSettings};
use serde_json::json;

use super::*;

fn run(fixed: Value) -> Run {
    Run {
        v: results::VERSION,
        program: "0.1.0".into(),
        started: 0,
        model: "m".into(),
        tasks: Vec::new(),
        modes: vec![Mode::Sandbox, Mode::Llm],
        without: Vec::new(),
        documents: "files".into(),
        settings: RunSettings { fixed, ..RunSettings::default() },
    }
}

fn values(run: &Run) -> Vec<(String, String)> {
    settings(run).into_iter().map(|setting| (setting.name, setting.value)).collect()
}

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn settings_have_the_names_of_their_options_and_units() {
    let mut run = run(json!({
        "sampling": {"temperature": 0.2, "seed": 7, "stop": ["a", "b"]},
        "tool_format": "native", "local": {"adapter": "/x/step-9.gguf", "context": null},
        "caps": {"turns": 100, "tokens": null, "time": {"secs": 1800, "nanos": 0}},
        "command_timeout": {"secs": 0, "nanos": 500_000_000},
        "extra_body": {}, "future": {"thing": true},
        "sandbox": {"image": {"name": "base"}, "limits": {"memory": 1 << 30, "disk": 1000, "cpus": 1.0},
                    "network": {"allow": ["a.example", "b.example"]}, "env": [["A", ""], ["B", ""]]},
        "selection": {"limit": null, "ids": []},
    }));
    run.settings.judge = Some(JudgeRecord { name: "j".into(), requested: Value::Null });
    run.settings.requested =
        json!({"model": {"place": {"server": {"base_url": "http://127.0.0.1/v1"}}}});
    run.tasks = [("math", 16), ("chem", 1)]
        .map(|(name, repeats)| TaskInfo {
            name: name.into(),
            repeats,
            prompts_sha256: format!("{name}0123456789"),
            ..TaskInfo::default()
        })
        .to_vec();
    let expected = pairs(&[
        ("model", "m"),
        ("mode", "llm, sandbox"),
        ("repeat", "math 16, chem 1"),
        ("documents", "files"),
        ("judge-model", "j"),
        ("base-url", "http://127.0.0.1/v1"),
        ("program", "0.1.0"),
        ("adapter", "/x/step-9.gguf"),
        ("temperature", "0.2"),
        ("seed", "7"),
        ("stop", "a, b"),
        ("tool-format", "native"),
        ("max-turns", "100"),
        ("deadline", "1800 s"),
        ("command-timeout", "0.5 s"),
        ("network", "allow=a.example, b.example"),
        ("image", "base"),
        ("memory", "1 GiB"),
        ("cpus", "1"),
        ("disk", "1000 B"),
        ("env", "A, B"),
        ("future.thing", "true"),
        ("prompts of math", "math0123"),
        ("prompts of chem", "chem0123"),
    ]);
    assert_eq!(values(&run), expected);
    let labels: Vec<String> = settings(&run).iter().map(label_part).collect();
    assert!(labels.contains(&"t=0.2".to_owned()) && labels.contains(&"adapter=step-9.gguf".into()));
}

#[test]
fn hostile_settings_stay_bounded_and_distinct() {
    let many: serde_json::Map<String, Value> =
        (0..5000).map(|at| (format!("{}{at}", "k".repeat(300)), json!(at))).collect();
    assert!(settings(&run(Value::Object(many))).len() <= MOST);
    let long = |last: &str| {
        let text = format!("{}\u{202e}<b>{last}", "x".repeat(1 << 20));
        settings(&run(json!({"extra_body": {"a": text}}))).pop().unwrap()
    };
    assert!(long("1").value.chars().count() < 100, "{}", long("1").value);
    assert_ne!(long("1").value, long("2").value);
    let mut deep = json!(1);
    (0..100).for_each(|_| deep = json!({"x": deep}));
    for odd in [json!(null), json!([]), json!(3), json!("x"), json!({"sampling": [1]}), deep] {
        settings(&run(odd));
    }
}

#[test]
fn the_selection_of_problems_is_no_other_condition() {
    let with = |limit: u32, t: f64| json!({"selection": {"limit": limit}, "sampling": {"t": t}});
    assert!(same_but_selection(&with(3, 1.0), &with(20, 1.0)));
    assert!(!same_but_selection(&with(3, 1.0), &with(3, 0.5)));
    assert!(same_but_selection(&Value::Null, &Value::Null));
    assert!(!same_but_selection(&Value::Null, &with(3, 1.0)));
}
