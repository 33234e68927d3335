//! A grader of your own: a function from problem and answer to a score. Commands that grade are in `docs/tasks.md`.
#![expect(clippy::print_stdout, reason = "an example shows its result")]

use anyhow::Context;
use lis_problems::{Grade, Grader, Grading, Problem, Task};
use serde_json::json;

fn main() -> anyhow::Result<()> {
    let mut task = Task::builtin("math").context("there is no such task")?;
    // The share of the wanted colours that the answer names.
    task.grader = Grader::custom("colours", |problem, answer| {
        let wanted: Vec<&str> = problem.ground_truth.split(',').collect();
        let named = wanted.iter().filter(|colour| answer.contains(**colour)).count();
        Grade::new(named as f64 / wanted.len() as f64)
    });
    let problem = Problem::from_row(json!({
        "id": "1",
        "problem_statement": "Name the colours of the Italian flag.",
        "ground_truth": "green,white,red",
    }))?;
    for answer in ["green, white and red", "red and blue", "none"] {
        if let Grading::Done(grade) = task.grading(&problem, answer) {
            println!("{answer}: {:.2}", grade.score);
        }
    }
    Ok(())
}
