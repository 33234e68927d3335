//! Whole runs without sandboxes, of an untrained model.

use std::fs;

use sandbox_native::NativeRuntime;
use vocabulary::Vocabulary;

use super::*;
use crate::{
    checkpoint::Checkpoints, events::NoObserver, export::trained_network, test_network::tiny,
};

const TEMPLATE: &str = "{% for message in messages %}{{ message.content }}<|im_end|>{% endfor %}";

const TASK: &str =
    "[prompt]\nset = \"general\"\nplain = \"{problem_statement}\"\n[grader]\nkind = \"exact\"\n";

const ROWS: &str = "{\"id\": \"a\", \"problem_statement\": \"A\", \"ground_truth\": \"3\"}\n";

const CONFIG: &str = r#"
model = "DIR/model"
output = "DIR/run"
steps = 3
device = "cpu"
[data]
task = "DIR/task"
train = ["DIR/rows.jsonl"]
[rollout]
mode = "llm"
problems = 1
members = 2
tokens = 64
tokens_per_reply = 4
"#;

/// A directory with a model, a task and rows.
fn place() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("model");
    tiny(1, 259).save(&model).unwrap();
    Vocabulary::bytes().unwrap().save(&model).unwrap();
    fs::write(model.join("chat_template.jinja"), TEMPLATE).unwrap();
    fs::create_dir(dir.path().join("task")).unwrap();
    fs::write(dir.path().join("task/task.toml"), TASK).unwrap();
    fs::write(dir.path().join("rows.jsonl"), ROWS).unwrap();
    dir
}

/// Runs with changes to the configuration.
fn run(dir: &tempfile::TempDir, overrides: &[&str]) -> Result<RunOutcome, TrainError> {
    let fill = |text: &str| text.replace("DIR", &dir.path().to_string_lossy());
    let overrides: Vec<String> = overrides.iter().map(|change| fill(change)).collect();
    let config = RlConfig::parse(&fill(CONFIG), &overrides).unwrap();
    let threads = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let cancel = tokio_util::sync::CancellationToken::new();
    let runtime = None::<Arc<NativeRuntime>>;
    rl(&config, &Services { runtime, tokio: threads.handle(), observer: &NoObserver, cancel })
}

fn saved(dir: &tempfile::TempDir, run: &str) -> Vec<u64> {
    Checkpoints::new(&dir.path().join(run), 9).steps().unwrap()
}

