//! Runs of plain responses by a scripted model: what one row does must not end the others.

use model::Error as ModelError;
use problems::Problem;
use results::{Mode, RunSettings};
use sandbox_docker::DockerRuntime;
use testkit::{ScriptedModel, Step, say};
use trajectory::Outcome;

use super::*;
use crate::{
    JudgeAccess, Scope,
    plan::tests::{plan, problem},
};

/// Ignores the progress.
struct Silence;

impl Progress for Silence {
    fn on_event(&self, _: &ProgressEvent<'_>) {}
}

/// Rows of which these are asked, and how the model treats each by its statement.
async fn play(
    dir: &ResultsDir,
    ids: &[&str],
    concurrency: Concurrency,
    answer: impl Fn(&str) -> Step + Send + Sync + 'static,
) -> RunOutcome {
    let with = |id: &&str| Problem { statement: format!("<{id}>"), ..problem(id, 1) };
    let plan = Plan { modes: vec![Mode::Llm], ..plan(ids.iter().map(with).collect(), 1) };
    let model = ScriptedModel::answering(move |request| {
        let asked = format!("{:?}", request.messages);
        answer(asked.split_once('<').unwrap().1.split_once('>').unwrap().0)
    });
    let run = Run {
        v: results::VERSION,
        program: String::new(),
        started: 0,
        model: "m".into(),
        tasks: plan.tasks.iter().map(|task| task.info()).collect(),
        modes: plan.modes.clone(),
        without: Vec::new(),
        documents: "files".into(),
        settings: RunSettings::default(),
    };
    let due = Due::of(&plan, dir, &run, JudgeAccess::Missing, Scope::All);
    let benchmark: Benchmark<ScriptedModel, DockerRuntime> = Benchmark {
        due,
        all: plan.clone(),
        plan,
        dir: dir.clone(),
        run,
        model,
        judge: None,
        runtime: None,
        concurrency,
        config: Value::Null,
        bad_rows: Vec::new(),
        progress: Arc::new(Silence),
    };
    benchmark.run(tokio_util::sync::CancellationToken::new()).await.unwrap()
}

fn right() -> Step {
    say("\\boxed{1}").into()
}

/// Bad rows are refused for good.
fn unless_bad(id: &str) -> Step {
    match id.starts_with("bad") {
        true => Step::Error(ModelError::Refused { status: 400, message: "no".into() }),
        false => right(),
    }
}

fn concurrency(tries: u32, max_failures: u32) -> Concurrency {
    let first_wait = Duration::from_millis(1);
    Concurrency {
        sandboxes: 1,
        model_calls: 2,
        tries,
        first_wait,
        max_failures,
        ..Concurrency::default()
    }
}

#[tokio::test]
async fn few_rows_that_never_work_do_not_end_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let ids = ["bad-0", "bad-1", "bad-2", "bad-3", "a", "b"];
    let finished = play(&ResultsDir::new(dir.path()), &ids, concurrency(3, 5), unless_bad).await;
    assert_eq!(finished.end, RunEnd::Complete);
    let figures = &finished.summary.groups.groups[0];
    assert_eq!((figures.graded, figures.infrastructure), (2, 4));
}

#[tokio::test]
async fn what_failed_before_comes_last() {
    let dir = tempfile::tempdir().unwrap();
    let results = ResultsDir::new(dir.path());
    let ids = ["bad-0", "bad-1", "bad-2", "a", "b"];
    let concurrency = Concurrency { model_calls: 1, ..concurrency(1, 2) };
    let mut graded = Vec::new();
    for _ in 0..3 {
        let finished = play(&results, &ids, concurrency.clone(), unless_bad).await;
        assert!(matches!(finished.end, RunEnd::Failed { .. }), "{:?}", finished.end);
        graded.push(finished.summary.groups.groups[0].graded);
    }
    assert_eq!((graded[0], graded[2]), (0, 2));
}

#[tokio::test]
async fn an_attempt_that_panics_is_a_failure_of_ours_alone() {
    let dir = tempfile::tempdir().unwrap();
    let results = ResultsDir::new(dir.path());
    let panics = |id: &str| {
        assert!(!id.starts_with("bad"), "a defect");
        right()
    };
    let finished = play(&results, &["bad-0", "a", "b"], concurrency(1, 5), panics).await;
    assert_eq!(finished.end, RunEnd::Complete);
    let figures = &finished.summary.groups.groups[0];
    assert_eq!((figures.graded, figures.infrastructure), (2, 1));
    let causes = results.attempts().unwrap().filter_map(|attempt| match attempt.unwrap().outcome {
        Outcome::Infrastructure { cause, .. } => Some(cause),
        _ => None,
    });
    let causes: Vec<String> = causes.collect();
    assert!(causes.len() == 1 && causes[0].contains("a defect"), "{causes:?}");
    // It is made again like any other.
    let finished = play(&results, &["bad-0", "a", "b"], concurrency(1, 5), |_| right()).await;
    assert_eq!(finished.summary.groups.groups[0].graded, 3);
}

#[test]
fn no_more_is_under_way_than_the_model_remembers() {
    let concurrency = Concurrency { sandboxes: 8, model_calls: 4, ..Concurrency::default() };
    assert_eq!(concurrency.attempts(), 12);
    assert_eq!(Concurrency { conversations: 4, ..concurrency }.attempts(), 4);
    assert_eq!(Concurrency { conversations: 0, ..concurrency }.attempts(), 1);
}
