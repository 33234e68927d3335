//! Missing, invalid and incomparable attempts are pointed out and never enter a mean.

use lis_report::{Report, Source, TaskReport, html, markdown};
use results::{JudgeRecord, Mode, ResultsDir};
use serde_json::Value;

use crate::fabricate::Plan;

fn plan(model: &'static str) -> Plan {
    Plan { model, seed: 8, problems: 30, repeats: 1, tasks: vec![("math", 0.3, 0.6)], broken: 0 }
}

/// The attempts of one mode, as a run of its own.
fn only(mode: Mode, mut source: Source) -> Source {
    source.run.modes = vec![mode];
    source.facts.retain(|fact| fact.attempt.key.mode == mode);
    source
}

fn first(report: &Report) -> &TaskReport {
    &report.systems[0].tasks[0]
}

#[test]
fn unequal_repeats_do_not_make_a_run_incomplete() {
    let mut source = plan("m").source();
    let task = &mut source.run.tasks[0];
    (task.repeats, task.attempts) = (2, 30);
    let report = Report::of(std::slice::from_ref(&source));
    assert_eq!((report.runs[0].planned, report.runs[0].missing), (60, 0));
    assert_eq!(first(&report).llm.as_ref().unwrap().missing, 0);
    // The file may hold any number.
    source.run.tasks[0].attempts = usize::MAX;
    source.run.tasks.push(source.run.tasks[0].clone());
    assert_eq!(Report::of(&[source]).runs[0].planned, usize::MAX);
}

#[test]
fn ungraded_attempts_have_no_score() {
    let mut source =
        Plan { tasks: vec![("math", 0.3, 0.6), ("physics", 0.5, 0.5)], ..plan("m") }.source();
    for fact in source.facts.iter_mut().filter(|fact| fact.attempt.key.task == "physics") {
        fact.attempt.score = None;
    }
    let report = Report::of(&[source]);
    let physics = &report.systems[0].tasks[1];
    assert_eq!((physics.difference, physics.p_holm), (None, None));
    let found = physics.sandbox.as_ref().unwrap();
    assert_eq!((found.score, found.ungraded, found.attempts), (None, 30, 30));
    assert!(found.pass_at.is_empty() && found.tokens.is_some());
    assert_eq!(report.systems[0].average, lis_report::Average::default());
    let text = markdown(&report);
    assert!(!text.contains("physics: 0.0%"), "{text}");
    assert!(html(&report).contains("60 attempts are not graded"));
}

#[test]
fn infrastructure_failures_are_not_measurements() {
    let report = Report::of(&[Plan { broken: 1, ..plan("m") }.source()]);
    let found = first(&report).llm.as_ref().unwrap();
    assert_eq!((found.infrastructure, found.attempts), (30, 30));
    assert!(found.score.is_none() && found.turns.is_none());
    assert!(found.tokens.is_none() && found.time.is_none());
    assert_eq!(first(&report).token_ratio, None);
    assert!(!markdown(&report).contains("0.0 s"));
}

#[test]
fn tokens_are_compared_over_the_same_problems() {
    let mut source = plan("m").source();
    let whole = first(&Report::of(std::slice::from_ref(&source))).token_ratio.unwrap();
    // Costly problems attempted in one mode only.
    for at in 0..5 {
        let mut fact = source.facts[0].clone();
        fact.attempt.key.id = format!("extra {at}");
        fact.attempt.tokens.model = 1_000_000;
        source.facts.push(fact);
    }
    assert_eq!(first(&Report::of(&[source])).token_ratio, Some(whole));
}

#[test]
fn the_corrected_p_value_decides_about_significance() {
    let names = ["a", "b", "c", "d", "e", "f", "g"];
    let tasks = names.map(|name| (name, 0.5, 0.5)).to_vec();
    for seed in 0..60 {
        let report = Report::of(&[Plan { seed, tasks: tasks.clone(), ..plan("m") }.source()]);
        let system = &report.systems[0];
        let (p, holm) = (0..7).fold((1.0_f64, 1.0_f64), |(p, holm), at| {
            let task = &system.tasks[at];
            (p.min(task.difference.unwrap().p), holm.min(task.p_holm.unwrap()))
        });
        if p < 0.05 && holm >= 0.05 {
            let text = markdown(&report);
            let sentences =
                text.lines().filter(|line| line.contains("percentage points over 30 problems"));
            assert!(sentences.clone().count() == 7);
            sentences.for_each(|line| assert!(line.contains("not significant"), "{line}"));
            return;
        }
    }
    panic!("none of 60 studies had a small p-value by chance");
}

