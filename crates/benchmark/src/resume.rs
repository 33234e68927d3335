//! Opens the directory of a run: a new one, or one that was started with the same settings.

use results::{DirLock, JudgeRecord, Mode, ResultsDir, Run, RunSettings, TaskInfo};
use serde_json::{Value, json};

use crate::Error;

/// The longest value of a setting in an error, in characters.
const MAX_SHOWN: usize = 80;

/// Locks the directory and records what is requested there.
///
/// A run that already has attempts is resumed only with the same settings: the model, the tasks with their rows, prompts
/// and graders, the capabilities, where documents are, and [`RunSettings::fixed`]. Modes and tasks add up: a run in one mode
/// may be resumed in the other, and a task may be added or left out. A judge may be named later, but not changed. A grader
/// may change as long as it has graded nothing. [`RunSettings::requested`] may differ. `seal` signs the settings once they
/// are complete.
pub fn open_run(
    dir: &ResultsDir,
    mut requested: Run,
    seal: impl FnOnce(&mut RunSettings),
) -> Result<(DirLock, Run), Error> {
    let lock = dir.lock().map_err(Error::Results)?;
    let mut run = match dir.run().map_err(Error::Results)? {
        None => requested,
        // A run without attempts has nothing to lose.
        Some(_) if is_empty(dir) => requested,
        Some(mut recorded) => {
            inherit_judge(&recorded.settings, &mut requested.settings);
            inherit_judge(&requested.settings, &mut recorded.settings);
            let absent = take_absent(&mut recorded.tasks, &requested.tasks);
            let known =
                |task: &&TaskInfo| recorded.tasks.iter().any(|known| known.name == task.name);
            let common: Vec<TaskInfo> = requested.tasks.iter().filter(known).cloned().collect();
            tolerate(dir, &mut recorded.tasks, &common);
            let comparable = Run { tasks: common, ..requested.clone() };
            let differing = difference(&fixed_part(&recorded), &fixed_part(&comparable), "");
            if let Some((setting, recorded, requested)) = differing {
                let path = dir.path().to_owned();
                return Err(Error::SettingsDiffer { path, setting, recorded, requested });
            }
            let modes = union(&recorded.modes, &requested.modes);
            requested.tasks.extend(absent);
            Run { started: recorded.started, program: recorded.program, modes, ..requested }
        }
    };
    seal(&mut run.settings);
    dir.save_run(&run).map_err(Error::Results)?;
    Ok((lock, run))
}

fn is_empty(dir: &ResultsDir) -> bool {
    dir.attempts().is_ok_and(|mut attempts| attempts.next().is_none())
}

/// Removes and returns the recorded tasks that are not requested now.
fn take_absent(recorded: &mut Vec<TaskInfo>, requested: &[TaskInfo]) -> Vec<TaskInfo> {
    let is_requested = |task: &TaskInfo| requested.iter().any(|other| other.name == task.name);
    let (common, absent) = std::mem::take(recorded).into_iter().partition(is_requested);
    *recorded = common;
    absent
}

/// Ignores differences that do not matter: digests that an earlier version did not write, and graders that have graded
/// nothing yet.
fn tolerate(dir: &ResultsDir, recorded: &mut [TaskInfo], requested: &[TaskInfo]) {
    for task in recorded {
        let Some(now) = requested.iter().find(|now| now.name == task.name) else { continue };
        if task.prompts_sha256.is_empty() {
            task.prompts_sha256.clone_from(&now.prompts_sha256);
        }
        let differs = task.grader_sha256 != now.grader_sha256;
        if differs && (task.grader_sha256.is_empty() || !has_grades(dir, &task.name)) {
            task.grader_sha256.clone_from(&now.grader_sha256);
        }
    }
}

fn has_grades(dir: &ResultsDir, task: &str) -> bool {
    let mut attempts = dir.attempts().into_iter().flatten().flatten();
    attempts.any(|attempt| attempt.key.task == task && attempt.score.is_some())
}

/// The part of a run that must not change.
fn fixed_part(run: &Run) -> Value {
    let task = |task: &TaskInfo| {
        let TaskInfo { problems, repeats, grader, rows_sha256, prompts_sha256, .. } = task;
        let info = json!({
            "problems": problems, "repeats": repeats, "grader": grader, "rows": rows_sha256,
            "prompts_and_limits": prompts_sha256, "grader_files": task.grader_sha256,
        });
        (task.name.clone(), info)
    };
    json!({
        "model": run.model,
        "tasks": run.tasks.iter().map(task).collect::<serde_json::Map<_, _>>(),
        "without": run.without,
        "context": run.documents,
        "settings": run.settings.fixed,
        "judge": run.settings.judge.as_ref().map(|judge| &judge.name),
    })
}

