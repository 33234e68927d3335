//! Builds a report from facts. Pure: reads no files and knows no output format.

mod compare;
mod failures;
mod labels;
mod mode;
mod pairs;
mod settings;
mod systems;

use std::collections::BTreeMap;

use results::{Mode, TaskInfo};

use self::{
    pairs::{Index, Pairs},
    systems::Group,
};
use crate::{
    Fact, Source,
    analysis::{Capabilities, StyleSummary},
    data::{
        Average, Domain, Listed, Mean, Method, ModeReport, Report, RunInfo, System, TaskReport,
        VERSION,
    },
    stats::{self, Estimate, Paired, holm, mean, paired},
    text::excerpt,
};

/// Characters of a name of a task, a model or a problem.
const NAME: usize = 100;
/// Domains listed per system; the rest is merged into one.
const DOMAINS: usize = 60;

impl Report {
    /// Builds the report of these runs. The first is the one the others are compared with.
    pub fn of(sources: &[Source]) -> Self {
        Self::with_baseline(sources, 0)
    }

    /// Builds the report of these runs. The others are compared with the run at the index `baseline`.
    pub fn with_baseline(sources: &[Source], baseline: usize) -> Self {
        let tasks = systems::tasks(sources);
        let groups = systems::group(sources);
        let indices: Vec<Index> = groups.iter().map(|group| Index::of(group, sources)).collect();
        let baseline = groups.iter().position(|group| group.runs.contains(&baseline));
        let baseline = baseline.filter(|_| groups.len() > 1);
        let comparisons = baseline
            .map(|baseline| compare::comparisons(baseline, &groups, &indices, &tasks, sources));
        let mut systems: Vec<System> = (0..groups.len())
            .map(|at| system(at, &groups, &indices[at], sources, &tasks))
            .collect();
        correct(&mut systems);
        let mut report = Self {
            v: VERSION,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            method: Method { confidence: stats::CONFIDENCE, seed: stats::SEED, pass: stats::PASS },
            runs: sources.iter().map(run_info).collect(),
            systems,
            settings: settings::compare(&groups, sources),
            baseline,
            comparisons: comparisons.unwrap_or_default(),
            tasks: tasks.iter().map(|task| excerpt(task, NAME)).collect(),
            leaks: failures::leaks(&groups, sources),
            failures: failures::failures(&groups, sources),
            notes: Vec::new(),
        };
        report.notes = compare::nothing_shared(baseline, &groups, &indices, &report.comparisons);
        report.notes.extend(notes(&report));
        report.notes.extend(systems::caveats(sources));
        report
    }
}

/// Corrects the p-values of the sandbox's effects for the number of them.
fn correct(systems: &mut [System]) {
    let tasks = || systems.iter().flat_map(|system| &system.tasks);
    let values: Vec<f64> = tasks().filter_map(|task| Some(task.difference?.p)).collect();
    let tasks = systems.iter_mut().flat_map(|system| &mut system.tasks);
    let compared = tasks.filter(|task| task.difference.is_some());
    for (task, p) in compared.zip(holm(&values)) {
        task.p_holm = Some(p);
    }
}

fn run_info(source: &Source) -> RunInfo {
    let planned = source.run.tasks.iter().map(planned).fold(0, usize::saturating_add);
    let planned = planned.saturating_mul(source.run.modes.len());
    RunInfo {
        name: source.name.clone(),
        link: source.link.clone(),
        model: excerpt(&source.run.model, NAME),
        program: excerpt(&source.run.program, NAME),
        judge: excerpt(systems::judge(&source.run).unwrap_or_default(), NAME),
        started: source.run.started,
        planned,
        read: source.facts.len(),
        missing: planned.saturating_sub(source.facts.len()),
        without_events: source.without_events,
        damaged: Listed { total: source.damaged_total, items: source.damaged.clone() },
    }
}

/// Attempts planned for a task in one mode. Older records state only problems and repeats.
fn planned(task: &TaskInfo) -> usize {
    match task.attempts {
        0 => task.problems.saturating_mul(task.repeats as usize),
        known => known,
    }
}

fn system(
    at: usize,
    groups: &[Group],
    index: &Index<'_>,
    sources: &[Source],
    tasks: &[String],
) -> System {
    let group = &groups[at];
    let run = &sources[group.runs[0]].run;
    let mut reports = Vec::new();
    for task in tasks {
        let Some(mut report) = task_report(group, index, sources, task) else { continue };
        if let (Some(llm), Some(sandbox)) =
            (index.problems(task, Mode::Llm), index.problems(task, Mode::Sandbox))
        {
            let most = compare::per_comparison(groups.len() * tasks.len());
            let pairs = Pairs::of(llm, sandbox);
            report.difference = paired(&pairs.scores());
            [report.gained, report.lost] = pairs.changes([at; 2], sources, most);
        }
        let any_invalid = both(&report).any(|mode| mode.valid < mode.attempts);
        report.difference_graded = report.difference.filter(|_| any_invalid);
        reports.push(report);
    }
    System {
        label: group.label.clone(),
        model: excerpt(&run.model, NAME),
        without: run.without.iter().take(8).map(|word| excerpt(word, NAME)).collect(),
        context: excerpt(&run.documents, NAME),
        runs: group.runs.clone(),
        average: average(&reports, tasks.len()),
        domains: domains(group, sources),
        tasks: reports,
    }
}

