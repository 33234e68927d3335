//! Runs are compared problem by problem, whatever they differ in.

use std::time::{Duration, Instant};

use lis_report::{
    Comparison, LeftOut, Report, Source, html, markdown, markdown_summary, stats::Test,
};
use proptest::prelude::*;
use results::Mode;
use serde_json::json;
use trajectory::{Fault, Outcome};

use crate::fabricate::Plan;

/// A run of one task; each problem has the scores of its attempts, `None` for an attempt that is not graded.
fn run(name: &'static str, mode: Mode, problems: &[(&str, &[Option<f64>])]) -> Source {
    let plan = Plan {
        model: "m",
        seed: 1,
        problems: 1,
        repeats: 1,
        tasks: vec![("math", 0.5, 0.5)],
        broken: 0,
    };
    let mut source = plan.source();
    let template = source.facts[0].clone();
    source.name = name.to_owned();
    source.run.modes = vec![mode];
    source.facts.clear();
    for (id, scores) in problems {
        for (repeat, score) in (0..).zip(*scores) {
            let mut fact = template.clone();
            fact.attempt.key =
                results::AttemptKey { task: "math".into(), mode, id: (*id).to_owned(), repeat };
            fact.attempt.score = *score;
            fact.attempt.outcome = Outcome::Submitted;
            fact.attempt.answer = format!("answer of {name} to {id}");
            fact.content = None;
            fact.recorded = true;
            source.facts.push(fact);
        }
    }
    source
}

fn with_temperature(mut source: Source, temperature: f64) -> Source {
    source.run.settings.fixed = json!({
        "sampling": {"temperature": temperature, "seed": 7}, "caps": {"turns": 30},
    });
    source
}

const RIGHT: &[Option<f64>] = &[Some(1.0)];
const WRONG: &[Option<f64>] = &[Some(0.0)];

fn one(report: &Report) -> &Comparison {
    assert_eq!(report.comparisons.len(), 1, "{:?}", report.comparisons);
    &report.comparisons[0]
}

#[test]
fn single_attempts_are_tested_exactly() {
    let ids: Vec<String> = (0..12).map(|at| format!("p{at:02}")).collect();
    let of = |name, right: &dyn Fn(usize) -> bool| {
        let problems: Vec<(&str, &[Option<f64>])> = ids
            .iter()
            .enumerate()
            .map(|(at, id)| (id.as_str(), if right(at) { RIGHT } else { WRONG }))
            .collect();
        run(name, Mode::Sandbox, &problems)
    };
    // The baseline solves 0 and 9, the other 1 to 9: eight gained, one lost. 2 (1 + 9) / 2^9.
    let before = with_temperature(of("before", &|at| at == 0 || at == 9), 0.2);
    let after = with_temperature(of("after", &|at| (1..=9).contains(&at)), 0.7);
    let report = Report::of(&[before, after]);
    let row = one(&report);
    let found = row.difference.unwrap();
    assert_eq!((found.problems, found.test), (12, Test::Mcnemar));
    assert!((found.p - 20.0 / 512.0).abs() < 1e-12 && row.p_holm == Some(found.p));
    assert!((found.difference - 7.0 / 12.0).abs() < 1e-12);
    assert_eq!((row.baseline_score, row.other_score), (Some(2.0 / 12.0), Some(9.0 / 12.0)));
    assert_eq!((row.gained.total, row.lost.total), (8, 1));
    let lost = &row.lost.items[0];
    assert_eq!((lost.baseline.id.as_str(), lost.baseline.system, lost.other.system), ("p00", 0, 1));
    assert!(lost.baseline_passes.solved() && !lost.other_passes.solved());
    assert_eq!(lost.wrong_answer, "answer of after to p00");
    assert!(row.gained.items.iter().all(|change| change.wrong_answer.contains("of before")));
    let link = Some("../trajectories/math/sandbox/p00.0.jsonl");
    assert_eq!(lost.baseline.trajectory.as_deref(), link);
    let page = html(&report);
    let href = "href=\"./../trajectories/math/sandbox/p00.0.jsonl\">1 of 1</a>";
    assert!(page.contains(href) && page.contains("answer of after to p00"));
    assert!(page.contains("Problems gained and lost"));
    let text = markdown_summary(&report);
    let sentence = "m t=0.7 compared with m t=0.2, math, sandbox: 75.0% against 16.7%; +58.3 percentage points over 12 \
                    problems (95% CI ";
    assert!(text.contains(sentence), "{text}");
    assert!(text.contains("Holm-corrected p = 0.039), 8 gained, 1 lost."), "{text}");
}