/// Where one of both names a judge, the other is taken to mean it too. Only the name: the record may come from anywhere,
/// and the rest could decide where a key is sent once it is sealed.
fn inherit_judge(from: &RunSettings, to: &mut RunSettings) {
    if let (Some(judge), None) = (&from.judge, &to.judge) {
        to.judge = Some(JudgeRecord { name: judge.name.clone(), requested: Value::Null });
    }
}

fn union(recorded: &[Mode], requested: &[Mode]) -> Vec<Mode> {
    let mut modes = [recorded, requested].concat();
    modes.sort();
    modes.dedup();
    modes
}

/// The first difference: its path, and both values.
fn difference(recorded: &Value, requested: &Value, path: &str) -> Option<(String, String, String)> {
    match (recorded, requested) {
        (Value::Object(one), Value::Object(other)) => {
            let keys = one.keys().chain(other.keys().filter(|key| !one.contains_key(*key)));
            keys.map(|key| {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                let at = |map: &serde_json::Map<String, Value>| map.get(key).cloned();
                difference(&at(one).unwrap_or_default(), &at(other).unwrap_or_default(), &path)
            })
            .find_map(|found| found)
        }
        (recorded, requested) if recorded == requested => None,
        (recorded, requested) => Some((path.to_owned(), shown(recorded), shown(requested))),
    }
}