fn lines(dir: &tempfile::TempDir, run: &str) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(dir.path().join(run).join("metrics.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn completed_steps_are_saved_where_a_rollout_fails() {
    let dir = place();
    let blocked = dir.path().join("run/episodes/step-000002-0");
    fs::create_dir_all(blocked.parent().unwrap()).unwrap();
    fs::write(&blocked, "no directory").unwrap();
    let error = run(&dir, &[]).unwrap_err();
    assert!(matches!(error, TrainError::Play(RolloutError::Events { .. })), "{error}");
    assert_eq!((saved(&dir, "run"), lines(&dir, "run").len()), (vec![1], 1));
    fs::remove_file(&blocked).unwrap();
    assert_eq!(run(&dir, &["optimiser.checkpointing=true"]).unwrap(), RunOutcome::Complete);
    assert_eq!((saved(&dir, "run"), lines(&dir, "run").len()), (vec![1, 3], 3));
}

#[test]
fn an_interrupted_validation_is_repeated_on_resume() {
    let dir = place();
    let measured = ["data.validation=[\"DIR/rows.jsonl\"]", "validation.every=2"];
    let blocked = dir.path().join("run/episodes/validation-000003");
    fs::create_dir_all(blocked.parent().unwrap()).unwrap();
    fs::write(&blocked, "no directory").unwrap();
    run(&dir, &measured).unwrap_err();
    assert_eq!(saved(&dir, "run"), [3]);
    fs::remove_file(&blocked).unwrap();
    let validated = || {
        let of =
            |line: &serde_json::Value| line.get("validation/success").map(|_| line["step"].clone());
        lines(&dir, "run").iter().filter_map(of).collect::<Vec<_>>()
    };
    assert_eq!(validated(), [0, 2]);
    for _ in 0..2 {
        assert_eq!(run(&dir, &measured).unwrap(), RunOutcome::Complete);
        assert_eq!(validated(), [0, 2, 3]);
    }
}

#[test]
fn a_bad_problem_among_others_does_not_end_the_run() {
    let dir = place();
    let refusing = TEMPLATE
        .replace("{{", "{% if 'BAD' in message.content %}{{ raise_exception('no') }}{% endif %}{{");
    fs::write(dir.path().join("model/chat_template.jinja"), refusing).unwrap();
    let bad = ROWS.replace("\"a\"", "\"b\"").replace("\"A\"", "\"BAD\"");
    fs::write(dir.path().join("rows.jsonl"), format!("{ROWS}{bad}")).unwrap();
    let outcomes = ["1", "2", "3", "4", "5", "6"].map(|seed| {
        let (seed, output) = (format!("seed={seed}"), format!("output=DIR/run{seed}"));
        let ended = run(&dir, &[&seed, &output, "steps=1", "algorithm.resample=1"]);
        ended.map(|_| lines(&dir, &output["output=DIR/".len()..])[0]["episodes_left"].clone())
    });
    // Where it is drawn first and alone, nothing is left to learn from; else it only adds nothing.
    assert!(
        outcomes.iter().any(Result::is_err) && outcomes.iter().any(Result::is_ok),
        "{outcomes:?}"
    );
    for outcome in outcomes {
        match outcome {
            Ok(left) => assert_eq!(left, 0),
            Err(error) => {
                assert!(matches!(error, TrainError::Play(RolloutError::AllFailed { .. })))
            }
        }
    }
}

#[test]
fn gradients_computed_while_others_play_give_the_same_steps() {
    let dir = place();
    let row = |id: usize| ROWS.replace("\"a\"", &format!("\"{id}\""));
    fs::write(dir.path().join("rows.jsonl"), (0..64).map(row).collect::<String>()).unwrap();
    // One token is one byte, and some of these are the answer. A pass has room for two groups at most.
    let tokens = ["tokens_per_reply=1", "overlong=\"keep\"", "problems=32", "members=16"];
    let tokens = tokens.map(|set| format!("rollout.{set}"));
    let steps = |overlap: bool, aggregation: &str| {
        let output = format!("run-{overlap}-{aggregation}");
        let mut set: Vec<String> = tokens.to_vec();
        set.push(format!("output=DIR/{output}"));
        set.push(format!("rollout.overlap={overlap}"));
        set.push(format!("algorithm.aggregation={aggregation:?}"));
        // With a large `eps`, the rounding of gradients near 0 does not become an update.
        let optimizer = ["rate=0.01", "eps=0.001", "tokens_at_once=20"];
        set.extend(optimizer.map(|setting| format!("optimiser.{setting}")));
        run(&dir, &set.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
        lines(&dir, &output)
    };
    for aggregation in ["token-mean", "token-sum"] {
        let (early, late) = (steps(true, aggregation), steps(false, aggregation));
        let beside = early.iter().filter(|line| line.get("seconds/learn_beside").is_some()).count();
        assert_eq!(beside, 2, "all steps but the first");
        assert!(late.iter().all(|line| line.get("seconds/learn_beside").is_none()));
        for (early, late) in early.iter().zip(&late) {
            let value = |line: &serde_json::Value, name: &str| line[name].as_f64().unwrap();
            assert!(value(late, "groups_with_spread") > 1.0, "{late}");
            for name in ["success", "learnt_tokens", "loss", "entropy", "grad_norm"] {
                let (early, late) = (value(early, name), value(late, name));
                let close = 1e-4 * late.abs().max(1e-3);
                assert!((early - late).abs() < close, "{name}: {early}, {late}");
            }
        }
    }
}

#[test]
fn parts_are_as_many_as_were_asked_for() {
    let sizes =
        |all: usize, count| split(&vec![(); all], count).map(<[()]>::len).collect::<Vec<_>>();
    assert_eq!(sizes(8, 5), [1, 2, 1, 2, 2]);
    assert_eq!(sizes(8, 1), [8]);
    assert_eq!(sizes(3, 5), [1, 1, 1]);
    assert_eq!(sizes(0, 2), [0]);
}

#[test]
fn a_run_without_steps_only_validates_also_from_another_run() {
    let dir = place();
    run(&dir, &["steps=1"]).unwrap();
    let measured = ["output=DIR/measured", "steps=0", "from=DIR/run", "data.train=[]"];
    let measured = [&measured[..], &["data.validation=[\"DIR/rows.jsonl\"]"]].concat();
    assert_eq!(run(&dir, &measured).unwrap(), RunOutcome::Complete);
    let lines = lines(&dir, "measured");
    assert_eq!((lines.len(), &lines[0]["step"]), (1, &serde_json::json!(0)));
    assert_eq!(lines[0]["validation/episodes"], 1);
    assert!(saved(&dir, "measured").is_empty());
    assert_eq!(trained_network(&dir.path().join("run"), None).unwrap().step, 1);
}

/// The value of `validation` for two sets, of which the second has one plain response of two tokens at most.
const SETS: &str = "validation=[{name = \"one\", data = [\"DIR/rows.jsonl\"]}, \
                    {name = \"two\", task = \"DIR/task\", data = [\"DIR/more.jsonl\"], members = 2, tokens_per_reply = 2}]";

#[test]
fn named_sets_are_measured_together_and_every_episode_is_kept() {
    let dir = place();
    let row = |id: &str| {
        ROWS.replace("\"a\"", &format!("\"{id}\""))
            .replace("\"A\"", &format!("\"{id}\""))
            .replace("}", ", \"kind\": \"sum\", \"level\": 3}")
    };
    fs::write(dir.path().join("more.jsonl"), row("x") + &row("y")).unwrap();
    let measured = ["steps=0", "data.train=[]", SETS];
    assert_eq!(run(&dir, &measured).unwrap(), RunOutcome::Complete);
    let before = lines(&dir, "run");
    assert_eq!(before[0]["validation/one/episodes"], 1);
    assert_eq!(before[0]["validation/two/episodes"], 4);
    assert!(before[0]["validation/two/response_tokens_mean"].as_f64().unwrap() <= 2.0);
    let found = report::validation::Validations::find(&dir.path().join("run")).unwrap();
    let two = found.read("two", 0).unwrap();
    let ids: Vec<_> = two.records.iter().map(|e| (e.id.as_str(), e.member)).collect();
    assert_eq!(ids, [("x", 0), ("x", 1), ("y", 0), ("y", 1)]);
    let first = &two.records[0];
    assert_eq!((first.kind.as_deref(), first.level.as_deref()), (Some("sum"), Some("3")));
    assert!(first.score.is_some() && first.turns == 1 && first.prompt_tokens > 0, "{first:?}");
    assert!(dir.path().join("run").join(first.events.as_ref().unwrap()).is_file());
    assert_ne!(first.digest, found.read("one", 0).unwrap().records[0].digest);
    assert_eq!(two.info.settings["tokens_per_reply"], 2);
    // An interrupted validation resumes: what is complete is not played again.
    let path = |name: &str| dir.path().join("run").join(name);
    fs::remove_file(path("metrics.jsonl")).unwrap();
    fs::remove_file(path("validation/step-000000/two.json")).unwrap();
    fs::remove_dir_all(path("episodes")).unwrap();
    run(&dir, &measured).unwrap();
    assert!(path("episodes/validation-000000/two").is_dir());
    assert!(!path("episodes/validation-000000/one").exists());
    assert_eq!(lines(&dir, "run"), before);
}

#[test]
fn sets_are_measured_at_the_end_of_a_run_that_is_shortened() {
    let dir = place();
    let sets = "validation=[{name = \"often\", data = [\"DIR/rows.jsonl\"], every = 1}, \
                {name = \"rarely\", data = [\"DIR/rows.jsonl\"], every = 9}]";
    let blocked = dir.path().join("run/episodes/step-000002-0");
    fs::create_dir_all(blocked.parent().unwrap()).unwrap();
    fs::write(&blocked, "no directory").unwrap();
    run(&dir, &[sets]).unwrap_err();
    let measured = |set: &str| {
        let found = report::validation::Validations::find(&dir.path().join("run")).unwrap();
        found.sets()[set].clone()
    };
    assert_eq!((measured("often"), measured("rarely")), (vec![0, 1], vec![0]));
    for _ in 0..2 {
        run(&dir, &[sets, "steps=1"]).unwrap();
        assert_eq!((measured("often"), measured("rarely")), (vec![0, 1], vec![0, 1]));
        let of_rarely = |line: &&serde_json::Value| line.get("validation/rarely/success").is_some();
        assert_eq!(lines(&dir, "run").iter().filter(of_rarely).count(), 2);
    }
}

#[test]
fn results_of_steps_that_are_repeated_are_removed() {
    let dir = place();
    let validated =
        ["data.validation=[\"DIR/rows.jsonl\"]", "validation.every=1", "checkpoints.every=9"];
    run(&dir, &[&validated[..], &["steps=2"]].concat()).unwrap();
    let steps = || {
        let found = report::validation::Validations::find(&dir.path().join("run")).unwrap();
        found.sets()["validation"].clone()
    };
    assert_eq!(steps(), [0, 1, 2]);
    let later = report::validation::step_directory(&dir.path().join("run"), 7);
    fs::create_dir_all(&later).unwrap();
    run(&dir, &[&validated[..], &["steps=3"]].concat()).unwrap();
    assert_eq!(steps(), [0, 1, 2, 3]);
    assert!(!later.exists());
}

#[test]
fn a_set_without_problems_is_named() {
    let dir = place();
    fs::write(dir.path().join("more.jsonl"), ROWS.replace("\"3\"", "\" \"")).unwrap();
    let error = run(&dir, &[SETS]).unwrap_err().to_string();
    assert!(error.contains("validation.two.data") && error.contains("no problems"), "{error}");
    assert!(!dir.path().join("run").exists());
}

#[test]
fn episodes_without_a_response_are_explained() {
    let settings = RolloutSettings { tokens: 64, timeout: 7.0, ..RolloutSettings::default() };
    let why = |turns: f64, timeouts: f64| {
        let mut metrics = Metrics::default();
        metrics.add("turns_mean", turns);
        metrics.add("end/timeout", timeouts);
        why_no_responses(&metrics, &settings)
    };
    assert_eq!(why(0.5, 0.5), None);
    let prompt = "no prompt leaves room for a response in `rollout.tokens` (64)";
    assert_eq!(why(0.0, 0.0).as_deref(), Some(prompt));
    let time = "no episode has a response within `rollout.timeout` (7 s)";
    assert_eq!(why(0.0, 1.0).as_deref(), Some(time));
    assert_eq!(why_no_responses(&Metrics::default(), &settings), None);
}
