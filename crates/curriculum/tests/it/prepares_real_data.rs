//! Real data sets become tasks that load, with their documents on one side only.

use std::collections::HashSet;

use lis_curriculum::{PrepareSettings, ignore_progress, prepare};
use problems::{Grading, Task};

use crate::support::shared_data;

#[test]
fn the_shared_data_becomes_tasks() {
    let names = ["xquad_en.jsonl", "squality_train.jsonl", "gsm8k_test_first300.jsonl"];
    let inputs: Vec<_> = names.into_iter().filter_map(shared_data).collect();
    if inputs.len() < names.len() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("tasks");
    let manifest = prepare(&inputs, &PrepareSettings::default(), &place, &ignore_progress).unwrap();
    let questions: u64 = manifest.inputs.iter().map(|input| input.questions).sum();
    let left: u64 = manifest.left_out.values().sum();
    assert_eq!(manifest.counts.train + manifest.counts.validation + left, questions);
    assert!(left < questions / 20, "{}", manifest.losses());
    assert_eq!(manifest.counts.subjects.len(), 3, "{:?}", manifest.counts);

    let task = Task::load(&place).unwrap();
    assert_eq!(task.data.as_deref(), Some(place.join("validation.jsonl").as_path()));
    let sides = ["train.jsonl", "validation.jsonl"]
        .map(|name| task.read_files(&[place.join(name)]).unwrap());
    let documents = sides.each_ref().map(|rows| -> HashSet<&str> {
        rows.problems
            .iter()
            .flat_map(|problem| problem.files.values())
            .map(String::as_str)
            .collect()
    });
    assert!(documents[0].is_disjoint(&documents[1]));
    for rows in &sides {
        assert_eq!(rows.bad, []);
        for problem in &rows.problems {
            let Grading::Done(grade) = task.grading(problem, &problem.ground_truth) else {
                panic!("not graded")
            };
            assert_eq!(grade.score, 1.0, "{}", problem.id);
            assert_eq!(problem.files.is_empty(), problem.domain == "math", "{}", problem.id);
        }
    }
    let shown = manifest.counts.demonstrated as f64 / questions as f64;
    assert!(shown > 0.3, "{shown}");
}