fn shown(value: &Value) -> String {
    let text = match value {
        Value::Null => "absent".to_owned(),
        value => value.to_string(),
    };
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(dir: &ResultsDir, requested: Run) -> Result<(DirLock, Run), Error> {
        super::open_run(dir, requested, |_| ())
    }

    fn run(modes: &[Mode], fixed: Value) -> Run {
        let settings = RunSettings { fixed, ..RunSettings::default() };
        let task = TaskInfo { name: "math".into(), problems: 2, repeats: 1, ..TaskInfo::default() };
        Run {
            v: results::VERSION,
            program: "1".into(),
            started: 5,
            model: "m".into(),
            tasks: vec![task],
            modes: modes.to_vec(),
            without: Vec::new(),
            documents: "files".into(),
            settings,
        }
    }

    /// Something that would be lost.
    fn finish_one(dir: &ResultsDir) {
        let path = dir.path().join("attempts/math/llm/x.0.json");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "{}").unwrap();
    }

    #[test]
    fn a_run_without_results_may_be_asked_differently() {
        let temp = tempfile::tempdir().unwrap();
        let dir = ResultsDir::new(temp.path());
        drop(open(&dir, run(&[Mode::Llm], json!(1))).unwrap());
        drop(open(&dir, run(&[Mode::Llm], json!(2))).unwrap());
        finish_one(&dir);
        open(&dir, run(&[Mode::Llm], json!(1))).unwrap_err();
    }

    #[test]
    fn the_same_settings_may_go_on_and_modes_add_up() {
        let temp = tempfile::tempdir().unwrap();
        let dir = ResultsDir::new(temp.path());
        let first = run(&[Mode::Sandbox], json!({"a": 1}));
        drop(open(&dir, first).unwrap());
        finish_one(&dir);
        let mut again = run(&[Mode::Llm], json!({"a": 1}));
        again.settings.requested = json!({"b": 2});
        let (_lock, kept) = open(&dir, Run { started: 9, ..again.clone() }).unwrap();
        assert_eq!((kept.started, kept.modes.as_slice()), (5, &[Mode::Llm, Mode::Sandbox][..]));
        assert_eq!(kept.settings.requested, json!({"b": 2}));
        assert!(matches!(open(&dir, again), Err(Error::Results(results::Error::Locked { .. }))));
    }

    #[test]
    fn a_judge_may_be_named_later_and_stays() {
        let temp = tempfile::tempdir().unwrap();
        let dir = ResultsDir::new(temp.path());
        let named = |name: &str, at: &str| {
            let mut run = run(&[Mode::Llm], json!(1));
            run.settings.judge = Some(JudgeRecord { name: name.into(), requested: at.into() });
            run
        };
        let unnamed = || run(&[Mode::Llm], json!(1));
        drop(open(&dir, unnamed()).unwrap());
        finish_one(&dir);
        drop(open(&dir, named("j", "here")).unwrap());
        let (lock, kept) = open(&dir, unnamed()).unwrap();
        let bare = Some(JudgeRecord { name: "j".into(), requested: Value::Null });
        assert_eq!(kept.settings.judge, bare, "not where an untrusted record says it is");
        drop(lock);
        let error = open(&dir, named("k", "here")).unwrap_err().to_string();
        assert!(error.contains("judge was \"j\", now it is \"k\""), "{error}");
        let (_lock, kept) = open(&dir, named("j", "there")).unwrap();
        assert_eq!(kept.settings.judge.unwrap().requested, "there");
    }

    #[test]
    fn settings_are_sealed_when_they_are_complete() {
        let temp = tempfile::tempdir().unwrap();
        let dir = ResultsDir::new(temp.path());
        let mut named = run(&[Mode::Llm], json!(1));
        named.settings.judge = Some(JudgeRecord { name: "j".into(), requested: Value::Null });
        drop(open(&dir, named).unwrap());
        finish_one(&dir);
        let seal = |settings: &mut RunSettings| {
            settings.seal = settings.judge.as_ref().map(|judge| judge.name.clone());
        };
        drop(super::open_run(&dir, run(&[Mode::Llm], json!(1)), seal).unwrap());
        assert_eq!(dir.run().unwrap().unwrap().settings.seal.as_deref(), Some("j"));
    }

    #[test]
    fn tasks_add_up_and_those_of_both_have_to_be_the_same() {
        let temp = tempfile::tempdir().unwrap();
        let dir = ResultsDir::new(temp.path());
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
        drop(open(&dir, with(&[("a", "1")])).unwrap());
        finish_one(&dir);
        let (lock, kept) = open(&dir, with(&[("a", "1"), ("b", "2")])).unwrap();
        assert_eq!(names(&kept), "ab");
        drop(lock);
        let (lock, kept) = open(&dir, with(&[("b", "2")])).unwrap();
        assert_eq!(names(&kept), "ba");
        drop(lock);
        let error = open(&dir, with(&[("a", "3")])).unwrap_err().to_string();
        assert!(error.contains("tasks.a.rows was \"1\", now it is \"3\""), "{error}");
    }

    #[test]
    fn words_stay_and_a_grader_may_be_mended_until_it_has_graded() {
        let temp = tempfile::tempdir().unwrap();
        let dir = ResultsDir::new(temp.path());
        let with = |prompts: &str, grader: &str| {
            let mut run = run(&[Mode::Llm], Value::Null);
            run.tasks[0].prompts_sha256 = prompts.into();
            run.tasks[0].grader_sha256 = grader.into();
            run
        };
        drop(open(&dir, with("", "")).unwrap());
        finish_one(&dir);
        drop(open(&dir, with("w", "g")).unwrap());
        let error = open(&dir, with("v", "g")).unwrap_err().to_string();
        assert!(error.contains("tasks.math.prompts_and_limits"), "{error}");
        drop(open(&dir, with("w", "h")).unwrap());
        let graded = json!({
            "v": 1, "task": "math", "mode": "llm", "id": "x", "repeat": 0, "score": 1.0,
            "outcome": "submitted", "spent": trajectory::Spent::default(),
        });
        let path = dir.path().join("attempts/math/llm/x.0.json");
        std::fs::write(path, graded.to_string()).unwrap();
        let error = open(&dir, with("w", "g")).unwrap_err().to_string();
        assert!(error.contains("tasks.math.grader_files"), "{error}");
    }

    #[test]
    fn other_settings_are_named() {
        let temp = tempfile::tempdir().unwrap();
        let dir = ResultsDir::new(temp.path());
        let first = run(&[Mode::Llm], json!({"limits": {"turns": 1}}));
        drop(open(&dir, first.clone()).unwrap());
        finish_one(&dir);
        let check = |change: &dyn Fn(&mut Run), named: &str| {
            let mut other = first.clone();
            change(&mut other);
            let error = open(&dir, other).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        };
        check(&|run| run.model = "n".into(), "model was \"m\", now it is \"n\"");
        check(&|run| run.tasks[0].repeats = 3, "tasks.math.repeats was 1, now it is 3");
        check(&|run| run.settings.fixed["limits"]["turns"] = 2.into(), "settings.limits.turns");
        check(&|run| run.settings.fixed["new"] = "x".repeat(500).into(), "…");
        check(&|run| run.without = vec!["files".into()], "without was []");
    }
}
