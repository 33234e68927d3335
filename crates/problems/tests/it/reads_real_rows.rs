//! The real rows of the benchmarks: all are problems, right answers are right and wrong ones wrong.

use lis_problems::{Grading, Problem, ScoreFrom, Task};

use crate::support::shared_rows;

/// The task and its rows; none where the rows are missing.
fn task(name: &str, file: &str, count: usize) -> Option<(Task, Vec<Problem>)> {
    let task = Task::builtin(name).unwrap();
    let rows = task.read_files(&[shared_rows(file)?]).unwrap();
    assert_eq!(rows.bad, []);
    assert_eq!(rows.problems.len(), count);
    assert!(rows.problems.iter().all(|problem| problem.repeats == 1));
    Some((task, rows.problems))
}

fn score(task: &Task, problem: &Problem, answer: &str) -> f64 {
    match task.grading(problem, answer) {
        Grading::Done(grade) => grade.score,
        other => panic!("{other:?}"),
    }
}

#[test]
fn mathematics() {
    let Some((task, problems)) = task("math", "math.jsonl", 30) else { return };
    for problem in &problems {
        let truth = &problem.ground_truth;
        assert_eq!(score(&task, problem, &format!("\\boxed{{{truth}}}")), 1.0, "{}", problem.id);
        assert_eq!(score(&task, problem, truth), 1.0, "{}", problem.id);
        assert_eq!(score(&task, problem, &format!("\\boxed{{{truth}1}}")), 0.0, "{}", problem.id);
        assert_eq!(score(&task, problem, ""), 0.0, "{}", problem.id);
    }
}

#[test]
fn medicine() {
    let Some((task, problems)) = task("biomed", "biomed.jsonl", 100) else { return };
    for problem in &problems {
        let truth = &problem.ground_truth;
        let wrong = if truth == "A" { "B" } else { "A" };
        assert_eq!(score(&task, problem, truth), 1.0, "{}", problem.id);
        assert_eq!(score(&task, problem, &format!("So: none fits.\nAnswer: {truth}")), 1.0);
        assert_eq!(score(&task, problem, wrong), 0.0, "{}", problem.id);
        assert_eq!(score(&task, problem, ""), 0.0, "{}", problem.id);
    }
}

#[test]
fn instructions() {
    let Some((task, problems)) = task("instruct_follow", "instruct_follow.jsonl", 300) else {
        return;
    };
    let mut followed = 0;
    for problem in &problems {
        assert_eq!(score(&task, problem, ""), 0.0, "{}", problem.id);
        followed += usize::from(score(&task, problem, "banana") > 0.0);
    }
    // Many constraints only forbid or limit something, and those one word can meet.
    assert!((30..200).contains(&followed), "one word follows {followed} of 300");
}

#[test]
fn physics_is_put_to_a_judge() {
    let Some((task, problems)) = task("physics", "physics.jsonl", 65) else { return };
    let subjects: std::collections::BTreeSet<_> =
        problems.iter().map(|problem| &problem.subject).collect();
    assert_eq!(subjects.len(), 13);
    for problem in &problems {
        let Grading::Judge(job) = task.grading(problem, "an answer") else {
            panic!("{}", problem.id)
        };
        assert!(job.prompt.contains(&problem.ground_truth) && job.prompt.contains("an answer"));
        let correct = vec![Some("CORRECT".to_owned()); job.votes];
        assert_eq!(job.grade(&correct).score, 1.0);
        let nonsense = vec![Some("the weather is fine".to_owned()); job.votes];
        assert_eq!(job.grade(&nonsense).score, 0.0);
    }
}

#[test]
fn long_documents_are_in_the_prompt_or_in_files() {
    let Some((task, problems)) = task("long_context", "long_context_sample.jsonl", 3) else {
        return;
    };
    for problem in &problems {
        assert!(!problem.files.is_empty());
        let (plain, inside) = (task.plain_prompt(problem), task.with_documents_in_prompt(problem));
        for (name, text) in &problem.files {
            assert!(plain.contains(name) && plain.contains(text), "{}: {name}", problem.id);
            assert!(inside.contains(text), "{}: {name}", problem.id);
        }
        assert!(plain.ends_with(&problem.statement));
        assert!(matches!(task.grading(problem, "x"), Grading::Judge(_)));
    }
}

#[test]
fn repositories_know_their_images_and_tests() {
    let Some((task, problems)) = task("swe", "swebench_verified_sample.jsonl", 20) else { return };
    for problem in &problems {
        let image = task.image(problem).unwrap();
        assert!(
            image.starts_with("swebench/sweb.eval.x86_64.") && image.contains("_1776_"),
            "{image}"
        );
        let patch = problem.extra["patch"].as_str().unwrap();
        let Grading::InSandbox(check) = task.grading(problem, patch) else {
            panic!("{}", problem.id)
        };
        assert_eq!(check.image, Some(image));
        let ScoreFrom::Tests(log) = check.score else { panic!("{}", problem.id) };
        assert!(!log.fail_to_pass.is_empty());
    }
}
