//! The commands that come with a task solve it, in a sandbox, from the files alone.

use lis_curriculum::{
    Kind, Level, PrepareSettings, SynthesizeSettings, ignore_progress, prepare, synthesize,
};
use problems::{Problem, Task};
use sandbox::Sandbox;

use crate::{
    sandboxes::{demonstrated, draft, with_runtime},
    support::shared_data,
};

fn loaded(dir: &std::path::Path) -> (Task, Vec<Problem>) {
    let task = Task::load(dir).unwrap();
    let rows =
        task.read_files(&["train.jsonl", "validation.jsonl"].map(|name| dir.join(name))).unwrap();
    assert_eq!(rows.bad, []);
    (task, rows.problems)
}

#[test]
fn every_kind_at_every_level() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("tasks");
    let settings = SynthesizeSettings {
        count: 2 * Kind::ALL.len() * Level::ALL.len(),
        seed: 20,
        levels: Level::ALL.to_vec(),
        kinds: Kind::ALL.to_vec(),
        validation: 0.2,
    };
    synthesize(&settings, &place, &ignore_progress).unwrap();
    let (task, problems) = loaded(&place);
    assert_eq!(problems.len(), settings.count);
    with_runtime(|runtime, spec| async move {
        let sandbox = draft(&runtime, &spec).await;
        for problem in &problems {
            let (score, printed) = demonstrated(&sandbox, &task, problem).await;
            let asked = format!("{}: {}", problem.id, problem.statement);
            assert_eq!(score, 1.0, "{asked}\nright: {}\n{printed}", problem.ground_truth);
        }
        sandbox.destroy().await.unwrap();
    });
}

#[test]
fn questions_over_texts() {
    let Some(input) = shared_data("xquad_en.jsonl") else { return };
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("tasks");
    let settings = PrepareSettings { limit: Some(150), ..PrepareSettings::default() };
    prepare(&[input], &settings, &place, &ignore_progress).unwrap();
    let (task, problems) = loaded(&place);
    with_runtime(|runtime, spec| async move {
        let sandbox = draft(&runtime, &spec).await;
        let shown: Vec<_> = problems
            .iter()
            .filter(|problem| lis_curriculum::solve(&problem.extra).is_some())
            .collect();
        assert!(shown.len() > 60, "{}", shown.len());
        for problem in shown {
            let (score, printed) = demonstrated(&sandbox, &task, problem).await;
            assert_eq!(score, 1.0, "{}: {}\n{printed}", problem.id, problem.statement);
            // The search shows what the answer is, before it is written.
            let search = printed.split("\n$ printf").next().unwrap_or_default();
            assert!(search.contains(&problem.ground_truth), "{}: {printed}", problem.id);
        }
        sandbox.destroy().await.unwrap();
    });
}