#[test]
fn runs_that_differ_in_one_setting_are_told_apart() {
    let of = |name, t| with_temperature(run(name, Mode::Llm, &[("a", RIGHT), ("b", WRONG)]), t);
    let report = Report::of(&[of("one", 0.2), of("two", 0.7)]);
    let labels: Vec<_> = report.systems.iter().map(|system| system.label.as_str()).collect();
    assert_eq!(labels, ["m t=0.2", "m t=0.7"]);
    let differing: Vec<_> = report.settings.differing.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(differing, ["temperature"]);
    assert!(report.settings.same.contains(&("max-turns".to_owned(), "30".to_owned())));
    let text = markdown(&report);
    let settings = text.find("## Settings that differ").unwrap();
    assert!(settings < text.find("## Summary").unwrap());
    assert!(text.contains("| setting | m t=0.2 | m t=0.7 |"), "{text}");
    assert!(text.contains("| temperature | 0.2 | 0.7 |"), "{text}");
    assert!(text.contains("max-turns 30"));
    assert!(text.contains("| one | m t=0.2 |") && text.contains("| two | m t=0.7 |"), "{text}");
    assert!(html(&report).contains("<details><summary>The same in all</summary>"));

    // One setting is not enough for four runs.
    let mut four = [of("1", 0.2), of("2", 0.2), of("3", 0.7), of("4", 0.7)];
    four[1].run.settings.fixed["sampling"]["seed"] = json!(8);
    four[3].run.settings.fixed["sampling"]["seed"] = json!(8);
    let report = Report::of(&four);
    let labels: Vec<_> = report.systems.iter().map(|system| system.label.as_str()).collect();
    assert_eq!(labels, ["m t=0.2 seed=7", "m t=0.2 seed=8", "m t=0.7 seed=7", "m t=0.7 seed=8"]);

    // Repeats of the same thing are told apart by their directories.
    let report = Report::of(&[of("monday", 0.2), of("tuesday", 0.2)]);
    let labels: Vec<_> = report.systems.iter().map(|system| system.label.as_str()).collect();
    assert_eq!(labels, ["m (monday)", "m (tuesday)"]);
    assert!(markdown(&report).contains("The runs record the same settings."));
}

#[test]
fn an_adapter_before_and_after_training_is_named() {
    let of = |name, adapter: serde_json::Value| {
        let mut source = run(name, Mode::Sandbox, &[("a", RIGHT)]);
        source.run.settings.fixed = json!({"local": {"adapter": adapter, "context": null}});
        source
    };
    let report =
        Report::of(&[of("before", json!(null)), of("after", json!("/runs/step-100.gguf"))]);
    let labels: Vec<_> = report.systems.iter().map(|system| system.label.as_str()).collect();
    assert_eq!(labels, ["m", "m adapter=step-100.gguf"]);
    assert_eq!(report.settings.differing[0].values, [None, Some("/runs/step-100.gguf".into())]);
}

#[test]
fn the_baseline_can_be_chosen() {
    let runs: Vec<Source> = [("a", 0.1), ("b", 0.2), ("c", 0.3)]
        .map(|(name, t)| with_temperature(run(name, Mode::Sandbox, &[("p", RIGHT)]), t))
        .to_vec();
    let sides = |baseline| {
        let report = Report::with_baseline(&runs, baseline);
        assert_eq!(report.baseline, Some(baseline));
        let rows = report.comparisons.iter();
        rows.map(|row| (row.baseline.system, row.other.system)).collect::<Vec<_>>()
    };
    assert_eq!(sides(0), [(0, 1), (0, 2)]);
    assert_eq!(sides(2), [(2, 0), (2, 1)]);
    let report = Report::with_baseline(&runs, 1);
    assert!(markdown(&report).contains("Baseline: m t=0.2."));
    assert_eq!(Report::of(&runs[..1]).baseline, None);
}