#[test]
fn runs_without_a_run_file_are_never_merged() {
    let unknown = |mode| {
        let source = only(mode, plan("unknown model").source());
        Source { has_run_file: false, ..source }
    };
    let report = Report::of(&[unknown(Mode::Llm), unknown(Mode::Sandbox)]);
    assert_eq!(report.systems.len(), 2);
    assert!(report.systems.iter().all(|system| system.tasks[0].difference.is_none()));
    let known = [Mode::Llm, Mode::Sandbox].map(|mode| only(mode, plan("m").source()));
    assert_eq!(Report::of(&known).systems.len(), 1);
}

#[test]
fn problems_of_other_rows_are_not_paired() {
    let of = |mode, rows: &str| {
        let mut source = only(mode, plan("m").source());
        source.run.tasks[0].rows_sha256 = rows.to_owned();
        source
    };
    let paired = |first: &str, second: &str| {
        let report = Report::of(&[of(Mode::Llm, first), of(Mode::Sandbox, second)]);
        report.systems.len() == 1 && first_difference(&report)
    };
    assert!(paired("a", "a") && paired("a", ""));
    assert!(!paired("a", "b"));
}

fn first_difference(report: &Report) -> bool {
    first(report).difference.is_some()
}

#[test]
fn different_judges_are_pointed_out() {
    let judged = |model, judge: Option<&str>| {
        let mut source = plan(model).source();
        source.run.tasks[0].grader = "judge".to_owned();
        let record = |name: &str| JudgeRecord { name: name.to_owned(), requested: Value::Null };
        source.run.settings.judge = judge.map(record);
        source
    };
    let noted = |other| {
        let report = Report::of(&[judged("a", Some("large judge")), judged("b", other)]);
        assert!(markdown(&report).contains("| large judge |"));
        report.notes.iter().any(|note| note.contains("different judge models"))
    };
    assert!(noted(Some("small judge")));
    assert!(!noted(Some("large judge")) && !noted(None));
}

#[test]
fn duplicate_problems_are_pointed_out() {
    let mut source = plan("m").source();
    let noted = |source: &Source| {
        let report = Report::of(std::slice::from_ref(source));
        report.notes.iter().any(|note| note.contains("10 problems duplicate another one"))
    };
    assert!(!noted(&source));
    for fact in &mut source.facts {
        let number: u32 = fact.attempt.key.id[1..].parse().unwrap();
        fact.content = Some(u64::from(number % 20));
    }
    assert!(noted(&source));
}

#[test]
fn the_location_of_documents_is_part_of_the_label() {
    let prompt = |source: &mut Source| source.run.documents = "prompt".to_owned();
    let (files, mut inside) = (plan("m").source(), plan("m").source());
    prompt(&mut inside);
    let report = Report::of(&[files, inside]);
    let labels: Vec<_> = report.systems.iter().map(|system| system.label.as_str()).collect();
    assert_eq!(labels, ["m", "m, documents in the prompt"]);
}

#[test]
fn a_run_with_very_many_tasks_is_cut() {
    let dir = tempfile::tempdir().unwrap();
    let mut run = plan("m").run();
    run.tasks = (0..20_000)
        .map(|at| results::TaskInfo { name: format!("t{at}"), ..run.tasks[0].clone() })
        .collect();
    ResultsDir::new(dir.path()).save_run(&run).unwrap();
    let mut long = plan("m").attempts().next().unwrap();
    long.key.id = "x".repeat(100_000);
    ResultsDir::new(dir.path()).save(&long).unwrap();
    let sources = lis_report::read(&[dir.path().to_owned()], dir.path()).unwrap();
    let report = Report::of(&sources);
    assert_eq!((report.tasks.len(), report.runs[0].read), (500, 0));
    let said = report.runs[0].damaged.items.join("\n");
    assert!(
        said.contains("names 20000 tasks") && said.contains("task or problem is too long"),
        "{said}"
    );
}
