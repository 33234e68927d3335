//! Taking a directory for a run: a new one, or one that was begun with the same settings.

use results::{Folder, Lock, Mode, Run, TaskInfo};
use serde_json::{Value, json};

use crate::Error;

/// A value of a setting is shown no longer than this.
const SHOWN: usize = 80;

/// Takes the directory and writes down what is asked there.
///
/// Where a run was begun, everything that may change a result has to be as it was: the model, the tasks with
/// their rows and words, what the model does without, where documents are, and what `settings` holds under `same`.
/// Modes and tasks add up: a run in one mode may be taken up in the other, and a task may come later or stay away.
/// A judge, under `judge` in `settings` with its `name`, may be named later, but not another one. A grader may be
/// mended as long as it has graded nothing. What `settings` holds besides may differ; they are sealed by `seal` once
/// they are complete.
pub fn claim(
    folder: &Folder,
    mut asked: Run,
    seal: impl FnOnce(&mut Value),
) -> Result<(Lock, Run), Error> {
    let lock = folder.lock().map_err(Error::Results)?;
    let mut run = match folder.run().map_err(Error::Results)? {
        None => asked,
        // Nothing is lost if a run that never got anywhere is asked differently.
        Some(_) if is_empty(folder) => asked,
        Some(mut then) => {
            inherit_judge(&then.settings, &mut asked.settings);
            inherit_judge(&asked.settings, &mut then.settings);
            let absent = take_absent(&mut then.tasks, &asked.tasks);
            let known = |task: &&TaskInfo| then.tasks.iter().any(|known| known.name == task.name);
            let now: Vec<TaskInfo> = asked.tasks.iter().filter(known).cloned().collect();
            excuse(folder, &mut then.tasks, &now);
            let common = Run { tasks: now, ..asked.clone() };
            if let Some((what, then, now)) = difference(&view(&then), &view(&common), "") {
                let path = folder.path().to_owned();
                return Err(Error::Differs { path, what, then, now });
            }
            let modes = union(&then.modes, &asked.modes);
            asked.tasks.extend(absent);
            Run { started: then.started, program: then.program, modes, ..asked }
        }
    };
    seal(&mut run.settings);
    folder.keep_run(&run).map_err(Error::Results)?;
    Ok((lock, run))
}

fn is_empty(folder: &Folder) -> bool {
    folder.attempts().is_ok_and(|mut attempts| attempts.next().is_none())
}

/// Takes away the tasks that are not asked this time.
fn take_absent(then: &mut Vec<TaskInfo>, now: &[TaskInfo]) -> Vec<TaskInfo> {
    let asked = |task: &TaskInfo| now.iter().any(|now| now.name == task.name);
    let (common, absent) = std::mem::take(then).into_iter().partition(asked);
    *then = common;
    absent
}

/// Overlooks what does not matter: digests that an earlier version did not write, and graders that have graded
/// nothing yet.
fn excuse(folder: &Folder, then: &mut [TaskInfo], now: &[TaskInfo]) {
    for task in then {
        let Some(now) = now.iter().find(|now| now.name == task.name) else { continue };
        if task.words_sha256.is_empty() {
            task.words_sha256.clone_from(&now.words_sha256);
        }
        let differs = task.grader_sha256 != now.grader_sha256;
        if differs && (task.grader_sha256.is_empty() || !has_grades(folder, &task.name)) {
            task.grader_sha256.clone_from(&now.grader_sha256);
        }
    }
}

fn has_grades(folder: &Folder, task: &str) -> bool {
    let mut attempts = folder.attempts().into_iter().flatten().flatten();
    attempts.any(|attempt| attempt.key.task == task && attempt.score.is_some())
}