#[test]
fn runs_without_a_common_problem_are_explained() {
    let first = run("first", Mode::Sandbox, &[("a", RIGHT), ("b", RIGHT)]);
    let mut second = run("second", Mode::Sandbox, &[("c", RIGHT)]);
    second.run.model = "other".into();
    let report = Report::of(&[first.clone(), second.clone()]);
    let row = one(&report);
    assert_eq!((row.difference, row.p_holm, row.baseline_score), (None, None, None));
    assert_eq!((row.left_out.only_baseline, row.left_out.only_other), (2, 1));
    let sentence = "m and other cannot be compared: they share no problem with a valid attempt on both sides. m attempted 2 \
                    problems of math (sandbox); other attempted 1 problem of math (sandbox).";
    assert!(report.notes.contains(&sentence.to_owned()), "{:?}", report.notes);
    let text = markdown(&report);
    assert!(text.contains(sentence) && !text.contains("0.0 percentage points"), "{text}");
    // Other tasks have no row at all, and the same sentence.
    second.facts.iter_mut().for_each(|fact| fact.attempt.key.task = "chem".into());
    let report = Report::of(&[first, second]);
    assert!(report.comparisons.is_empty());
    assert!(report.notes[0].contains("other attempted 1 problem of chem (sandbox)"));
    html(&report);
}

#[test]
fn what_is_left_out_is_counted_and_never_scored_0() {
    let ungraded: &[Option<f64>] = &[None];
    let partly: &[Option<f64>] = &[Some(1.0), None];
    let base = run(
        "base",
        Mode::Sandbox,
        &[("both", RIGHT), ("partly", partly), ("ungraded", ungraded), ("mine", RIGHT)],
    );
    let mut other = run(
        "other",
        Mode::Sandbox,
        &[
            ("both", RIGHT),
            ("partly", RIGHT),
            ("ungraded", RIGHT),
            ("text", RIGHT),
            ("more", WRONG),
            ("broken", RIGHT),
        ],
    );
    other.run.model = "n".into();
    let broken = other.facts.last_mut().unwrap();
    broken.attempt.outcome = Outcome::Infrastructure { cause: "x".into(), fault: Fault::Sandbox };
    let mut base = base;
    let mut text = base.facts[0].clone();
    text.attempt.key.id = "text".into();
    text.content = Some(1);
    base.facts.push(text);
    let mut broken = base.facts[0].clone();
    broken.attempt.key.id = "broken".into();
    base.facts.push(broken);
    let fact = other.facts.iter_mut().find(|fact| fact.attempt.key.id == "text").unwrap();
    fact.content = Some(2);
    let report = Report::of(&[base, other]);
    let row = one(&report);
    let left_out =
        LeftOut { only_baseline: 1, only_other: 1, different: 1, invalid: 2, invalid_attempts: 3 };
    assert_eq!(row.left_out, left_out);
    let found = row.difference.unwrap();
    assert_eq!((found.problems, found.difference, found.p), (2, 0.0, 1.0));
    assert_eq!((row.baseline_score, row.other_score), (Some(1.0), Some(1.0)));
    let text = markdown_summary(&report);
    let header = "| model | mode | task | paired | only baseline | only model | other text | no valid attempt | invalid \
                  attempts |";
    assert!(text.contains(header), "{text}");
    let row = "| n | sandbox | math | 2 | 1 | 1 | 1 | 2 | 3 |";
    assert!(text.contains(row), "{text}");
}

#[test]
fn ungraded_attempts_are_dashes() {
    let ungraded: &[Option<f64>] = &[None];
    let of = |name, model: &str| {
        let mut source = run(name, Mode::Sandbox, &[("a", ungraded), ("b", ungraded)]);
        source.run.model = model.to_owned();
        source
    };
    let report = Report::of(&[of("one", "m"), of("two", "n")]);
    let text = markdown(&report);
    let scores = text.split("## ").find(|section| section.starts_with("Attempts")).unwrap();
    assert!(!scores.contains("0.0"), "{scores}");
    assert!(!text.contains("## Scores") && !text.contains("0.0%"), "{text}");
    let attempts =
        text.lines().find(|line| line.starts_with("| m | math | sandbox | 2 |")).unwrap();
    assert!(attempts.ends_with("| 0 | – | – |"), "{attempts}");
    assert!(one(&report).difference.is_none());
}

