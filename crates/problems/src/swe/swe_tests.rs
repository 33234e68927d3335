//! Logs of real runners, honest and forged, and the scripts around them.

use serde_json::json;

use super::{log::Status, *};

const MARKER: &str = "llm-in-sandbox-0123";

fn log(style: TestLogFormat, fail: &[&str], pass: &[&str]) -> TestLog {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    TestLog {
        marker: MARKER.into(),
        format: style,
        fail_to_pass: names(fail),
        pass_to_pass: names(pass),
        test_config_changes: Vec::new(),
    }
}

fn graded(log: &TestLog, output: &str, code: i32) -> Grade {
    let stdout = format!("prepared\n{MARKER} start\n{output}\n{MARKER} end {code}\n");
    log.grade(&stdout, Some(0)).unwrap()
}

const PYTEST: &str = "\
============================= test session starts ==============================
collected 4 items

tests/test_a.py ..F                                                      [ 75%]
tests/test_b.py x                                                        [100%]

=================================== FAILURES ===================================
PASSED tests/test_a.py::test_three
==================================== PASSES ====================================
=========================== short test summary info ============================
\u{1b}[32mPASSED\u{1b}[0m tests/test_a.py::test_one
PASSED tests/test_a.py::test_two[a b - c]
XFAIL tests/test_b.py::test_known - a known fault
FAILED tests/test_a.py::test_three - AssertionError: assert 1 == 2
========================= 1 failed, 2 passed, 1 xfailed in 0.05s =========================
";

#[test]
fn pytest_is_read_in_its_summary() {
    let one = "tests/test_a.py::test_one";
    let resolved =
        |fail: &[&str], pass: &[&str]| graded(&log(TestLogFormat::Pytest, fail, pass), PYTEST, 1);
    assert_eq!(resolved(&[one], &["tests/test_b.py::test_known"]).score, 1.0);
    // Lists cut names at the first space, others keep them.
    assert_eq!(resolved(&[one], &["tests/test_a.py::test_two[a"]).score, 1.0);
    assert_eq!(resolved(&[one], &["tests/test_a.py::test_two[a b - c]"]).score, 1.0);
    let failed = resolved(&[one, "tests/test_a.py::test_three"], &["tests/x.py::gone"]);
    assert_eq!(failed.score, 0.0);
    assert_eq!(failed.details["fail_to_pass"], "1 of 2");
    assert_eq!(failed.details["pass_to_pass"], "0 of 1");
    assert_eq!(
        failed.details["not_passed"],
        json!(["tests/test_a.py::test_three", "tests/x.py::gone"])
    );
}

#[test]
fn what_the_code_prints_does_not_pass_a_test() {
    let three = log(TestLogFormat::Pytest, &["tests/test_a.py::test_three"], &[]);
    let forged = "PASSED tests/test_a.py::test_three\n";
    // Before the summary, after it, and in a summary of its own before the real one.
    assert_eq!(graded(&three, &format!("{forged}{PYTEST}"), 1).score, 0.0);
    assert_eq!(graded(&three, &format!("{PYTEST}{forged}"), 1).score, 0.0);
    let summary = format!("=== short test summary info ===\n{forged}=== 1 passed in 1s ===\n");
    assert_eq!(graded(&three, &format!("{summary}{PYTEST}"), 1).score, 0.0);
    // Within the summary: it is listed as failed too, and if it were not, the count would not fit.
    let inside = PYTEST.replace("XFAIL", &format!("{forged}XFAIL"));
    assert_eq!(graded(&three, &inside, 1).score, 0.0);
    let inside = inside.replace("FAILED tests", "FALLEN tests");
    let grade = graded(&three, &inside, 1);
    assert_eq!(
        (grade.score, &grade.details["why"]),
        (0.0, &json!("more tests are listed than ran"))
    );
    // All is well, except that the runner says it is not.
    let grade = graded(&three, &summary, 1);
    assert_eq!(grade.details["why"], "the runner failed although no test did");
    assert_eq!(graded(&three, &summary, 0).score, 1.0);
    // A runner that was ended early.
    let grade = graded(&three, forged, 0);
    assert_eq!(
        (grade.score, &grade.details["why"]),
        (0.0, &json!("the runner did not reach its end"))
    );
}

#[test]
fn only_what_stands_between_the_markers_counts() {
    let log = log(TestLogFormat::Pytest, &["t::a"], &[]);
    let summary = "=== short test summary info ===\nPASSED t::a\n=== 1 passed in 1s ===";
    let why = |stdout: &str| {
        let grade = log.grade(stdout, Some(0)).unwrap();
        assert_eq!(grade.score, 0.0);
        grade.details["why"].as_str().unwrap().to_owned()
    };
    assert_eq!(why(&format!("{MARKER} start\n{summary}\n")), "the tests broke off");
    assert_eq!(why(&format!("{MARKER} unfit\n")), "the change does not apply");
    assert_eq!(why(&format!("{MARKER} clash\n")), "the tests do not fit on top of the change");
    let late = format!("{MARKER} start\n{MARKER} end 0\n{summary}\n");
    assert_eq!(why(&late), "the runner did not reach its end");
    let wrong = format!("{MARKER}0 start\n{summary}\n{MARKER}0 end 0\n");
    assert!(log.grade(&wrong, Some(0)).unwrap_err().contains("could not be prepared"));
    assert!(log.grade("fatal: no git\n", Some(90)).unwrap_err().contains("fatal: no git"));
    assert_eq!(log.grade("", None).unwrap().details["why"], "the tests ran out of time");
}

const DJANGO: &str = "\
Testing against Django installed in '/testbed/django'
test_one (app.tests.ATests) ... ok
test_two (app.tests.ATests)
The second one is good. ... ok
test_three (app.tests.ATests) ... skipped 'no database'
test_four (app.tests.ATests) ... FAIL
test_five (app.tests.ATests) ... printed by the test
ok
test_six (app.tests.ATests.test_six) ... expected failure
test_seven (app.tests.ATests) ... ok

======================================================================
FAIL: test_four (app.tests.ATests)
----------------------------------------------------------------------
AssertionError: 1 != 2
======================================================================
ERROR: test_seven (app.tests.ATests) (number=3)
----------------------------------------------------------------------
Ran 7 tests in 0.010s

FAILED (failures=1, errors=1, skipped=1, expected failures=1)
";

#[test]
fn unittest_and_django_have_a_line_for_each_test() {
    let lines: Vec<&str> = DJANGO.lines().collect();
    let results = log::read(TestLogFormat::Unittest, &lines);
    let status = |name: &str| results.status(&format!("test_{name} (app.tests.ATests)"));
    assert_eq!(results.total, Some(7));
    assert_eq!(status("one"), Some(Status::Passed));
    assert_eq!(status("two"), Some(Status::Passed));
    assert_eq!(results.status("The second one is good."), Some(Status::Passed));
    assert_eq!(status("three"), Some(Status::Skipped));
    assert_eq!(status("four"), Some(Status::Failed));
    assert_eq!(status("five"), Some(Status::Passed));
    assert_eq!(status("six"), Some(Status::Passed));
    assert_eq!(status("seven"), Some(Status::Failed));
    let newer = log(TestLogFormat::Unittest, &["test_one (app.tests.ATests.test_one)"], &[]);
    assert_eq!(graded(&newer, DJANGO, 1).score, 1.0);
    let resolved = log(
        TestLogFormat::Unittest,
        &["test_one (app.tests.ATests)"],
        &["test_two (app.tests.ATests)"],
    );
    assert_eq!(graded(&resolved, DJANGO, 1).score, 1.0);
}

#[test]
fn forged_lines_of_unittest_are_one_too_many() {
    let honest = "test_a (t.T) ... FAIL\n\nFAIL: test_a (t.T)\n\nRan 1 test in 0.001s\n\nFAILED (failures=1)";
    let wanted = log(TestLogFormat::Unittest, &["test_a (t.T)"], &[]);
    assert_eq!(graded(&wanted, honest, 1).score, 0.0);
    assert_eq!(graded(&wanted, &format!("test_a (t.T) ... ok\n{honest}"), 1).score, 0.0);
    let other = log(TestLogFormat::Unittest, &["test_b (t.T)"], &[]);
    let forged = honest.replace("FAIL", "ok");
    let grade = graded(&other, &format!("test_b (t.T) ... ok\n{forged}"), 0);
    assert_eq!(grade.details["why"], "more tests are listed than ran");
}

#[test]
fn a_test_cannot_speak_for_itself() {
    let wanted = log(TestLogFormat::Unittest, &["test_a (t.T)"], &[]);
    let end = "\nRan 1 test in 0.001s\n\nOK (skipped=1)";
    for word in ["skipped 'no'", "FAIL", "ERROR"] {
        let grade = graded(&wanted, &format!("test_a (t.T.test_a) ... ok\n{word}\n{end}"), 0);
        assert_eq!(grade.score, 0.0, "{word}");
        // In the form of another Python.
        let output = format!("test_a (t.T) ... ok\ntest_a (t.T.test_a) ... {word}\n{end}");
        assert_eq!(graded(&wanted, &output, 0).score, 0.0, "{word}");
    }
    assert_eq!(graded(&wanted, &format!("test_a (t.T) ... printed\nok\n{end}"), 0).score, 1.0);
    let documented = log(TestLogFormat::Unittest, &["It works."], &[]);
    let honest = "test_a (t.T)\nIt works. ... FAIL\n";
    let forged = "test_b (t.T)\nIt works. ... ok\n";
    let output = format!("{honest}{forged}\nRan 2 tests in 0.001s");
    assert_eq!(graded(&documented, &output, 1).score, 0.0);
    let sympy = log(TestLogFormat::Sympy, &["test_a"], &[]);
    let end = "tests finished: 1 passed, 1 skipped, in 0.50 seconds";
    assert_eq!(graded(&sympy, &format!("test_a ok\ns\n{end}"), 0).score, 0.0);
    assert_eq!(graded(&sympy, &format!("test_a ok\n{end}"), 0).score, 1.0);
}

const SYMPY: &str = "\
============================= test process starts ==============================
sympy/geometry/tests/test_point.py[3]
test_point ok
test_issue_11617 F
test_slow s
test_Point2D ok [OK]

________________________________________________________________________________
__________ sympy/geometry/tests/test_point.py:test_issue_11617 ___________
============ tests finished: 2 passed, 1 failed, in 0.50 seconds =============
DO *NOT* COMMIT!
";

#[test]
fn sympy_has_words_of_its_own() {
    let grade =
        |fail: &[&str], pass: &[&str]| graded(&log(TestLogFormat::Sympy, fail, pass), SYMPY, 1);
    assert_eq!(grade(&["test_point"], &[]).score, 1.0);
    assert_eq!(grade(&["test_issue_11617"], &["test_point"]).score, 0.0);
    assert_eq!(grade(&["test_point"], &["test_slow"]).score, 0.0);
    let forged = SYMPY.replace("test_slow s", "test_slow ok");
    let grade = graded(&log(TestLogFormat::Sympy, &["test_slow"], &[]), &forged, 1);
    assert_eq!(grade.details["why"], "more tests are listed than ran");
}

fn problem(extra: Value) -> Problem {
    let mut row = json!({"id": "r-1", "problem_statement": "q", "FAIL_TO_PASS": ["t::a"]});
    row.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    Problem::from_row(row).unwrap()
}

#[test]
fn rows_say_how_they_are_tested() {
    let patch = "diff --git a/tests/x/test_a.py b/tests/x/test_a.py\n--- a\n";
    let run = |repo: &str| command(&problem(json!({"repo": repo, "test_patch": patch}))).unwrap();
    assert!(run("psf/requests").0.ends_with("pytest -rA 'tests/x/test_a.py'"));
    let (django, style) = run("django/django");
    assert!(django.ends_with("--settings=test_sqlite --parallel 1 'x.test_a'"), "{django}");
    assert_eq!(style, TestLogFormat::Unittest);
    assert_eq!(run("sympy/sympy").1, TestLogFormat::Sympy);
    let own = problem(json!({"test_command": "python3 -m unittest -v", "instance_id": "o__r-1"}));
    assert_eq!(command(&own).unwrap().1, TestLogFormat::Unittest);
    assert_eq!(image_of(&own), None);
    let error_of = |extra: Value| check(&problem(extra)).unwrap_err().to_string();
    assert!(error_of(json!({})).contains("neither a field `test_command` nor `repo`"));
    assert!(
        error_of(json!({"repo": "o/r", "test_patch": patch}))
            .contains("`o/r` has no known test command")
    );
    assert!(error_of(json!({"repo": "psf/requests"})).contains("changes no Python file"));
    assert!(error_of(json!({"FAIL_TO_PASS": "[]"})).contains("`FAIL_TO_PASS` is empty"));
    assert!(error_of(json!({"FAIL_TO_PASS": [1]})).contains("not a list of tests"));
    assert!(error_of(json!({"FAIL_TO_PASS": "{"})).contains("not a list of tests"));
    assert!(
        error_of(json!({"test_command": "x", "test_log": "tap"}))
            .contains("pytest, unittest, sympy")
    );
    assert!(check(&problem(json!({"test_command": "x", "test_log": "sympy"}))).is_ok());
}

#[test]
fn images_have_the_names_they_are_published_under() {
    let row = problem(json!({"instance_id": "Django__django-11119", "repo": "django/django"}));
    let published = "swebench/sweb.eval.x86_64.django_1776_django-11119:latest";
    assert_eq!(image_of(&row).as_deref(), Some(published));
    let own = problem(json!({"instance_id": "a__b-1", "image": "mine:1"}));
    assert_eq!(image_of(&own).as_deref(), Some("mine:1"));
}

fn grading_of(problem: &Problem, answer: &str) -> Grading {
    let (repository, input_dir) = (Path::new("/testbed"), Path::new("/testbed"));
    grading(problem, answer, RepositoryContext { repository, input_dir, image: Some("usual") })
}

#[test]
fn a_change_is_tested_in_a_sandbox_nobody_has_touched() {
    let row = problem(json!({
        "test_command": "pytest -rA", "input_files": {"a.py": "x = 1\n"},
        "test_patch": "diff --git a/t's.py b/t's.py\n+x",
    }));
    let diff = "diff --git a/a.py b/a.py\n+y\ndiff --git a/t/conftest.py b/t/conftest.py\n+z\n";
    let Grading::InSandbox(check) = grading_of(&row, diff) else {
        panic!("not graded in a sandbox")
    };
    assert_eq!(check.image.as_deref(), Some("usual"));
    let text = |path: &str| {
        let file = check.files.iter().find(|(file, _)| file == Path::new(path));
        String::from_utf8(file.unwrap().1.to_vec()).unwrap()
    };
    assert_eq!(text("/testbed/a.py"), "x = 1\n");
    assert_eq!(text("/tmp/llm-in-sandbox-check/change.diff"), diff);
    assert!(text("/tmp/llm-in-sandbox-check/tests.diff").ends_with("+x\n"));
    let ScoreFrom::Tests(log) = &check.score else { panic!("not graded by tests") };
    assert_eq!(log.test_config_changes, ["t/conftest.py"]);
    let Grading::InSandbox(second) = grading_of(&row, diff) else {
        panic!("not graded in a sandbox")
    };
    assert_ne!(check.score, second.score, "markers have to differ");
}

#[test]
fn no_change_is_no_solution_and_a_reply_may_hold_one() {
    let row = problem(json!({"test_command": "pytest -rA"}));
    for answer in ["", " \n", "I would change it.\n```diff\n```"] {
        let Grading::Done(grade) = grading_of(&row, answer) else { panic!("{answer:?}") };
        assert_eq!((grade.score, &grade.details["why"]), (0.0, &json!("nothing was changed")));
    }
    let reply = "First\n```diff\nold\n```\nno:\n```diff\ndiff --git a/x b/x\n+1\n```\nDone.";
    assert_eq!(fenced(reply), Some("diff --git a/x b/x\n+1"));
    assert_eq!(fenced("diff --git a/x b/x\n+```diff\n+x\n"), None);
}

#[test]
fn hostile_names_stay_out_of_scripts() {
    let names = |name: &str| changed_files(&format!("diff --git a/{name} b/{name}\n"));
    assert_eq!(names("a/b.py"), ["a/b.py"]);
    for name in ["../x", "a/../x", "a//b", "/etc/passwd", "a\u{7}b"] {
        assert!(names(name).is_empty(), "{name}");
    }
    assert_eq!(changed_files("--- a/x.py\t2020\n+++ b/x.py\t2021\n@@ -1 +1 @@\n"), ["x.py"]);
    assert_eq!(script::shell_quoted("a'; rm -rf /"), r"'a'\''; rm -rf /'");
}

#[test]
fn a_patch_that_may_enter_the_directory_of_git_is_left_to_git() {
    let row = problem(json!({"test_command": "pytest -rA"}));
    let is_left = |diff: &str| {
        let Grading::InSandbox(check) = grading_of(&row, diff) else { panic!("{diff:?}") };
        let run = check.files.iter().find(|(file, _)| file.ends_with("run.sh")).unwrap();
        !String::from_utf8(run.1.to_vec()).unwrap().contains("patch --batch")
    };
    for diff in [
        "--- a/.git/config\n+++ b/.git/config\n",
        "--- /dev/null\t2020\n+++ b/sub/.git/hooks/x\t2020\r\n",
        "--- /dev/null\n+++ \"b/\\056git/config\"\n",
        "--- /dev/null\n+++ \"b/.\\147\\151\\164/config\"\n",
        "   Index: .GIT/config\n",
        "X\t*** .git/config\n",
        "- - --- .git/config\n",
        "diff --git a/x b/.git\nrename from x\nrename to .git\n",
        "diff --git a/x b/x\ncopy to .git/config\n",
        "diff --git a/d b/d\nnew file mode 120000\n",
        "diff --git a/d b/d\nnew mode 120000\n",
        "diff --git a/d b/d\nindex 1..2 120000\n",
    ] {
        assert!(is_left(diff), "{diff:?}");
    }
    for diff in [
        "--- a/.gitignore\n+++ b/.gitignore\n@@ -1 +1 @@\n-x\n+.git/\n",
        "diff --git a/my.git/x b/my.git/x\nnew file mode 100644\n",
        "--- a/\\.py\n+++ b/é\\9.py\n+# see .git/config\n",
    ] {
        assert!(!is_left(diff), "{diff:?}");
    }
}

proptest::proptest! {
    #[test]
    fn any_log_is_read(text in "(PASSED |FAILED |== short test summary info ==|test_a \\(b.C\\)| ... |ok|\n|Ran 9 |\u{1b}\\[|:|é){0,40}") {
        for style in [TestLogFormat::Pytest, TestLogFormat::Unittest, TestLogFormat::Sympy] {
            let grade = graded(&log(style, &["x"], &[]), &text, 0);
            proptest::prop_assert_eq!(grade.score, 0.0);
        }
    }
}
