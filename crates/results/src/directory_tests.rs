//! Directories of runs: honest, damaged and hostile ones.

use std::io::Write;

use serde_json::Value;
use trajectory::{Outcome, Spent};

use super::*;
use crate::{GradingHistory, Mode, Tokens};

fn attempt(id: &str, repeat: u32) -> AttemptRecord {
    let key = AttemptKey { task: "math".into(), mode: Mode::Sandbox, id: id.into(), repeat };
    AttemptRecord {
        v: VERSION,
        key,
        domain: "math".into(),
        subject: None,
        problem_statement: "1+1".into(),
        ground_truth: "2".into(),
        answer: "2".into(),
        score: Some(1.0),
        grading: GradingHistory::default(),
        grade: Value::Null,
        outcome: Outcome::Infrastructure {
            cause: "no disk".into(),
            fault: trajectory::Fault::Unknown,
        },
        spent: Spent::default(),
        tokens: Tokens::default(),
        started: 1,
        wall_ms: 2,
        peak_memory: None,
        tries: 1,
    }
}

#[test]
fn attempts_come_back_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let folder = ResultsDir::new(dir.path());
    assert_eq!(folder.attempts().unwrap().count(), 0);
    let all = [attempt("../../etc/x", 0), attempt("a", 0), attempt("a", 1)];
    for attempt in &all {
        assert_eq!(folder.attempt(&attempt.key).unwrap(), None);
        folder.save(attempt).unwrap();
        assert_eq!(folder.attempt(&attempt.key).unwrap().as_ref(), Some(attempt));
    }
    let read: Vec<_> = folder.attempts().unwrap().map(Result::unwrap).collect();
    assert_eq!(read, all);
}

#[test]
fn one_process_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let folder = ResultsDir::new(dir.path().join("new"));
    let lock = folder.lock().unwrap();
    let error = folder.lock().unwrap_err();
    assert!(matches!(error, Error::Locked { .. }), "{error}");
    drop(lock);
    folder.lock().unwrap();
}

#[test]
fn nothing_is_written_through_links() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let folder = ResultsDir::new(dir.path());
    let precious = other.path().join("precious");
    fs::write(&precious, "mine").unwrap();
    let link = |name: &str| {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(&precious, path).unwrap();
    };
    link("lock");
    folder.lock().unwrap_err();
    link("attempts/math/sandbox/a.0.json");
    folder.save(&attempt("a", 0)).unwrap();
    link("trajectories/math/sandbox/a.0.jsonl.partial");
    let mut file = folder.begin_trajectory(&attempt("a", 0).key).unwrap();
    file.write_all(b"events").unwrap();
    assert_eq!(fs::read_to_string(&precious).unwrap(), "mine");
    fs::remove_dir_all(dir.path().join("attempts/math")).unwrap();
    std::os::unix::fs::symlink(other.path(), dir.path().join("attempts/math")).unwrap();
    let error = folder.save(&attempt("a", 0)).unwrap_err().to_string();
    assert!(error.contains("cannot use") && error.contains("a link"), "{error}");
    assert_eq!(fs::read_dir(other.path()).unwrap().count(), 1);
}

#[test]
fn what_is_no_file_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let folder = ResultsDir::new(dir.path());
    let path = folder.attempt_path(&attempt("a", 0).key);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
    std::os::unix::fs::symlink("/dev/zero", dir.path().join("run.json")).unwrap();
    let error = folder.attempt(&attempt("a", 0).key).unwrap_err();
    assert!(error.to_string().contains("not a file"), "{error}");
    assert!(folder.run().unwrap_err().to_string().contains("a link"));
}