#[test]
fn repeats_are_averaged_and_decide_by_majority() {
    let (most, half, few): (&[_], &[_], &[_]) = (
        &[Some(1.0), Some(1.0), Some(0.0), Some(1.0)],
        &[Some(1.0), Some(0.0)],
        &[Some(0.0), Some(0.0), Some(1.0)],
    );
    let base = run("base", Mode::Llm, &[("gain", few), ("tie", half), ("loss", most)]);
    let mut other = run("other", Mode::Llm, &[("gain", most), ("tie", half), ("loss", half)]);
    other.run.model = "n".into();
    let report = Report::of(&[base, other]);
    let row = one(&report);
    let found = row.difference.unwrap();
    let differences = [0.75 - 1.0 / 3.0, 0.0, 0.5 - 0.75];
    assert!((found.difference - differences.iter().sum::<f64>() / 3.0).abs() < 1e-12);
    assert_eq!((found.test, found.problems), (Test::SignFlipsExact, 3));
    let ids = |list: &lis_report::Listed<lis_report::Change>| {
        list.items.iter().map(|change| change.baseline.id.clone()).collect::<Vec<_>>()
    };
    assert_eq!((ids(&row.gained), ids(&row.lost)), (vec!["gain".into()], vec!["loss".into()]));
    // The links lead to attempts that show the change: a wrong one of the baseline, a right one of the other.
    let change = &row.gained.items[0];
    assert_eq!((change.baseline.repeat, change.other.repeat), (0, 0));
    let change = &row.lost.items[0];
    assert_eq!((change.baseline.repeat, change.other.repeat), (0, 1));
    assert!(html(&report).contains(">3 of 4</a>"));
}

#[test]
fn modes_are_compared_where_runs_have_nothing_else_in_common() {
    let base = with_temperature(run("a", Mode::Llm, &[("p", WRONG), ("q", WRONG)]), 0.2);
    let other = with_temperature(run("b", Mode::Sandbox, &[("p", RIGHT), ("q", WRONG)]), 0.7);
    let report = Report::of(&[base, other]);
    let row = one(&report);
    assert_eq!((row.baseline.mode, row.other.mode), (Mode::Llm, Mode::Sandbox));
    assert_eq!(row.difference.unwrap().problems, 2);
    assert!(markdown(&report).contains("| m t=0.7 | sandbox, baseline llm | math | 2 |"));
}

#[test]
fn the_sandbox_gains_and_loses_problems_within_a_run() {
    let llm = run("a", Mode::Llm, &[("won", WRONG), ("lost", RIGHT), ("same", RIGHT)]);
    let mut source = run("a", Mode::Sandbox, &[("won", RIGHT), ("lost", WRONG), ("same", RIGHT)]);
    source.facts.extend(llm.facts);
    source.run.modes = vec![Mode::Llm, Mode::Sandbox];
    let report = Report::of(&[source]);
    let task = &report.systems[0].tasks[0];
    assert_eq!((task.gained.total, task.lost.total), (1, 1));
    let change = &task.gained.items[0];
    assert_eq!((change.other.id.as_str(), change.baseline.mode), ("won", Mode::Llm));
    let page = html(&report);
    for link in ["llm/won", "sandbox/won", "llm/lost", "sandbox/lost"] {
        assert!(
            page.contains(&format!("href=\"./../trajectories/math/{link}.0.jsonl\"")),
            "{link}"
        );
    }
    let text = markdown(&report);
    assert!(text.contains("Gained with the sandbox: solved only with it."), "{text}");
    assert!(text.contains("Lost with the sandbox: solved only without it."), "{text}");
    assert!(!text.contains("trajectories/math/llm/same"), "{text}");
    let listed = report.listed_attempts().filter(|attempt| attempt.id == "won").count();
    // Both sides of the change, and the failure.
    assert_eq!(listed, 3);
}

#[test]
fn titles_say_what_a_report_is_about() {
    let title = |sources: &[Source]| {
        let report = Report::of(sources);
        let text = markdown(&report);
        let page = html(&report);
        let heading = text.lines().next().unwrap().trim_start_matches("# ").to_owned();
        assert!(page.contains(&format!("<h1>{heading}</h1>")));
        let name = page.split("<title>").nth(1).unwrap().split("</title>").next().unwrap();
        (heading, name.to_owned(), text)
    };
    let sandbox = run("a", Mode::Sandbox, &[("p", RIGHT), ("q", WRONG)]);
    let llm = run("b", Mode::Llm, &[("p", RIGHT)]);
    let (heading, name, text) = title(std::slice::from_ref(&sandbox));
    assert_eq!(
        (heading.as_str(), name.as_str()),
        ("Benchmark results with a sandbox", "m, with a sandbox")
    );
    assert!(!text.to_lowercase().contains("without a sandbox"), "{text}");
    let (heading, name, _) = title(std::slice::from_ref(&llm));
    assert_eq!(
        (heading.as_str(), name.as_str()),
        ("Benchmark results without a sandbox", "m, without a sandbox")
    );
    let (heading, name, _) = title(&[sandbox.clone(), llm]);
    assert_eq!(
        (heading.as_str(), name.as_str()),
        ("With and without a sandbox", "m, with and without a sandbox")
    );
    let other = with_temperature(sandbox.clone(), 0.3);
    let (heading, name, _) = title(&[sandbox, other]);
    assert_eq!(
        (heading.as_str(), name.as_str()),
        ("Comparison of benchmark runs", "m and m t=0.3 compared")
    );
}

