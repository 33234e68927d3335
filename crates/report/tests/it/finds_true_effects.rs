//! Estimates of synthetic runs are near the true effects and deterministic, and large runs take seconds.

use std::time::{Duration, Instant};

use lis_report::{Report, TaskReport, html, markdown, stats::Test};

use crate::fabricate::Plan;

fn plan(seed: u64) -> Plan {
    Plan {
        model: "small",
        seed,
        problems: 400,
        repeats: 2,
        tasks: vec![("math", 0.3, 0.6), ("chem", 0.5, 0.5), ("physics", 0.7, 0.55)],
        broken: 0,
    }
}

fn report(plan: &Plan) -> Report {
    Report::of(&[plan.source()])
}

fn task<'a>(report: &'a Report, name: &str) -> &'a TaskReport {
    report.systems[0].tasks.iter().find(|task| task.task == name).unwrap()
}

#[test]
fn scores_and_differences_are_near_the_truth() {
    let plan = plan(1);
    let report = report(&plan);
    for (name, without, with) in &plan.tasks {
        let task = task(&report, name);
        let near = |found: &lis_report::ModeReport, truth: f64| {
            let score = found.score.unwrap();
            let (mean, se) = (score.mean, score.se.unwrap());
            assert!((mean - truth).abs() < 4.0 * se, "{name}: {mean} ± {se}, not {truth}");
            // 400 problems with chances that vary: between one and two attempts' worth of them.
            assert!((0.015..0.03).contains(&se), "{se}");
        };
        near(task.llm.as_ref().unwrap(), *without);
        near(task.sandbox.as_ref().unwrap(), *with);
        let found = task.difference.unwrap();
        let [low, high] = found.bootstrap.unwrap();
        let truth = with - without;
        assert!((low - 0.02..high + 0.02).contains(&truth), "{name}: {low} to {high}, not {truth}");
        assert_eq!((found.problems, found.test), (400, Test::SignFlipsExact));
    }
    assert!(task(&report, "math").p_holm.unwrap() < 0.001);
    assert!(task(&report, "physics").difference.unwrap().difference < -0.05);
    assert!(task(&report, "chem").difference.unwrap().p > 0.01);
}

#[test]
fn intervals_have_their_nominal_coverage() {
    let (mut held, mut significant, studies) = (0, 0, 120);
    for seed in 0..studies {
        let plan =
            Plan { problems: 60, repeats: 1, tasks: vec![("math", 0.4, 0.4)], ..plan(1000 + seed) };
        let report = report(&plan);
        let found = task(&report, "math").difference.unwrap();
        assert_eq!(found.test, Test::Mcnemar);
        let [low, high] = found.bootstrap.unwrap();
        held += usize::from((low..=high).contains(&0.0));
        significant += usize::from(found.p < 0.05);
    }
    // 95% of 120 are 114; 104 or fewer would happen once in ten thousand. The exact test errs on the safe side.
    assert!(held > 104, "{held} of {studies}");
    assert!(significant < 14, "{significant} of {studies}");
}

#[test]
fn invalid_attempts_enter_no_mean() {
    let plan = Plan { broken: 4, ..plan(3) };
    let report = report(&plan);
    let task = task(&report, "math");
    let found = task.sandbox.as_ref().unwrap();
    let share = found.infrastructure as f64 / found.attempts as f64;
    assert!((0.2..0.3).contains(&share), "{share}");
    let score = found.score.unwrap();
    assert!((score.mean - 0.6).abs() < 4.0 * score.se.unwrap(), "{}", score.mean);
    assert_eq!(score.attempts, found.valid);
    assert_eq!(found.valid + found.infrastructure + found.ungraded, found.attempts);
    assert_eq!(found.faults["unknown"], found.infrastructure);
    assert_eq!((found.graded, task.difference_graded), (found.score, task.difference));
    assert_eq!(found.outcomes["infrastructure"], found.infrastructure);
    assert!(report.notes.iter().any(|note| note.contains("failed because of the infrastructure")));
    let none = Report::of(&[Plan { broken: 0, ..plan }.source()]);
    assert_eq!(none.systems[0].tasks[0].difference_graded, None);
}

#[test]
fn pass_at_k_grows_with_k() {
    let plan = Plan { repeats: 8, problems: 50, ..plan(5) };
    let report = report(&plan);
    let found = &task(&report, "math").llm.as_ref().unwrap().pass_at;
    assert_eq!(found.iter().map(|found| found.k).collect::<Vec<_>>(), (1..=8).collect::<Vec<_>>());
    assert!(found.windows(2).all(|pair| pair[0].mean <= pair[1].mean));
    let score = task(&report, "math").llm.as_ref().unwrap().score.unwrap().mean;
    assert!((found[0].mean - score).abs() < 1e-12);
    assert!(found[7].mean > 0.85, "{}", found[7].mean);
}