/// A task of a system, without the comparison of its modes.
fn task_report(
    group: &Group,
    index: &Index<'_>,
    sources: &[Source],
    task: &str,
) -> Option<TaskReport> {
    let facts = |mode| {
        let problems = index.problems(task, mode).into_iter().flat_map(|all| all.values());
        problems.flatten().map(|(_, fact)| *fact).collect::<Vec<_>>()
    };
    let (without, with) = (facts(Mode::Llm), facts(Mode::Sandbox));
    let report =
        |facts: &[&Fact], mode| mode::report(facts, systems::planned(group, sources, task, mode));
    let (llm, sandbox) = (report(&without, Mode::Llm), report(&with, Mode::Sandbox));
    let infos = group.runs.iter().flat_map(|run| &sources[*run].run.tasks);
    let grader = infos.filter(|info| info.name == task).map(|info| info.grader.as_str()).next();
    if llm.is_none() && sandbox.is_none() {
        return None;
    }
    Some(TaskReport {
        task: excerpt(task, NAME),
        grader: excerpt(grader.unwrap_or_default(), NAME),
        difference: None,
        difference_graded: None,
        p_holm: None,
        gained: Listed::default(),
        lost: Listed::default(),
        token_ratio: token_ratio(&without, &with),
        answers: answers(&without),
        llm,
        sandbox,
    })
}

/// Ratio of tokens with and without a sandbox over problems attempted in both modes, each weighted by its mean.
fn token_ratio(without: &[&Fact], with: &[&Fact]) -> Option<f64> {
    let tokens =
        |fact: &Fact| fact.attempt.is_answered().then(|| fact.attempt.tokens.total() as f64);
    let (mut without, with) = (by_problem(without, tokens), by_problem(with, tokens));
    let (mut tokens_without, mut tokens_with) = (0.0, 0.0);
    for (id, with) in with {
        if let Some(without) = without.remove(id) {
            tokens_without += mean(without)?;
            tokens_with += mean(with)?;
        }
    }
    (tokens_without > 0.0).then(|| tokens_with / tokens_without)
}

/// Values by problem, sorted by problem.
fn by_problem<'a>(
    facts: &[&'a Fact],
    value: fn(&Fact) -> Option<f64>,
) -> BTreeMap<&'a str, Vec<f64>> {
    let mut problems: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for fact in facts {
        if let Some(value) = value(fact) {
            problems.entry(&fact.attempt.key.id).or_default().push(value);
        }
    }
    problems
}

/// Style of the answers without a sandbox; `None` without answers.
fn answers(facts: &[&Fact]) -> Option<StyleSummary> {
    let all = StyleSummary::of(facts.iter().filter_map(|fact| fact.style));
    (all.answers > 0).then_some(all)
}

fn domains(group: &Group, sources: &[Source]) -> Vec<Domain> {
    let mut domains: BTreeMap<&str, Domain> = BTreeMap::new();
    for fact in group.runs.iter().flat_map(|run| &sources[*run].facts) {
        let Some(capabilities) = &fact.capabilities else { continue };
        if !fact.attempt.is_answered() {
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

/// Macro-average over tasks, only where the system has all of them: rows of a table must be comparable.
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
    let difference = |paired: Paired| (paired.difference, paired.se);
    let modes = |pick: fn(&TaskReport) -> Option<Estimate>| {
        over(reports.iter().filter_map(pick).map(of).collect())
    };
    Average {
        llm: modes(|task| task.llm.as_ref()?.score),
        sandbox: modes(|task| task.sandbox.as_ref()?.score),
        difference: over(
            reports.iter().filter_map(|task| task.difference.map(difference)).collect(),
        ),
    }
}

/// Caveats about the data.
fn notes(report: &Report) -> Vec<String> {
    let mut notes = Vec::new();
    let mut note = |count: usize, text: String| {
        if count > 0 {
            notes.push(text);
        }
    };
    for run in &report.runs {
        let RunInfo { name, planned, missing, without_events, damaged, .. } = run;
        let damaged = damaged.total;
        note(
            *missing,
            format!(
                "Run {name} is incomplete: {missing} of {planned} attempts are missing. Resume it to complete the results."
            ),
        );
        note(
            damaged,
            format!("Run {name}: {damaged} files are unreadable and excluded; see Runs."),
        );
        note(
            *without_events,
            format!(
                "Run {name}: {without_events} attempts have no trajectory, so their use of the sandbox is unknown."
            ),
        );
    }
    let modes = || report.systems.iter().flat_map(|system| &system.tasks).flat_map(both);
    let failed: usize = modes().map(|mode| mode.infrastructure).sum();
    note(
        failed,
        format!(
            "{failed} attempts failed because of the infrastructure or were cancelled. They are excluded from all means and \
             differences; see Attempts for what was at fault."
        ),
    );
    let ungraded: usize = modes().map(|mode| mode.ungraded).sum();
    note(
        ungraded,
        format!(
            "{ungraded} attempts are not graded. They are excluded from all means and differences."
        ),
    );
    let few = |mode: &&ModeReport| mode.score.is_some_and(|score| score.problems < 10);
    note(
        modes().filter(few).count(),
        "Some scores rest on fewer than 10 problems: their confidence intervals are unreliable."
            .to_owned(),
    );
    let leaks = report.leaks.total;
    note(
        leaks,
        format!(
            "The leakage check flagged {leaks} turns; review them before trusting scores with network access."
        ),
    );
    notes
}

fn both(task: &TaskReport) -> impl Iterator<Item = &ModeReport> {
    task.llm.iter().chain(&task.sandbox)
}