#[test]
fn every_p_value_shown_is_corrected_for_all_rows() {
    let plan = |model, seed| Plan {
        model,
        seed,
        problems: 40,
        repeats: 2,
        tasks: vec![("math", 0.3, 0.5), ("chem", 0.5, 0.6)],
        broken: 0,
    };
    let report = Report::of(&[plan("a", 1).source(), plan("b", 2).source(), plan("c", 3).source()]);
    // Two systems, two modes, two tasks and their average.
    assert_eq!(report.comparisons.len(), 12);
    let p: Vec<f64> = report.comparisons.iter().map(|row| row.difference.unwrap().p).collect();
    let holm: Vec<f64> = report.comparisons.iter().map(|row| row.p_holm.unwrap()).collect();
    assert_eq!(holm, lis_report::stats::holm(&p));
    for rows in report.comparisons.chunks(3) {
        let [math, chem, average] = rows else { panic!("{rows:?}") };
        assert_eq!((average.task.as_ref(), average.tasks), (None, 2));
        let mean =
            (math.difference.unwrap().difference + chem.difference.unwrap().difference) / 2.0;
        assert!((average.difference.unwrap().difference - mean).abs() < 1e-12);
        assert_eq!(average.gained.total, math.gained.total + chem.gained.total);
        assert!(average.gained.items.is_empty());
    }
    let tasks = || report.systems.iter().flat_map(|system| &system.tasks);
    let p: Vec<f64> = tasks().map(|task| task.difference.unwrap().p).collect();
    let holm: Vec<f64> = tasks().map(|task| task.p_holm.unwrap()).collect();
    assert_eq!(holm, lis_report::stats::holm(&p));
    assert!(p.iter().zip(&holm).any(|(p, holm)| format!("{p:.3}") != format!("{holm:.3}")));
    // Figures, tables and sentences show the corrected values only.
    let (page, text) = (html(&report), markdown(&report));
    let shown = |p: f64| if p < 0.001 { "p <0.001".to_owned() } else { format!("p = {p:.3}") };
    for (p, holm) in p.iter().zip(&holm).filter(|(_, holm)| **holm < 1.0) {
        assert!(page.contains(&plot_text(&shown(*holm))), "{p} {holm}");
    }
    assert!(!text.contains("| p |") && text.contains("| p (Holm) |"));
    for line in text.lines().filter(|line| line.starts_with("- ") && line.contains("95% CI")) {
        assert!(line.contains("Holm-corrected p"), "{line}");
    }
}

fn plot_text(text: &str) -> String {
    text.replace('<', "&lt;")
}

#[test]
fn many_attempts_take_seconds() {
    let plan = |model, seed| Plan {
        model,
        seed,
        problems: 5000,
        repeats: 1,
        tasks: vec![("math", 0.3, 0.5)],
        broken: 40,
    };
    let sources = [plan("a", 1).source(), plan("b", 2).source()];
    assert_eq!(sources.iter().map(|source| source.facts.len()).sum::<usize>(), 20_000);
    let begun = Instant::now();
    let report = Report::of(&sources);
    let (page, text) = (html(&report), markdown(&report));
    let taken = begun.elapsed();
    println!("2 x 10,000 attempts: {taken:?}, page {} bytes", page.len());
    assert!(taken < Duration::from_secs(20), "{taken:?}");
    assert!(page.len() < 1 << 20 && text.len() < 1 << 20);
    let row = &report.comparisons[0];
    assert!(row.gained.total > 500 && row.gained.items.len() <= 200);
}

