//! Graders that are programs: tests of a repository, a task's own command, the reference's reward function.

use std::{fs, path::Path};

use lis_problems::{
    Check, Grading, Problem, Task,
    swe::{DIFF_FILE, DiffForm},
};
use sandbox::{Runtime, Sandbox, Spec};
use sandbox_native::{NativeRuntime, NativeSandbox};

use crate::{
    sandboxes::{graded, read, run, with_runtime},
    support::example,
};

fn loaded(dir: &Path) -> (Task, Vec<Problem>) {
    let task = Task::load(dir).unwrap();
    let rows = task.read_files(task.data.as_slice()).unwrap();
    assert_eq!(rows.bad, []);
    (task, rows.problems)
}

fn check(task: &Task, problem: &Problem, answer: &str) -> Check {
    match task.grading(problem, answer) {
        Grading::InSandbox(check) => check,
        other => panic!("{other:?}"),
    }
}

/// A sandbox as a model would find it.
async fn prepared(runtime: &NativeRuntime, task: &Task, problem: &Problem) -> NativeSandbox {
    let sandbox = runtime.create(&Spec::default()).await.unwrap();
    for (name, text) in &problem.files {
        sandbox.write_file(&task.prompts.input_dir.join(name), text.as_bytes()).await.unwrap();
    }
    let (_, status) = run(&sandbox, &task.setup(problem).unwrap()).await;
    assert!(status.success(), "{status:?}");
    sandbox
}

#[test]
fn a_repository_is_mended_or_not() {
    with_runtime(|runtime| async move {
        let (task, problems) = loaded(&example("repository"));
        for problem in &problems {
            let gold = problem.extra["patch"].as_str().unwrap();
            let sandbox = prepared(&runtime, &task, problem).await;
            let script = format!(
                "cd /testbed && git apply - <<'END' && printf 'a note\\n' > NOTE.md && git add ledger && git -c \
                 user.name=a -c user.email=a@b commit -qm mended && python3 -m unittest -v\n{gold}END"
            );
            let (_, status) = run(&sandbox, &script).await;
            assert!(status.success(), "{status:?}");
            let (_, status) = run(&sandbox, &task.diff_command(DiffForm::Text)).await;
            assert!(status.success(), "{status:?}");
            let diff = read(&sandbox, DIFF_FILE).await;
            sandbox.destroy().await.unwrap();
            assert!(diff.contains("+++ b/ledger/money.py") && diff.contains("+a note"), "{diff}");
            assert!(!diff.contains("__pycache__"), "{diff}");

            let grade = graded(&runtime, &check(&task, problem, &diff)).await.unwrap();
            assert_eq!(grade.score, 1.0, "{}", grade.details);
            let harmless = "diff --git a/NOTE.md b/NOTE.md\nnew file mode 100644\n--- /dev/null\n+++ b/NOTE.md\n@@ -0,0 +1 @@\n+a note\n";
            let grade = graded(&runtime, &check(&task, problem, harmless)).await.unwrap();
            assert_eq!((grade.score, &grade.details["outcome"]), (0.0, &"unresolved".into()));
            let grade =
                graded(&runtime, &check(&task, problem, "diff --git a/x b/x\n-nothing\n")).await;
            assert_eq!(grade.unwrap().details["why"], "the change does not apply");
        }
    });
}

#[test]
fn a_repository_cannot_be_talked_into_passing() {
    with_runtime(|runtime| async move {
        let (task, problems) = loaded(&example("repository"));
        let problem = &problems[1];
        let forged = |lines: &str| {
            let lines: String = lines.lines().map(|line| format!("+{line}\n")).collect();
            let count = lines.lines().count();
            let header = "diff --git a/ledger/__init__.py b/ledger/__init__.py\n--- a/ledger/__init__.py\n+++ b/ledger/__init__.py\n";
            format!(
                "{header}@@ -1 +1,{} @@\n \"\"\"A ledger of amounts in cents.\"\"\"\n{lines}",
                count + 1
            )
        };
        let name = "test_negative_amounts (tests.test_money.ShowTest)";
        for lines in [
            // A line of the runner, without having run.
            format!("print('{name} ... ok')"),
            // All lines of a runner, and its end.
            format!("import os\nprint('{name} ... ok\\n\\nRan 9 tests in 0.1s\\n\\nOK', flush=True)\nos._exit(0)"),
            // A test that tests nothing any more.
            "import unittest\nunittest.TestCase.assertEqual = lambda *a: (_ for _ in ()).throw(unittest.SkipTest())".into(),
        ] {
            let grade = graded(&runtime, &check(&task, problem, &forged(&lines))).await.unwrap();
            assert_eq!(grade.score, 0.0, "{lines}: {}", grade.details);
        }
        // Tests that the model rewrote are put back.
        let own_tests =
            "diff --git a/tests/test_money.py b/tests/test_money.py\ndeleted file mode 100644\n";
        let grade = graded(&runtime, &check(&task, problem, own_tests)).await.unwrap();
        assert_eq!(grade.score, 0.0, "{}", grade.details);
    });
}

