//! Graders that are programs: tests of a repository, a task's own command, the reference's reward function.

use std::{fs, path::Path};

use problems::{Check, Grading, Problem, Task, swe::DIFF_FILE};
use sandbox::{Runtime, Sandbox, Spec};
use sandbox_native::{NativeRuntime, NativeSandbox};

use crate::{
    sandboxes::{graded, read, run, with_runtime},
    support::example,
};

fn loaded(dir: &Path) -> (Task, Vec<Problem>) {
    let task = Task::load(dir).unwrap();
    let rows = task.read_rows(task.data.as_ref().unwrap()).unwrap();
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
            let (_, status) = run(&sandbox, &task.diff_command()).await;
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
            // A test that is no test any more.
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
