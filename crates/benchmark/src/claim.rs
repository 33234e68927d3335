//! Taking a directory for a run: a new one, or one that was begun with the same settings.

use results::{Folder, Lock, Mode, Run, TaskInfo};
use serde_json::{Value, json};

use crate::Error;

/// A value of a setting is shown no longer than this.
const SHOWN: usize = 80;

/// Takes the directory and writes down what is asked there.
///
/// Where a run was begun, everything that may change a result has to be as it was: the model, the tasks with
/// their rows, what the model does without, where documents are, and what `settings` holds under `same`. Modes
/// add up: a run in one mode may be taken up in the other. A judge, under `judge` in `settings`, may be named
/// later, but not another one. What `settings` holds besides may differ.
pub fn claim(folder: &Folder, mut asked: Run) -> Result<(Lock, Run), Error> {
    let lock = folder.lock().map_err(Error::Results)?;
    let run = match folder.run().map_err(Error::Results)? {
        None => asked,
        // Nothing is lost if a run that never got anywhere is asked differently.
        Some(_) if is_empty(folder) => asked,
        Some(mut then) => {
            inherit_judge(&then.settings, &mut asked.settings);
            inherit_judge(&asked.settings, &mut then.settings);
            if let Some((what, then, now)) = difference(&view(&then), &view(&asked), "") {
                let path = folder.path().to_owned();
                return Err(Error::Differs { path, what, then, now });
            }
            let modes = union(&then.modes, &asked.modes);
            Run { started: then.started, program: then.program, modes, ..asked }
        }
    };
    folder.keep_run(&run).map_err(Error::Results)?;
    Ok((lock, run))
}

fn is_empty(folder: &Folder) -> bool {
    folder.attempts().is_ok_and(|mut attempts| attempts.next().is_none())
}

/// What has to be the same.
fn view(run: &Run) -> Value {
    let task = |task: &TaskInfo| {
        let TaskInfo { problems, repeats, grader, rows_sha256, .. } = task;
        let info = json!({
            "problems": problems, "repeats": repeats, "grader": grader, "rows": rows_sha256,
        });
        (task.name.clone(), info)
    };
    json!({
        "model": run.model,
        "tasks": run.tasks.iter().map(task).collect::<serde_json::Map<_, _>>(),
        "without": run.without,
        "context": run.context,
        "settings": run.settings.get("same"),
        "judge": judge(&run.settings),
    })
}

fn judge(settings: &Value) -> Option<&Value> {
    settings.get("judge").filter(|judge| !judge.is_null())
}

/// Where one of both names a judge, the other is taken to mean it too.
fn inherit_judge(then: &Value, now: &mut Value) {
    if let (Some(judge), None, Value::Object(now)) = (judge(then), judge(&now.clone()), now) {
        now.insert("judge".into(), judge.clone());
    }
}

fn union(then: &[Mode], now: &[Mode]) -> Vec<Mode> {
    let mut modes = [then, now].concat();
    modes.sort();
    modes.dedup();
    modes
}

/// The first difference: where it is, and both values.
fn difference(then: &Value, now: &Value, path: &str) -> Option<(String, String, String)> {
    match (then, now) {
        (Value::Object(one), Value::Object(other)) => {
            let keys = one.keys().chain(other.keys().filter(|key| !one.contains_key(*key)));
            keys.map(|key| {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                let at = |map: &serde_json::Map<String, Value>| map.get(key).cloned();
                let (then, now) = (at(one).unwrap_or_default(), at(other).unwrap_or_default());
                difference(&then, &now, &path)
            })
            .find_map(|found| found)
        }
        (then, now) if then == now => None,
        (then, now) => Some((path.to_owned(), shown(then), shown(now))),
    }
}

fn shown(value: &Value) -> String {
    let text = match value {
        Value::Null => "absent".to_owned(),
        value => value.to_string(),
    };
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(modes: &[Mode], settings: Value) -> Run {
        let task = TaskInfo { name: "math".into(), problems: 2, repeats: 1, ..TaskInfo::default() };
        Run {
            v: results::VERSION,
            program: "1".into(),
            started: 5,
            model: "m".into(),
            tasks: vec![task],
            modes: modes.to_vec(),
            without: Vec::new(),
            context: "files".into(),
            settings,
        }
    }

    /// Something that would be lost.
    fn finish_one(folder: &Folder) {
        let path = folder.path().join("attempts/math/llm/x.0.json");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "{}").unwrap();
    }

    #[test]
    fn a_run_without_results_may_be_asked_differently() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path());
        drop(claim(&folder, run(&[Mode::Llm], json!({"same": 1}))).unwrap());
        drop(claim(&folder, run(&[Mode::Llm], json!({"same": 2}))).unwrap());
        finish_one(&folder);
        claim(&folder, run(&[Mode::Llm], json!({"same": 1}))).unwrap_err();
    }

    #[test]
    fn the_same_settings_may_go_on_and_modes_add_up() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path());
        let first = run(&[Mode::Sandbox], json!({"same": {"a": 1}, "free": {"b": 1}}));
        drop(claim(&folder, first).unwrap());
        finish_one(&folder);
        let again = run(&[Mode::Llm], json!({"same": {"a": 1}, "free": {"b": 2}}));
        let (_lock, kept) = claim(&folder, Run { started: 9, ..again.clone() }).unwrap();
        assert_eq!((kept.started, kept.modes.as_slice()), (5, &[Mode::Llm, Mode::Sandbox][..]));
        assert_eq!(kept.settings["free"]["b"], 2);
        assert!(matches!(
            claim(&folder, again),
            Err(Error::Results(results::Error::Locked { .. }))
        ));
    }

    #[test]
    fn a_judge_may_be_named_later_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path());
        let with = |judge: Value| run(&[Mode::Llm], json!({"same": 1, "judge": judge}));
        drop(claim(&folder, with(Value::Null)).unwrap());
        finish_one(&folder);
        drop(claim(&folder, with("j".into())).unwrap());
        let (_, kept) = claim(&folder, with(Value::Null)).unwrap();
        assert_eq!(kept.settings["judge"], "j");
        let error = claim(&folder, with("k".into())).unwrap_err().to_string();
        assert!(error.contains("judge was \"j\", now it is \"k\""), "{error}");
    }

    #[test]
    fn other_settings_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path());
        let first = run(&[Mode::Llm], json!({"same": {"limits": {"turns": 1}}}));
        drop(claim(&folder, first.clone()).unwrap());
        finish_one(&folder);
        let check = |change: &dyn Fn(&mut Run), named: &str| {
            let mut other = first.clone();
            change(&mut other);
            let error = claim(&folder, other).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        };
        check(&|run| run.model = "n".into(), "model was \"m\", now it is \"n\"");
        check(&|run| run.tasks[0].repeats = 3, "tasks.math.repeats was 1, now it is 3");
        check(&|run| run.settings["same"]["limits"]["turns"] = 2.into(), "settings.limits.turns");
        check(&|run| run.settings["same"]["new"] = "x".repeat(500).into(), "…");
        check(&|run| run.without = vec!["files".into()], "without was []");
    }
}
