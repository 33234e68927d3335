//! Facts become a report. Pure: reads no file and knows no format.

mod failures;
mod mode;
mod systems;

use std::collections::BTreeMap;

use results::{Mode, TaskInfo};

use crate::{
    Fact, Source,
    analysis::{Capabilities, PlainSummary},
    data::{
        Average, Domain, Listed, Mean, Method, ModeReport, Report, RunInfo, System, TaskReport,
        VERSION,
    },
    stats::{self, Estimate, Paired, holm, mean, paired},
    text::excerpt,
};

/// Characters of a name: of a task, a model, a problem.
const NAME: usize = 100;
/// Domains told apart in a system; what comes after is taken together.
const DOMAINS: usize = 60;

impl Report {
    /// Says what these results mean.
    pub fn of(sources: &[Source]) -> Self {
        let tasks = systems::tasks(sources);
        let groups = systems::group(sources);
        let mut report = Self {
            v: VERSION,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            method: Method { confidence: stats::CONFIDENCE, seed: stats::SEED, pass: stats::PASS },
            runs: sources.iter().map(run_info).collect(),
            systems: groups.iter().map(|group| system(group, sources, &tasks)).collect(),
            tasks: tasks.iter().map(|task| excerpt(task, NAME)).collect(),
            leaks: failures::leaks(&groups, sources),
            failures: failures::failures(&groups, sources),
            notes: Vec::new(),
        };
        report.notes = notes(&report);
        report.notes.extend(systems::doubts(&groups, sources));
        report
    }
}

fn run_info(source: &Source) -> RunInfo {
    let asked = source.run.tasks.iter().map(asked).fold(0, usize::saturating_add);
    let asked = asked.saturating_mul(source.run.modes.len());
    RunInfo {
        name: source.name.clone(),
        link: source.link.clone(),
        model: excerpt(&source.run.model, NAME),
        program: excerpt(&source.run.program, NAME),
        judge: excerpt(systems::judge(&source.run).unwrap_or_default(), NAME),
        started: source.run.started,
        asked,
        read: source.facts.len(),
        missing: asked.saturating_sub(source.facts.len()),
        without_events: source.without_events,
        damaged: Listed { total: source.damages, items: source.damaged.clone() },
    }
}

/// Attempts of a task in one mode, for records that do not say it as if every problem were asked equally often.
fn asked(task: &TaskInfo) -> usize {
    match task.attempts {
        0 => task.problems.saturating_mul(task.repeats as usize),
        known => known,
    }
}

fn system(group: &systems::Group, sources: &[Source], tasks: &[String]) -> System {
    let run = &sources[group.runs[0]].run;
    let mut reports: Vec<TaskReport> =
        tasks.iter().filter_map(|task| task_report(group, sources, task)).collect();
    let compared: Vec<usize> =
        (0..reports.len()).filter(|at| reports[*at].difference.is_some()).collect();
    let values: Vec<f64> =
        compared.iter().filter_map(|at| Some(reports[*at].difference?.p)).collect();
    for (at, p) in compared.into_iter().zip(holm(&values)) {
        reports[at].p_holm = Some(p);
    }
    System {
        label: group.label.clone(),
        model: excerpt(&run.model, NAME),
        without: run.without.iter().take(8).map(|word| excerpt(word, NAME)).collect(),
        context: excerpt(&run.context, NAME),
        runs: group.runs.clone(),
        average: average(&reports, tasks.len()),
        domains: domains(group, sources),
        tasks: reports,
    }
}

fn task_report(group: &systems::Group, sources: &[Source], task: &str) -> Option<TaskReport> {
    let facts = |mode| {
        let all = group.runs.iter().flat_map(|run| &sources[*run].facts);
        all.filter(move |fact| fact.attempt.key.task == task && fact.attempt.key.mode == mode)
            .collect::<Vec<_>>()
    };
    let (without, with) = (facts(Mode::Llm), facts(Mode::Sandbox));
    let report =
        |facts: &[&Fact], mode| mode::report(facts, systems::asked_of(group, sources, task, mode));
    let (llm, sandbox) = (report(&without, Mode::Llm), report(&with, Mode::Sandbox));
    let infos = group.runs.iter().flat_map(|run| &sources[*run].run.tasks);
    let grader = infos.filter(|info| info.name == task).map(|info| info.grader.as_str()).next();
    if llm.is_none() && sandbox.is_none() {
        return None;
    }
    let compare = |score: fn(&Fact) -> Option<f64>| {
        let (mut without, with) = (by_problem(&without, score), by_problem(&with, score));
        let pairs = with.into_iter().filter_map(|(id, with)| Some((without.remove(id)?, with)));
        paired(&pairs.collect::<Vec<_>>())
    };
    let scored = |mode: &Option<ModeReport>| mode.as_ref().is_some_and(|mode| mode.score.is_some());
    let both_scored = scored(&llm) && scored(&sandbox);
    let excused = |facts: &[&Fact]| facts.iter().any(|fact| fact.graded().is_none());
    Some(TaskReport {
        task: excerpt(task, NAME),
        grader: excerpt(grader.unwrap_or_default(), NAME),
        difference: both_scored.then(|| compare(|fact| Some(fact.attempt.counted()))).flatten(),
        difference_graded: (excused(&without) || excused(&with))
            .then(|| compare(Fact::graded))
            .flatten(),
        p_holm: None,
        token_ratio: token_ratio(&without, &with),
        answers: answers(&without),
        llm,
        sandbox,
    })
}

