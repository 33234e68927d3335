//! Runs of plain replies by a scripted model: what one row does must not end the others.

use model::Error as ModelError;
use problems::Problem;
use results::Mode;
use sandbox_docker::DockerRuntime;
use testkit::{Line, Scripted, say};
use trajectory::Outcome;

use super::*;
use crate::plan::tests::{plan, problem};

/// Nobody listens.
struct Silence;

impl Progress for Silence {
    fn tell(&self, _: &News<'_>) {}
}

/// Rows of which these are asked, and how the model treats each by its statement.
async fn play(
    folder: &Folder,
    ids: &[&str],
    pace: Pace,
    answer: impl Fn(&str) -> Line + Send + Sync + 'static,
) -> Finished {
    let with = |id: &&str| Problem { statement: format!("<{id}>"), ..problem(id, 1) };
    let plan = Plan { modes: vec![Mode::Llm], ..plan(ids.iter().map(with).collect(), 1) };
    let model = Scripted::answering(move |request| {
        let asked = format!("{:?}", request.messages);
        answer(asked.split_once('<').unwrap().1.split_once('>').unwrap().0)
    });
    let run = Run {
        v: results::VERSION,
        program: String::new(),
        started: 0,
        model: "m".into(),
        tasks: plan.tasks.iter().map(|asked| asked.info()).collect(),
        modes: plan.modes.clone(),
        without: Vec::new(),
        context: "files".into(),
        settings: Value::Null,
    };
    let benchmark: Benchmark<Scripted, DockerRuntime> = Benchmark {
        plan,
        folder: folder.clone(),
        run,
        model,
        judge: None,
        runtime: None,
        pace,
        config: Value::Null,
        bad_rows: Vec::new(),
        progress: Arc::new(Silence),
    };
    let (_stopper, watch) = agent::stopper();
    benchmark.run(watch).await.unwrap()
}

fn right() -> Line {
    say("\\boxed{1}").into()
}

/// Bad rows are refused for good.
fn unless_bad(id: &str) -> Line {
    match id.starts_with("bad") {
        true => Line::Fails(ModelError::Refused { status: 400, message: "no".into() }),
        false => right(),
    }
}

fn pace(tries: u32, failures_in_a_row: u32) -> Pace {
    let first_wait = Duration::from_millis(1);
    Pace { sandboxes: 1, model_calls: 2, tries, first_wait, failures_in_a_row, ..Pace::default() }
}

#[tokio::test]
async fn few_rows_that_never_work_do_not_end_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let ids = ["bad-0", "bad-1", "bad-2", "bad-3", "a", "b"];
    let finished = play(&Folder::new(dir.path()), &ids, pace(3, 5), unless_bad).await;
    assert_eq!(finished.end, End::Complete);
    let figures = &finished.summary.groups.groups[0];
    assert_eq!((figures.graded, figures.infrastructure), (2, 4));
}

#[tokio::test]
async fn what_failed_before_comes_last() {
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder::new(dir.path());
    let ids = ["bad-0", "bad-1", "bad-2", "a", "b"];
    let pace = Pace { model_calls: 1, ..pace(1, 2) };
    let mut graded = Vec::new();
    for _ in 0..3 {
        let finished = play(&folder, &ids, pace.clone(), unless_bad).await;
        assert!(matches!(finished.end, End::Broken { .. }), "{:?}", finished.end);
        graded.push(finished.summary.groups.groups[0].graded);
    }
    assert_eq!((graded[0], graded[2]), (0, 2));
}

#[tokio::test]
async fn an_attempt_that_panics_is_a_failure_of_ours_alone() {
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder::new(dir.path());
    let panics = |id: &str| {
        assert!(!id.starts_with("bad"), "a defect");
        right()
    };
    let finished = play(&folder, &["bad-0", "a", "b"], pace(1, 5), panics).await;
    assert_eq!(finished.end, End::Complete);
    let figures = &finished.summary.groups.groups[0];
    assert_eq!((figures.graded, figures.infrastructure), (2, 1));
    let causes = folder.attempts().unwrap().filter_map(|attempt| match attempt.unwrap().outcome {
        Outcome::Infrastructure { cause } => Some(cause),
        _ => None,
    });
    let causes: Vec<String> = causes.collect();
    assert!(causes.len() == 1 && causes[0].contains("a defect"), "{causes:?}");
    // It is made again like any other.
    let finished = play(&folder, &["bad-0", "a", "b"], pace(1, 5), |_| right()).await;
    assert_eq!(finished.summary.groups.groups[0].graded, 3);
}

#[test]
fn no_more_is_under_way_than_the_model_remembers() {
    let pace = Pace { sandboxes: 8, model_calls: 4, ..Pace::default() };
    assert_eq!(pace.attempts(), 12);
    assert_eq!(Pace { conversations: 4, ..pace }.attempts(), 4);
    assert_eq!(Pace { conversations: 0, ..pace }.attempts(), 1);
}
