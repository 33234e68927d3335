//! Whole runs without sandboxes, of a model that can do nothing.

use std::fs;

use sandbox_native::NativeRuntime;
use vocabulary::Vocabulary;

use super::*;
use crate::{export::trained, news::Unwatched, tiny::tiny};

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

/// A place with a model, a task and rows.
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
fn run(dir: &tempfile::TempDir, changes: &[&str]) -> Result<Ending, TrainError> {
    let fill = |text: &str| text.replace("DIR", &dir.path().to_string_lossy());
    let changes: Vec<String> = changes.iter().map(|change| fill(change)).collect();
    let config = RlConfig::parse(&fill(CONFIG), &changes).unwrap();
    let threads = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (_stopper, watch) = agent::stopper();
    let runtime = None::<Arc<NativeRuntime>>;
    rl(&config, &Outside { runtime, tokio: threads.handle(), watcher: &Unwatched, watch })
}

fn saved(dir: &tempfile::TempDir, run: &str) -> Vec<u64> {
    Checkpoints::of(&dir.path().join(run), 9).steps().unwrap()
}

fn lines(dir: &tempfile::TempDir, run: &str) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(dir.path().join(run).join("metrics.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn what_was_learnt_is_saved_where_playing_fails() {
    let dir = place();
    let blocked = dir.path().join("run/episodes/step-000002-0");
    fs::create_dir_all(blocked.parent().unwrap()).unwrap();
    fs::write(&blocked, "no directory").unwrap();
    let error = run(&dir, &[]).unwrap_err();
    assert!(matches!(error, TrainError::Play(PlayError::Events { .. })), "{error}");
    assert_eq!((saved(&dir, "run"), lines(&dir, "run").len()), (vec![1], 1));
    fs::remove_file(&blocked).unwrap();
    assert_eq!(run(&dir, &["optimiser.checkpointing=true"]).unwrap(), Ending::Complete);
    assert_eq!((saved(&dir, "run"), lines(&dir, "run").len()), (vec![1, 3], 3));
}

#[test]
fn a_run_without_steps_only_measures_also_what_another_has_learnt() {
    let dir = place();
    run(&dir, &["steps=1"]).unwrap();
    let measured = ["output=DIR/measured", "steps=0", "from=DIR/run", "data.train=[]"];
    let measured = [&measured[..], &["data.validation=[\"DIR/rows.jsonl\"]"]].concat();
    assert_eq!(run(&dir, &measured).unwrap(), Ending::Complete);
    let lines = lines(&dir, "measured");
    assert_eq!((lines.len(), &lines[0]["step"]), (1, &serde_json::json!(0)));
    assert_eq!(lines[0]["validation/episodes"], 1);
    assert!(saved(&dir, "measured").is_empty());
    assert_eq!(trained(&dir.path().join("run"), None).unwrap().step, 1);
}