/// Tokens with the computer over tokens without, each problem tried both ways with its mean.
fn token_ratio(without: &[&Fact], with: &[&Fact]) -> Option<f64> {
    let tokens =
        |fact: &Fact| fact.attempt.is_of_the_model().then(|| fact.attempt.tokens.total() as f64);
    let (mut without, with) = (by_problem(without, tokens), by_problem(with, tokens));
    let (mut less, mut more) = (0.0, 0.0);
    for (id, with) in with {
        if let Some(without) = without.remove(id) {
            less += mean(without)?;
            more += mean(with)?;
        }
    }
    (less > 0.0).then(|| more / less)
}

/// Scores by problem, problems in the order of their names.
fn by_problem<'a>(
    facts: &[&'a Fact],
    score: fn(&Fact) -> Option<f64>,
) -> BTreeMap<&'a str, Vec<f64>> {
    let mut problems: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for fact in facts {
        if let Some(score) = score(fact) {
            problems.entry(&fact.attempt.key.id).or_default().push(score);
        }
    }
    problems
}

/// How plain answers are written; none without any.
fn answers(facts: &[&Fact]) -> Option<PlainSummary> {
    let all = PlainSummary::of(facts.iter().filter_map(|fact| fact.plain));
    (all.answers > 0).then_some(all)
}

fn domains(group: &systems::Group, sources: &[Source]) -> Vec<Domain> {
    let mut domains: BTreeMap<&str, Domain> = BTreeMap::new();
    for fact in group.runs.iter().flat_map(|run| &sources[*run].facts) {
        let Some(capabilities) = &fact.capabilities else { continue };
        if !fact.attempt.is_of_the_model() {
            continue;
        }
        let mut name = fact.attempt.domain.as_str();
        if domains.len() >= DOMAINS && !domains.contains_key(name) {
            name = "other domains";
        }
        let domain = domains.entry(name).or_insert_with(|| Domain {
            domain: excerpt(name, NAME),
            attempts: 0,
            capabilities: Capabilities::default(),
        });
        domain.attempts += 1;
        domain.capabilities += *capabilities;
    }
    domains.into_values().collect()
}

/// The mean over tasks, only where the system has them all: rows of a table must mean the same.
fn average(reports: &[TaskReport], tasks: usize) -> Average {
    let over = |values: Vec<(f64, Option<f64>)>| {
        if values.len() != tasks || values.is_empty() {
            return None;
        }
        let count = values.len() as f64;
        let squares: Option<f64> = values.iter().map(|(_, se)| se.map(|se| se * se)).sum();
        let mean = values.iter().map(|(mean, _)| mean).sum::<f64>() / count;
        Some(Mean { mean, se: squares.map(|squares| squares.sqrt() / count) })
    };
    let of = |estimate: Estimate| (estimate.mean, estimate.se);
    let gained = |paired: Paired| (paired.difference, paired.se);
    let modes = |pick: fn(&TaskReport) -> Option<Estimate>| {
        over(reports.iter().filter_map(pick).map(of).collect())
    };
    Average {
        llm: modes(|task| task.llm.as_ref()?.score),
        sandbox: modes(|task| task.sandbox.as_ref()?.score),
        difference: over(reports.iter().filter_map(|task| task.difference.map(gained)).collect()),
    }
}

/// What a reader has to know before believing a number.
fn notes(report: &Report) -> Vec<String> {
    let mut notes = Vec::new();
    let mut say = |count: usize, text: String| {
        if count > 0 {
            notes.push(text);
        }
    };
    for run in &report.runs {
        let (name, missing) = (&run.name, run.missing);
        let of = run.asked;
        say(
            missing,
            format!(
                "The run {name} is not complete: {missing} of {of} attempts are missing, and the numbers are those of the \
                 rest. The same “benchmark” command, or “benchmark --resume”, finishes it."
            ),
        );
        let damaged = run.damaged.total;
        say(
            damaged,
            format!(
                "In the run {name} {damaged} files could not be read; they are listed below and left out."
            ),
        );
        let without = run.without_events;
        say(
            without,
            format!(
                "In the run {name} the events of {without} attempts are missing, so what the model did in them is unknown."
            ),
        );
    }
    let modes = || report.systems.iter().flat_map(|system| &system.tasks).flat_map(both);
    let failed: usize = modes().map(|mode| mode.infrastructure).sum();
    say(
        failed,
        format!(
            "{failed} attempts failed on our side or were cancelled. They count as 0 in the main table, as in the paper's \
             package; the table of attempts shows the scores without them."
        ),
    );
    let ungraded: usize = modes().map(|mode| mode.ungraded).sum();
    say(
        ungraded,
        format!(
            "{ungraded} attempts have no score yet. They count as 0 in the main table, unless a task has no score at all; \
             the table of attempts shows the scores without them."
        ),
    );
    let few = |mode: &&ModeReport| mode.score.is_some_and(|score| score.problems < 10);
    let few = modes().filter(few).count();
    say(
        few,
        "Some scores rest on fewer than 10 problems: their intervals are rough at best.".to_owned(),
    );
    let leaks = report.leaks.total;
    say(
        leaks,
        format!(
            "The leakage check marked {leaks} turns; see below before trusting scores with a network."
        ),
    );
    notes
}

fn both(task: &TaskReport) -> impl Iterator<Item = &ModeReport> {
    task.llm.iter().chain(&task.sandbox)
}
