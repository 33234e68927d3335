//! Steps that close before their slowest episodes end: these continue with new weights and join the next step.

use std::{collections::HashSet, fs, time::Duration};

use serde_json::Value;

use crate::{
    resumes_after_kills::run_and_kill,
    support::{Toy, has_sandboxes, row},
};

/// Responses are sampled one after the other, so that half of the groups are not even sampled when a step closes.
const CONFIG: &str = r#"
model = "DIR/model"
output = "DIR/OUT"
steps = 3
seed = 3
device = "cpu"
[data]
task = "DIR/chance"
train = ["DIR/rows.jsonl"]
[rollout]
mode = "llm"
problems = 4
members = 4
tokens = 256
tokens_per_reply = 96
sandboxes = 4
slots = 1
overlong = "keep"
close_at = 0.5
[algorithm]
importance = 2.0
[optimiser]
rate = 1e-2
[checkpoints]
every = 1
keep = 9
"#;

const VALIDATION: &str = r#"
[validation]
every = 2
sampling = { temperature = 0.0 }
"#;

/// The problems of the episodes that a step has begun and that have a score.
fn scored(toy: &Toy, run: &str, step: u64) -> Vec<String> {
    let path = toy.path(run).join(format!("episodes/step-{step:06}-0/scores.jsonl"));
    let text = fs::read_to_string(path).unwrap();
    let problem = |line: &str| {
        let score: Value = serde_json::from_str(line).unwrap();
        score["problem"].as_str().unwrap().to_owned()
    };
    text.lines().map(problem).collect()
}

/// The names of the problems that a checkpoint carries.
fn carried(toy: &Toy, run: &str, step: u64) -> Vec<&'static str> {
    let path = toy.path(run).join(format!("checkpoints/step-{step:06}/state.json"));
    let state: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let none = Vec::new();
    let indices = state["position"]["carried"].as_array().unwrap_or(&none);
    indices.iter().map(|at| ["A", "B", "C", "D"][at.as_u64().unwrap() as usize]).collect()
}

/// What a validation found: problems, answers and tokens.
fn validated(toy: &Toy, run: &str, step: u64) -> Vec<[Value; 3]> {
    let path = toy.path(run).join(format!("validation/step-{step:06}/validation.jsonl"));
    let line = |line: &str| {
        let record: Value = serde_json::from_str(line).unwrap();
        ["id", "answer", "response_tokens"].map(|key| record[key].clone())
    };
    fs::read_to_string(path).unwrap().lines().map(line).collect()
}

#[test]
fn the_rest_of_a_step_joins_the_next_and_validation_measures_the_new_weights_beside_it() {
    if !has_sandboxes() {
        return;
    }
    let toy = Toy::new();
    let validation = "validation = [\"DIR/rows.jsonl\"]\n[rollout]";
    let config = CONFIG.replace("OUT", "run").replace("[rollout]", validation) + VALIDATION;
    let path = toy.config("run.toml", &config);
    toy.succeeds(&["rl", path.to_str().unwrap()]);
    let steps = toy.metrics("run");
    let steps = &steps[1..];
    let number = |step: usize, name: &str| steps[step][name].as_f64().unwrap();
    assert_eq!(steps.len(), 3);
    assert!(steps.iter().all(|step| step["groups"].as_u64() >= Some(2)), "{steps:?}");
    assert!(number(0, "carried_groups") > 0.0 && number(0, "off_policy_tokens") == 0.0);
    let off_policy = (1..3).map(|step| number(step, "off_policy_tokens")).fold(0.0, f64::max);
    assert!(off_policy > 0.0, "{steps:?}");
    let updates = (0..3).filter(|step| number(*step, "grad_norm") > 0.0).count();
    assert!(updates > 1, "too few steps had a gradient: {steps:?}");
    // What joins a step later is scored where it began, unless it came too late.
    let (dropped, first) = (number(1, "dropped_groups") as usize, scored(&toy, "run", 1));
    assert!(first.len() >= 4 * (4 - dropped), "{first:?}");
    let names = carried(&toy, "run", 1);
    assert_eq!(names.len() as f64, number(0, "carried_groups"));
    // The weights of a step alone give the same answers as they did beside episodes of the step before.
    let measured = config.replace("DIR/run", "DIR/measured").replace("steps = 3", "steps = 0");
    let measured = measured.replace("seed = 3", "seed = 3\nfrom = \"DIR/run@2\"");
    let path = toy.config("measured.toml", &measured);
    toy.succeeds(&["rl", path.to_str().unwrap()]);
    assert!(number(1, "carried_groups") > 0.0, "nothing was played beside the validation");
    assert_eq!(validated(&toy, "run", 2), validated(&toy, "measured", 0));
    assert_ne!(validated(&toy, "run", 0), validated(&toy, "run", 2), "the weights hardly changed");
}

