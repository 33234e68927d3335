//! What a directory accepts: what adds to its run, what would change it, and what is refused.

use super::*;

fn open(dir: &ResultsDir, requested: Run) -> Result<(DirLock, Run), Error> {
    open_and(dir, requested, Regrade::No, |_| ())
}

fn regrade(dir: &ResultsDir, requested: Run) -> Result<(DirLock, Run), Error> {
    open_and(dir, requested, Regrade::All, |_| ())
}

fn open_and(
    dir: &ResultsDir,
    requested: Run,
    regrade: Regrade,
    seal: impl FnOnce(&mut RunSettings),
) -> Result<(DirLock, Run), Error> {
    let tasks = requested.tasks.clone();
    prepare(dir, requested, |_| tasks.clone(), planned, regrade)?.save(seal)
}

/// The attempt that [`grade_one`] grades.
fn planned(_: &Run) -> HashSet<AttemptKey> {
    let (task, id) = ("math".to_owned(), "x".to_owned());
    HashSet::from([AttemptKey { task, mode: Mode::Llm, id, repeat: 0 }])
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

/// Grades that attempt.
fn grade_one(dir: &ResultsDir, regradings: u32) {
    let graded = json!({
        "v": 1, "task": "math", "mode": "llm", "id": "x", "repeat": 0, "score": 1.0,
        "outcome": "submitted", "spent": trajectory::Spent::default(),
        "grading": {"regradings": regradings},
    });
    let path = dir.path().join("attempts/math/llm/x.0.json");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, graded.to_string()).unwrap();
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
    drop(open_and(&dir, run(&[Mode::Llm], json!(1)), Regrade::No, seal).unwrap());
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
    grade_one(&dir, 0);
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
    check(&|run| run.settings.fixed["limits"]["turns"] = 2.into(), "settings.limits.turns");
    check(&|run| run.settings.fixed["new"] = "x".into(), "settings.new was null, now it is \"x\"");
    check(&|run| run.without = vec!["files".into()], "without was []");
}

#[test]
fn a_directory_appears_only_with_its_run() {
    let temp = tempfile::tempdir().unwrap();
    let dir = ResultsDir::new(temp.path().join("new"));
    let tasks = |_: &Run| Vec::new();
    let first = run(&[Mode::Llm], json!(1));
    let prepared = prepare(&dir, first, tasks, planned, Regrade::No).unwrap();
    assert!(!dir.path().exists());
    let second = run(&[Mode::Llm], json!(2));
    let other = prepare(&dir, second, tasks, planned, Regrade::No).unwrap();
    drop(prepared.save(|_| ()).unwrap());
    assert!(dir.run().unwrap().is_some());
    let error = other.save(|_| ()).unwrap_err();
    assert!(matches!(error, Error::Results(results::Error::Locked { .. })), "{error}");
}

#[test]
fn a_selection_that_an_earlier_version_fixed_may_grow() {
    let temp = tempfile::tempdir().unwrap();
    let dir = ResultsDir::new(temp.path());
    let mut old = run(&[Mode::Llm], json!({"a": 1, "selection": {"limit": 3}}));
    let selection = json!({"start": null, "end": null, "ids": ["y"], "limit": null});
    old.settings.requested = json!({"selection": selection, "repeats": 1});
    drop(open(&dir, old).unwrap());
    finish_one(&dir);
    let mut new = run(&[Mode::Llm], json!({"a": 1}));
    new.settings.requests = vec![crate::plan::tests::request(Some(20), 1)];
    let (_lock, kept) = open(&dir, new).unwrap();
    let requests = kept.requests();
    assert_eq!((requests.len(), requests[0].selection.ids.as_slice()), (2, &["y".to_owned()][..]));
}