const MENDED: &str =
    "diff --git a/m.py b/m.py\n--- a/m.py\n+++ b/m.py\n@@ -1 +1 @@\n-VALUE = 1\n+VALUE = 2\n";

/// A repository with a fault and a test of it, whose next version `test_patch` brings.
fn faulty(test: &str, test_patch: &str) -> Problem {
    let old = "import unittest\nimport m\n\nclass T(unittest.TestCase):\n    def test_m(self):\n        \
               self.assertEqual(m.VALUE, 1)\n";
    let row = serde_json::json!({
        "id": "a", "problem_statement": "VALUE has to be 2", "test_patch": test_patch,
        "test_command": "python3 -m unittest discover -v -t . -s tests", "FAIL_TO_PASS": [test],
        "input_files": {"m.py": "VALUE = 1\n", "tests/__init__.py": "", "tests/test_old.py": old},
    });
    Problem::from_row(row).unwrap()
}

#[test]
fn a_change_does_not_choose_to_stay_ungraded() {
    let hunk = "@@ -4,3 +4,3 @@\n class T(unittest.TestCase):\n     def test_m(self):\n-        \
                self.assertEqual(m.VALUE, 1)\n+        self.assertEqual(m.VALUE, 2)\n";
    let renamed = format!(
        "diff --git a/tests/test_old.py b/tests/test_new.py\nsimilarity index 80%\nrename from tests/test_old.py\n\
         rename to tests/test_new.py\n--- a/tests/test_old.py\n+++ b/tests/test_new.py\n{hunk}"
    );
    let plain = format!("--- a/tests/test_old.py\n+++ b/tests/test_old.py\n{hunk}");
    let below = "diff --git a/tests/more/a.py b/tests/more/a.py\nnew file mode 100644\n--- /dev/null\n\
                 +++ b/tests/more/a.py\n@@ -0,0 +1 @@\n+x = 1\n";
    let own_test = "diff --git a/tests/test_old.py b/tests/test_old.py\n--- a/tests/test_old.py\n\
                    +++ b/tests/test_old.py\n@@ -6 +6 @@\n-        self.assertEqual(m.VALUE, 1)\n+        pass\n";
    let in_the_way = "diff --git a/tests/more b/tests/more\nnew file mode 100644\n--- /dev/null\n\
                      +++ b/tests/more\n@@ -0,0 +1 @@\n+x = 1\n";
    with_runtime(|runtime| async move {
        let (task, _) = loaded(&example("repository"));
        let grade = async |test: &str, test_patch: &str, change: &str| {
            let problem = faulty(test, test_patch);
            graded(&runtime, &check(&task, &problem, &format!("{MENDED}{change}"))).await
        };
        // The file under its old name was changed too.
        let grade_1 = grade("test_m (tests.test_new.T)", &renamed, own_test).await.unwrap();
        assert_eq!(grade_1.score, 1.0, "{}", grade_1.details);
        // Nothing but names before and after, as `diff` writes them.
        let grade_2 = grade("test_m (tests.test_old.T)", &plain, own_test).await.unwrap();
        assert_eq!(grade_2.score, 1.0, "{}", grade_2.details);
        // A file where the tests want a directory.
        let grade_3 = grade("test_m (tests.test_old.T)", below, in_the_way).await.unwrap();
        assert_eq!(grade_3.details["why"], "the tests do not fit on top of the change");
        // Tests that fit nothing are the row's fault.
        let unfit = plain.replace("(self)", "(it)");
        let error = grade("test_m (tests.test_old.T)", &unfit, "").await.unwrap_err();
        assert!(error.contains("could not be prepared"), "{error}");
    });
}

/// GNU patch, which applies what git finds a little wrong, does not let a change into `.git`, whose settings name programs.
#[test]
fn a_change_does_not_reach_git_s_own_files() {
    let hunk = "@@ -6 +6 @@\n-        self.assertEqual(m.VALUE, 1)\n";
    let named = "--- a/tests/test_old.py\n+++ b/tests/test_old.py\n";
    let tests = format!("{named}{hunk}+        self.assertEqual(m.VALUE, 2)\n");
    // Written back from the repository, which runs the program of the attribute.
    let attribute = "--- /dev/null\n+++ b/.gitattributes\n@@ -0,0 +1 @@\n+*.py filter=x\n";
    let rewritten = format!("{attribute}{named}{hunk}+        pass\n");
    let program =
        "@@ -1 +1,3 @@\n+[filter \"x\"]\n+\tsmudge = \"echo VALUE = 2 > m.py; cat\"\n [core]\n";
    let link = "diff --git a/d b/d\nnew file mode 120000\n--- /dev/null\n+++ b/d\n@@ -0,0 +1 @@\n+.git\n\\ No newline at end of file\n";
    with_runtime(|runtime| async move {
        let (task, _) = loaded(&example("repository"));
        let problem = faulty("test_m (tests.test_old.T)", &tests);
        let grade =
            async |change: &str| graded(&runtime, &check(&task, &problem, change)).await.unwrap();
        for change in [
            format!("--- a/.git/config\n+++ b/.git/config\n{program}{rewritten}"),
            format!("--- \"a/\\056git/config\"\n+++ \"b/\\056git/config\"\n{program}{rewritten}"),
            format!("{link}--- a/d/config\n+++ b/d/config\n{program}{rewritten}"),
        ] {
            let grade = grade(&change).await;
            assert_eq!(grade.details["why"], "the change does not apply", "{change}");
        }
        let inexact = MENDED.replace("@@ -1 +1 @@", "@@ -1,2 +1,2 @@") + " # is gone\n";
        let grade = grade(&inexact).await;
        assert_eq!(grade.score, 1.0, "{}", grade.details);
    });
}