#[test]
fn hostile_names_and_settings_are_shown_safely() {
    let nasty = "</script><img src=x onerror=alert(1)>\u{202e}\x1b[31m|\n# x";
    let mut sources =
        [0.2, 0.7].map(|t| with_temperature(run("x", Mode::Sandbox, &[("p", RIGHT)]), t));
    for (at, source) in sources.iter_mut().enumerate() {
        source.run.model = nasty.to_owned();
        source.run.settings.fixed["extra_body"] = json!({nasty: format!("{nasty}{at}")});
        source.run.settings.fixed["sampling"]["stop"] = json!([nasty.repeat(100_000), at]);
        let fact = &mut source.facts[0];
        fact.attempt.key.id = nasty.to_owned();
        fact.attempt.score = Some(at as f64);
    }
    let report = Report::of(&sources);
    assert_eq!(one(&report).gained.total, 1);
    let (page, text) = (html(&report), markdown(&report));
    for bad in ["<img", "\u{202e}", "\x1b"] {
        assert!(!page.contains(bad) && !text.replace("\\<", "").contains(bad), "{bad:?}");
    }
    assert!(page.len() < 200_000 && text.len() < 50_000, "{} {}", page.len(), text.len());
}

type Sides = (Vec<Option<f64>>, Vec<Option<f64>>);

/// Scores of both sides by problem: one to three attempts, some of them not graded.
fn sides() -> impl Strategy<Value = Vec<Sides>> {
    let score = prop_oneof![Just(Some(0.0)), Just(Some(1.0)), Just(Some(0.25)), Just(None)];
    let attempts = || prop::collection::vec(score.clone(), 1..4);
    prop::collection::vec((attempts(), attempts()), 1..24)
}

fn build(scores: &[Sides]) -> [Source; 2] {
    let ids: Vec<String> = (0..scores.len()).map(|at| format!("p{at:02}")).collect();
    let of = |name, pick: &dyn Fn(usize) -> Vec<Option<f64>>| {
        let all: Vec<Vec<Option<f64>>> = (0..scores.len()).map(pick).collect();
        let problems: Vec<(&str, &[Option<f64>])> =
            ids.iter().zip(&all).map(|(id, scores)| (id.as_str(), scores.as_slice())).collect();
        run(name, Mode::Sandbox, &problems)
    };
    let first = of("a", &|at| scores[at].0.clone());
    let second = of("b", &|at| scores[at].1.clone());
    [with_temperature(first, 0.1), with_temperature(second, 0.9)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn swapping_the_sides_swaps_the_sign(scores in sides()) {
        let sources = build(&scores);
        let [there, back] = [0, 1].map(|baseline| {
            let report = Report::with_baseline(&sources, baseline);
            report.comparisons[0].clone()
        });
        prop_assert_eq!(there.difference.is_some(), back.difference.is_some());
        prop_assert_eq!((there.gained.total, there.lost.total), (back.lost.total, back.gained.total));
        prop_assert_eq!(there.left_out, back.left_out);
        let (Some(there), Some(back)) = (there.difference, back.difference) else { return Ok(()) };
        prop_assert!((there.difference + back.difference).abs() < 1e-12);
        prop_assert!((there.p - back.p).abs() < 1e-12);
        prop_assert_eq!((there.better, there.worse), (back.worse, back.better));
        if let (Some(there), Some(back)) = (there.bootstrap, back.bootstrap) {
            prop_assert!((there[0] + back[1]).abs() < 1e-9 && (there[1] + back[0]).abs() < 1e-9);
        }
    }

    #[test]
    fn a_run_equals_itself(scores in sides()) {
        let [first, _] = build(&scores);
        let copy = with_temperature(Source { name: "copy".into(), ..first.clone() }, 0.5);
        let report = Report::of(&[first, copy]);
        let row = &report.comparisons[0];
        prop_assert_eq!((row.gained.total, row.lost.total), (0, 0));
        if let Some(found) = row.difference {
            prop_assert_eq!((found.difference, found.p), (0.0, 1.0));
            prop_assert_eq!((found.better, found.worse), (0, 0));
        }
    }

    #[test]
    fn repeating_every_attempt_changes_no_difference(scores in sides()) {
        let twice: Vec<_> = scores.iter().map(|(a, b)| (a.repeat(2), b.repeat(2))).collect();
        let [once, twice] = [&scores, &twice].map(|scores| Report::of(&build(scores)));
        let (once, twice) = (once.comparisons[0].difference, twice.comparisons[0].difference);
        prop_assert_eq!(once.is_some(), twice.is_some());
        if let (Some(once), Some(twice)) = (once, twice) {
            prop_assert!((once.difference - twice.difference).abs() < 1e-12);
            prop_assert_eq!(once.problems, twice.problems);
            prop_assert!((once.p - twice.p).abs() < 1e-12 || once.test != twice.test);
        }
    }
}