#[test]
fn a_resumed_run_plays_again_what_was_in_play() {
    if !has_sandboxes() {
        return;
    }
    let toy = Toy::new();
    let path = toy.config("run.toml", &CONFIG.replace("OUT", "run"));
    let path = path.to_str().unwrap();
    toy.succeeds(&["rl", path, "--set", "steps=1"]);
    let names = carried(&toy, "run", 1);
    assert!(!names.is_empty(), "all groups were complete");
    toy.succeeds(&["rl", path, "--set", "steps=2"]);
    let again = scored(&toy, "run", 2);
    // They are the first of the step, so they are among the groups it closes with.
    assert!(
        names.iter().take(2).all(|name| again.iter().any(|played| played == name)),
        "{again:?}"
    );
    assert_eq!(toy.metrics("run")[1]["off_policy_tokens"], 0, "nothing older is in it");
}

#[test]
fn runs_that_are_killed_in_any_phase_complete() {
    if !has_sandboxes() {
        return;
    }
    let toy = Toy::new();
    let path = toy.config("run.toml", &CONFIG.replace("OUT", "run"));
    let args = ["rl", path.to_str().unwrap()];
    // In the first rollout, right after a step, while the next is played or learnt, and while one is saved.
    let mut kills = 0;
    for (steps, wait) in [(0, 150), (1, 0), (1, 80), (0, 400)] {
        kills += usize::from(run_and_kill(&toy, &args, "run", steps, Duration::from_millis(wait)));
    }
    assert!(kills > 1, "only {kills} kills came before the end");
    toy.succeeds(&args);
    let steps: Vec<u64> =
        toy.metrics("run").iter().map(|line| line["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, [1, 2, 3]);
    for step in 1..=3 {
        let names = carried(&toy, "run", step);
        assert!(names.len() <= 2 && names.iter().collect::<HashSet<_>>().len() == names.len());
    }
}

/// A response is one token, and right where it is a character of ASCII. Two problems take long to be graded.
const UNEVEN: &str = r#"
[prompt]
set = "general"
plain = "{problem_statement}"
[grader]
command = """
grep -q '"slow"' row.json && sleep 1
grep -q '"slowest"' row.json && sleep 5
(od -An -tu1 -N1 answer.txt; echo) | awk 'NR == 1 { print (NF > 0 && $1 < 128) }'
"""
"#;

#[test]
fn no_step_waits_for_slow_episodes_and_success_rises() {
    if !has_sandboxes() {
        return;
    }
    let toy = Toy::new();
    fs::create_dir(toy.path("uneven")).unwrap();
    fs::write(toy.path("uneven/task.toml"), UNEVEN).unwrap();
    let names = ["a", "b", "c", "d", "e", "f", "slow", "slowest"];
    toy.write_rows("rows.jsonl", names.iter().map(|name| row(name, name, "x")));
    let config = CONFIG
        .replace("OUT", "run")
        .replace("DIR/chance", "DIR/uneven")
        .replace("steps = 3", "steps = 7")
        .replace("problems = 4", "problems = 8")
        .replace("tokens_per_reply = 96", "tokens_per_reply = 1")
        .replace("close_at = 0.5", "close_at = 0.75")
        .replace("sandboxes = 4", "sandboxes = 32")
        .replace("rate = 1e-2", "rate = 3e-2")
        .replace("every = 1", "every = 100");
    let path = toy.config("run.toml", &config);
    toy.succeeds(&["rl", path.to_str().unwrap()]);
    let steps = toy.metrics("run");
    let all =
        |name: &str| steps.iter().map(|step| step[name].as_f64().unwrap()).collect::<Vec<_>>();
    let sum = |name: &str| all(name).iter().sum::<f64>();
    let (success, mut seconds) = (all("success"), all("seconds/play"));
    seconds.sort_by(f64::total_cmp);
    eprintln!("success {success:?}, seconds {seconds:?}");
    // With all groups each would take 5 seconds, since every step has the slowest problem.
    assert!(seconds[seconds.len() / 2] < 5.0, "{seconds:?}");
    assert!(sum("carried_groups") > 0.0 && sum("dropped_groups") > 0.0, "{steps:?}");
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
    let (before, after) = (mean(&success[..2]), mean(&success[success.len() - 2..]));
    assert!(before < 0.65 && after > 0.75, "success {before} before, {after} after");
}