#[test]
fn systems_are_compared() {
    let plan = |seed| Plan { problems: 30, ..plan(seed) };
    let small = plan(1).source();
    let large = Plan { model: "large", ..plan(2) }.source();
    let again = plan(9).source();
    let mut shorter = Plan { tasks: vec![("math", 0.1, 0.9)], model: "third", ..plan(4) }.source();
    shorter.run.without = vec!["external".to_owned()];
    let report = Report::of(&[small, large, again, shorter]);
    let labels: Vec<_> = report.systems.iter().map(|system| system.label.as_str()).collect();
    assert_eq!(labels, ["small (small)", "large", "small (small) #2", "third without external"]);
    assert_eq!(report.tasks, ["math", "chem", "physics"]);
    assert!(report.systems[1].average.difference.is_some());
    assert_eq!(report.systems[3].average, lis_report::Average::default());
    let average = report.systems[0].average.sandbox.unwrap();
    let tasks = report.systems[0].tasks.iter();
    let tasks = tasks.map(|task| task.sandbox.as_ref().unwrap().score.unwrap().mean);
    assert!((average.mean - tasks.sum::<f64>() / 3.0).abs() < 1e-12);
    let text = markdown(&report);
    assert!(text.contains("| large | difference |"), "{text}");
}

#[test]
fn two_runs_of_one_model_become_one_row() {
    let math = Plan { tasks: vec![("math", 0.3, 0.6)], ..plan(1) }.source();
    let chem = Plan { tasks: vec![("chem", 0.3, 0.6)], ..plan(2) }.source();
    let report = Report::of(&[math.clone(), chem.clone()]);
    assert!(report.notes.is_empty(), "{:?}", report.notes);
    assert_eq!(report.systems.len(), 1);
    assert_eq!(report.systems[0].runs, [0, 1]);
    assert_eq!(report.systems[0].tasks.len(), 2);
    // Other problems are no other conditions, another temperature is.
    let mut fewer = chem.clone();
    fewer.run.settings.fixed = serde_json::json!({"selection": {"limit": 3}});
    let mut more = math.clone();
    more.run.settings.fixed = serde_json::json!({"selection": {"limit": 30}});
    assert_eq!(Report::of(&[more, fewer]).systems.len(), 1);
    let mut hotter = chem;
    hotter.run.settings.fixed = serde_json::json!({"sampling": {"temperature": 1.0}});
    let report = Report::of(&[math, hotter]);
    let labels: Vec<_> = report.systems.iter().map(|system| system.label.as_str()).collect();
    assert_eq!(labels, ["small", "small t=1"]);
}

#[test]
fn different_problems_are_pointed_out() {
    let sources = [("small", "a"), ("large", "b")].map(|(model, rows)| {
        let mut source = Plan { model, problems: 30, ..plan(1) }.source();
        source.run.tasks.iter_mut().for_each(|task| task.rows_sha256 = rows.to_owned());
        source
    });
    let report = Report::of(&sources);
    assert!(report.notes[0].contains("math: the runs used different problems"));
    assert_eq!(report.notes.len(), 3);
}

#[test]
fn the_same_results_give_the_same_report() {
    let made = || {
        let report = report(&Plan { problems: 40, ..plan(7) });
        (serde_json::to_string(&report).unwrap(), markdown(&report), html(&report))
    };
    let (first, second) = (made(), made());
    assert!(first == second, "two reports of the same results differ");
    let read: Report = serde_json::from_str(&first.0).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), first.0);
    assert_eq!(html(&read), first.2);
}

#[test]
fn a_large_run_takes_seconds() {
    let plan = Plan { problems: 2500, repeats: 2, broken: 50, ..plan(11) };
    let source = Plan {
        tasks: [plan.tasks.clone(), vec![("biomed", 0.2, 0.3), ("swe", 0.1, 0.4)]].concat(),
        ..plan
    }
    .source();
    assert_eq!(source.facts.len(), 50_000);
    let begun = Instant::now();
    let report = Report::of(&[source]);
    let page = html(&report);
    let text = markdown(&report);
    let taken = begun.elapsed();
    assert!(taken < Duration::from_secs(60), "{taken:?}");
    assert!(page.len() < 1 << 20, "{}", page.len());
    assert!(text.len() < 1 << 20, "{}", text.len());
    assert!(report.failures.items.len() <= 400);
    assert!(report.failures.total > 20_000);
    println!("50,000 attempts: {taken:?}, page {} bytes", page.len());
}