#[test]
fn nothing_is_read_through_links() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (folder, theirs) = (ResultsDir::new(dir.path()), ResultsDir::new(other.path()));
    theirs.save(&attempt("a", 0)).unwrap();
    let key = attempt("a", 0).key;
    fs::create_dir_all(theirs.trajectory_path(&key).parent().unwrap()).unwrap();
    fs::write(theirs.trajectory_path(&key), "").unwrap();
    assert!(theirs.events(&key).is_ok());
    let link = |name: &str, to: PathBuf| std::os::unix::fs::symlink(to, dir.path().join(name));
    for kind in ["attempts", "trajectories"] {
        fs::create_dir(dir.path().join(kind)).unwrap();
        link(&format!("{kind}/math"), other.path().join(kind).join("math")).unwrap();
    }
    assert_eq!(folder.attempts().unwrap().count(), 0);
    assert!(folder.events(&key).unwrap_err().to_string().contains("a link"));
    fs::create_dir_all(dir.path().join("attempts/mine/sandbox")).unwrap();
    link("attempts/mine/sandbox/a.0.json", theirs.attempt_path(&key)).unwrap();
    let error = folder.attempts().unwrap().next().unwrap().unwrap_err();
    assert!(error.to_string().contains("a link"), "{error}");
}

#[test]
fn what_a_killed_process_left_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let folder = ResultsDir::new(dir.path());
    let key = attempt("a", 0).key;
    let json = dir.path().join(".x.partial");
    fs::write(&json, "{").unwrap();
    let _lock = folder.lock().unwrap();
    assert!(!json.exists());
    folder.begin_trajectory(&key).unwrap().write_all(b"{").unwrap();
    let events = folder.begin_trajectory(&key).unwrap();
    assert_eq!(events.metadata().unwrap().len(), 0);
}

#[test]
fn an_attempt_of_another_key_is_not_taken_for_this_one() {
    let dir = tempfile::tempdir().unwrap();
    let folder = ResultsDir::new(dir.path());
    let (one, other) = (attempt("a", 0), attempt("b", 0));
    folder.save(&one).unwrap();
    fs::rename(folder.attempt_path(&one.key), folder.attempt_path(&other.key)).unwrap();
    let error = folder.attempt(&other.key).unwrap_err();
    assert!(error.to_string().contains("another attempt"), "{error}");
    let read: Vec<_> = folder.attempts().unwrap().collect();
    assert!(matches!(&read[..], [Err(Error::Malformed { .. })]), "{read:?}");
}

#[test]
fn a_copy_is_not_another_attempt() {
    let dir = tempfile::tempdir().unwrap();
    let folder = ResultsDir::new(dir.path());
    folder.save(&attempt("a", 0)).unwrap();
    let path = folder.attempt_path(&attempt("a", 0).key);
    fs::copy(&path, path.with_file_name("a-copy.0.json")).unwrap();
    let read: Vec<_> = folder.attempts().unwrap().collect();
    let [Err(error), Ok(_)] = &read[..] else { panic!("{read:?}") };
    assert!(error.to_string().contains("a-copy.0.json"), "{error}");
}

#[test]
fn a_newer_run_is_not_obeyed() {
    let dir = tempfile::tempdir().unwrap();
    let run = serde_json::json!({
        "v": VERSION + 1, "program": "9", "started": 1, "model": "m", "tasks": [], "modes": [],
    });
    fs::write(dir.path().join("run.json"), run.to_string()).unwrap();
    let error = ResultsDir::new(dir.path()).run().unwrap_err();
    assert!(error.to_string().contains("version"), "{error}");
}

#[test]
fn a_damaged_file_is_named_and_hides_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let folder = ResultsDir::new(dir.path());
    folder.save(&attempt("a", 0)).unwrap();
    fs::write(folder.attempt_path(&attempt("b", 0).key), "{").unwrap();
    let read: Vec<_> = folder.attempts().unwrap().collect();
    let [Ok(_), Err(error)] = &read[..] else { panic!("{read:?}") };
    assert!(error.to_string().contains("b.0.json"), "{error}");
}

#[test]
fn small_values_do_not_fill_the_memory() {
    let dir = tempfile::tempdir().unwrap();
    let folder = ResultsDir::new(dir.path());
    let mut hostile = attempt("a", 0);
    folder.save(&hostile).unwrap();
    hostile.grade = Value::Array(vec![Value::Null; MAX_FILE_VALUES]);
    folder.save(&hostile).unwrap();
    let error = folder.attempt(&hostile.key).unwrap_err();
    assert!(matches!(error, Error::Malformed { .. }), "{error}");
    // The text alone is small.
    assert!(std::fs::metadata(folder.attempt_path(&hostile.key)).unwrap().len() < 32 << 20);
}