/// What has to be the same.
fn view(run: &Run) -> Value {
    let task = |task: &TaskInfo| {
        let TaskInfo { problems, repeats, grader, rows_sha256, words_sha256, .. } = task;
        let info = json!({
            "problems": problems, "repeats": repeats, "grader": grader, "rows": rows_sha256,
            "prompts_and_limits": words_sha256, "grader_files": task.grader_sha256,
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

/// The name of the judge.
fn judge(settings: &Value) -> Option<&Value> {
    settings.get("judge")?.get("name")
}

/// Where one of both names a judge, the other is taken to mean it too. Its name alone: who wrote the record is not
/// known here, and whatever else stands there could decide where a key is sent once it is sealed.
fn inherit_judge(then: &Value, now: &mut Value) {
    if let (Some(name), None, Value::Object(now)) = (judge(then), judge(&now.clone()), now) {
        now.insert("judge".into(), json!({ "name": name }));
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

    fn claim(folder: &Folder, asked: Run) -> Result<(Lock, Run), Error> {
        super::claim(folder, asked, |_| ())
    }

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
        let named = |name: &str, at: &str| with(json!({"name": name, "at": at}));
        drop(claim(&folder, with(Value::Null)).unwrap());
        finish_one(&folder);
        drop(claim(&folder, named("j", "here")).unwrap());
        let (lock, kept) = claim(&folder, with(Value::Null)).unwrap();
        assert_eq!(kept.settings["judge"], json!({"name": "j"}), "not where a stranger says it is");
        drop(lock);
        let error = claim(&folder, named("k", "here")).unwrap_err().to_string();
        assert!(error.contains("judge was \"j\", now it is \"k\""), "{error}");
        let (_lock, kept) = claim(&folder, named("j", "there")).unwrap();
        assert_eq!(kept.settings["judge"]["at"], "there");
    }

    #[test]
    fn settings_are_sealed_when_they_are_complete() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path());
        let with = |judge: Value| run(&[Mode::Llm], json!({"same": 1, "judge": judge}));
        drop(claim(&folder, with(json!({"name": "j"}))).unwrap());
        finish_one(&folder);
        let seal = |settings: &mut Value| settings["seal"] = settings["judge"]["name"].clone();
        drop(super::claim(&folder, with(Value::Null), seal).unwrap());
        assert_eq!(folder.run().unwrap().unwrap().settings["seal"], "j");
    }

    #[test]
    fn tasks_add_up_and_those_of_both_have_to_be_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path());
        let with = |tasks: &[(&str, &str)]| {
            let task = |(name, rows): &(&str, &str)| TaskInfo {
                name: (*name).into(),
                rows_sha256: (*rows).into(),
                ..TaskInfo::default()
            };
            let tasks = tasks.iter().map(task).collect();
            Run { tasks, ..run(&[Mode::Llm], Value::Null) }
        };
        let names = |run: &Run| run.tasks.iter().map(|task| task.name.clone()).collect::<String>();
        drop(claim(&folder, with(&[("a", "1")])).unwrap());
        finish_one(&folder);
        let (lock, kept) = claim(&folder, with(&[("a", "1"), ("b", "2")])).unwrap();
        assert_eq!(names(&kept), "ab");
        drop(lock);
        let (lock, kept) = claim(&folder, with(&[("b", "2")])).unwrap();
        assert_eq!(names(&kept), "ba");
        drop(lock);
        let error = claim(&folder, with(&[("a", "3")])).unwrap_err().to_string();
        assert!(error.contains("tasks.a.rows was \"1\", now it is \"3\""), "{error}");
    }

    #[test]
    fn words_stay_and_a_grader_may_be_mended_until_it_has_graded() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path());
        let with = |words: &str, grader: &str| {
            let mut run = run(&[Mode::Llm], Value::Null);
            run.tasks[0].words_sha256 = words.into();
            run.tasks[0].grader_sha256 = grader.into();
            run
        };
        drop(claim(&folder, with("", "")).unwrap());
        finish_one(&folder);
        drop(claim(&folder, with("w", "g")).unwrap());
        let error = claim(&folder, with("v", "g")).unwrap_err().to_string();
        assert!(error.contains("tasks.math.prompts_and_limits"), "{error}");
        drop(claim(&folder, with("w", "h")).unwrap());
        let graded = json!({
            "v": 1, "task": "math", "mode": "llm", "id": "x", "repeat": 0, "score": 1.0,
            "outcome": "submitted", "spent": trajectory::Spent::default(),
        });
        let path = folder.path().join("attempts/math/llm/x.0.json");
        std::fs::write(path, graded.to_string()).unwrap();
        let error = claim(&folder, with("w", "g")).unwrap_err().to_string();
        assert!(error.contains("tasks.math.grader_files"), "{error}");
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