#[test]
fn a_long_log_is_read_from_its_beginning() {
    with_runtime(|runtime| async move {
        let (task, _) = loaded(&example("repository"));
        let problem = Problem::from_row(serde_json::json!({
            "id": "a", "problem_statement": "x", "FAIL_TO_PASS": ["test_a (tests.test_m.T)"],
            "test_command": "python3 -m unittest discover -v -t . -s tests",
            "input_files": {"m.py": "VALUE = 1\n", "tests/__init__.py": "", "tests/test_m.py": "import m, unittest\n\n\
                class T(unittest.TestCase):\n    def test_a(self):\n        self.assertEqual(m.VALUE, 2)\n    \
                def test_b(self):\n        print('a line of some length\\n' * 250_000)\n"},
        }));
        let check = check(&task, &problem.unwrap(), MENDED);
        let grade = graded(&runtime, &check).await.unwrap();
        assert_eq!(grade.score, 1.0, "{}", grade.details);
    });
}

#[test]
fn a_change_to_a_file_that_is_no_utf_8_can_be_carried_over() {
    with_runtime(|runtime| async move {
        let (task, _) = loaded(&example("repository"));
        let problem = Problem::from_row(serde_json::json!({
            "id": "a", "problem_statement": "x", "FAIL_TO_PASS": ["test_m (tests.test_m.T)"],
            "test_command": "python3 -m unittest discover -v -t . -s tests",
            "setup": "printf '# caf\\351\\nVALUE = 1\\n' > m.py; echo '*.py diff' > .gitattributes",
            "input_files": {"tests/__init__.py": "", "tests/test_m.py": "import unittest\n\n\
                class T(unittest.TestCase):\n    def test_m(self):\n        with open('m.py', 'rb') as file:\n            \
                self.assertEqual(file.read(), b'# caf\\xe9\\nVALUE = 2\\n')\n"},
        }));
        let problem = problem.unwrap();
        let sandbox = prepared(&runtime, &task, &problem).await;
        let change = "printf '# caf\\351\\nVALUE = 2\\n' > /testbed/m.py";
        for command in
            [change, &task.diff_command(DiffForm::Text), &task.diff_command(DiffForm::Ascii)]
        {
            let (_, status) = run(&sandbox, command).await;
            assert!(status.success(), "{status:?}");
        }
        let diff = read(&sandbox, DIFF_FILE).await;
        sandbox.destroy().await.unwrap();
        assert!(diff.is_ascii() && diff.contains("GIT binary patch"), "{diff}");
        let grade = graded(&runtime, &check(&task, &problem, &diff)).await.unwrap();
        assert_eq!(grade.score, 1.0, "{}", grade.details);
    });
}

#[test]
fn a_task_brings_a_grader_of_its_own() {
    with_runtime(|runtime| async move {
        let (task, problems) = loaded(&example("receipts"));
        assert_eq!(problems.len(), 3);
        for problem in &problems {
            let truth = problem.ground_truth.clone();
            for (answer, score) in
                [(truth.clone(), 1.0), (format!("{truth} coins"), 0.5), (String::new(), 0.0)]
            {
                let grade = graded(&runtime, &check(&task, problem, &answer)).await;
                assert_eq!(grade.unwrap().score, score, "{}: {answer}", problem.id);
            }
        }
    });
}

#[test]
fn the_reference_s_reward_functions_run_in_a_sandbox() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    write("config.yaml", "dataset: json\ndata_files: x/data.json\nsystem_prompt: x\n");
    write(
        "data.json",
        r#"[{"id": "a", "problem_statement": "q", "ground_truth": "Paris", "level": 3}]"#,
    );
    write("names.py", "def same(a, b):\n    return a.lower() == b.lower()\n");
    write(
        "reward.py",
        "import names\n\ndef compute_score(agent_answer, ground_truth, **kwargs):\n    print('noise')\n    \
         if agent_answer == 'fail':\n        raise ValueError('this answer is refused')\n    \
         assert kwargs['level'] == 3 and kwargs['problem_statement'] == 'q'\n    \
         return names.same(agent_answer, ground_truth)\n",
    );
    with_runtime(|runtime| async move {
        let (task, problems) = loaded(dir.path());
        let grade =
            async |answer: &str| graded(&runtime, &check(&task, &problems[0], answer)).await;
        assert_eq!(grade("paris").await.unwrap().score, 1.0);
        assert_eq!(grade("London").await.unwrap().score, 0.0);
        let error = grade("fail").await.unwrap_err();
        assert!(
            error.contains("exit code 1") && error.contains("this answer is refused"),
            "{error}"
        );
    });
}