#[test]
fn a_changed_grader_grades_everything_again_and_continues_where_it_was_killed() {
    let temp = tempfile::tempdir().unwrap();
    let dir = ResultsDir::new(temp.path());
    let with = |grader: &str| {
        let mut run = run(&[Mode::Llm], Value::Null);
        run.tasks[0].grader_sha256 = grader.into();
        run
    };
    assert!(matches!(regrade(&dir, with("g")), Err(Error::NothingToGrade { .. })));
    drop(open(&dir, with("g")).unwrap());
    grade_one(&dir, 0);
    open(&dir, with("h")).unwrap_err();
    let times = |opened: Result<(DirLock, Run), Error>| opened.unwrap().1.regradings("math");
    assert_eq!(times(regrade(&dir, with("h"))), 1);
    // Not graded again yet: both commands continue.
    assert_eq!(times(regrade(&dir, with("h"))), 1);
    assert_eq!(times(open(&dir, with("h"))), 1);
    let (tasks, none) = (|_: &Run| with("h").tasks, |_: &Run| HashSet::new());
    let others = prepare(&dir, with("h"), tasks, none, Regrade::All).unwrap();
    assert_eq!(others.run.regradings("math"), 2, "answers that nobody requests are not waited for");
    drop(others);
    assert_eq!(times(regrade(&dir, with("i"))), 2, "another grader starts over");
    grade_one(&dir, 2);
    assert_eq!(times(open(&dir, with("i"))), 2);
    assert_eq!(times(regrade(&dir, with("i"))), 3);
    let mut judged = with("i");
    judged.settings.judge = Some(JudgeRecord { name: "k".into(), requested: Value::Null });
    assert_eq!(times(regrade(&dir, judged)), 4, "another judge starts over");
}

#[test]
fn a_run_that_is_graded_again_does_not_grow() {
    let temp = tempfile::tempdir().unwrap();
    let dir = ResultsDir::new(temp.path());
    let with = |mode: Mode, limit: Option<usize>, repeats: u32, url: &str| {
        let mut run = run(&[mode], Value::Null);
        run.settings.requests = vec![crate::plan::tests::request(limit, repeats)];
        run.settings.requested =
            json!({"selection": limit, "repeats": repeats, "modes": [mode], "url": url});
        run
    };
    drop(open(&dir, with(Mode::Llm, Some(3), 1, "old")).unwrap());
    grade_one(&dir, 0);
    let mut all = with(Mode::Sandbox, None, 4, "new");
    let (lock, kept) = regrade(&dir, all.clone()).unwrap();
    let expected = with(Mode::Llm, Some(3), 1, "new");
    assert_eq!(kept.modes, expected.modes);
    assert_eq!(kept.settings.requests, expected.settings.requests);
    assert_eq!(kept.settings.requested, expected.settings.requested);
    drop(lock);
    all.tasks[0].name = "other".into();
    assert!(matches!(regrade(&dir, all), Err(Error::TaskNotInRun { .. })));
}

#[test]
fn another_judge_makes_all_its_grades_outdated() {
    let temp = tempfile::tempdir().unwrap();
    let dir = ResultsDir::new(temp.path());
    let with = |judge: &str, tasks: &[(&str, &str)]| {
        let task = |(name, grader): &(&str, &str)| TaskInfo {
            name: (*name).into(),
            grader: (*grader).into(),
            ..TaskInfo::default()
        };
        let tasks = tasks.iter().map(task).collect();
        let mut run = Run { tasks, ..run(&[Mode::Llm], Value::Null) };
        run.settings.judge = Some(JudgeRecord { name: judge.into(), requested: Value::Null });
        run
    };
    let tasks = [("math", "judge"), ("also", "judge"), ("sums", "math")];
    drop(open(&dir, with("j", &tasks)).unwrap());
    grade_one(&dir, 0);
    let counts = |run: &Run| tasks.map(|(name, _)| run.regradings(name));
    let (lock, kept) = regrade(&dir, with("j", &tasks[..1])).unwrap();
    assert_eq!(counts(&kept), [1, 0, 0], "the same judge");
    drop(lock);
    let (_lock, kept) = regrade(&dir, with("k", &tasks[..1])).unwrap();
    assert_eq!(counts(&kept), [2, 1, 0]);
}

#[test]
fn requests_of_a_stranger_do_not_fill_the_memory() {
    use crate::plan::tests::{problem, request, rows};

    let folder = tempfile::tempdir().unwrap();
    let dir = ResultsDir::new(folder.path());
    let rows = [rows(vec![problem("a", 1)])];
    let mine = || {
        let mut run = run(&[Mode::Llm], Value::Null);
        run.settings.requests = vec![request(None, 1)];
        run
    };
    drop(prepare_run(&dir, mine(), &rows, Regrade::No).unwrap().save(|_| ()).unwrap());
    finish_one(&dir);
    let mut hostile = dir.run().unwrap().unwrap();
    hostile.settings.requests[0].repeats = u32::MAX;
    dir.save_run(&hostile).unwrap();
    for regrade in [Regrade::No, Regrade::All] {
        let error = prepare_run(&dir, mine(), &rows, regrade).unwrap_err();
        let attempts = u32::MAX as usize;
        let expected =
            matches!(error, Error::TooManyAttempts { attempts: found, .. } if found == attempts);
        assert!(expected && error.is_usage(), "{error}");
    }
}
