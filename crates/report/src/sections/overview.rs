//! The summary: main results as sentences, and caveats.

use plot::{count, percent, points};

use super::{
    Block, Coverage, Section,
    comparison::{label, modes},
    plural, uncertainty,
};
use crate::{
    Report,
    data::{Comparison, ModeReport, System, TaskReport},
};

/// Sentences at most; the tables hold the rest.
const SENTENCES: usize = 24;

/// The summary.
pub(super) fn overview(report: &Report) -> Section {
    let mut blocks = vec![Block::Text(scope(report))];
    let compared = comparisons(report).filter_map(|row| compared(report, row));
    let all: Vec<String> = compared
        .chain(report.systems.iter().flat_map(|system| sentences(report, system)))
        .collect();
    let more = all.len().saturating_sub(SENTENCES);
    let mut list: Vec<String> = all.into_iter().take(SENTENCES).collect();
    if more > 0 {
        list.push(format!("{more} more results are in the tables."));
    }
    if !list.is_empty() {
        blocks.push(Block::List(list));
    }
    if !report.notes.is_empty() {
        blocks.push(Block::Text("Caveats:".to_owned()));
        blocks.push(Block::List(report.notes.clone()));
    }
    Section { id: "summary", title: "Summary", blocks }
}

fn scope(report: &Report) -> String {
    let attempts: usize = report.runs.iter().map(|run| run.read).sum();
    let what = match Coverage::of(report) {
        Coverage::Both => "The same problems with a sandbox and without one (llm)",
        Coverage::Sandbox => "Problems attempted with a sandbox",
        Coverage::Llm => "Problems attempted without a sandbox (llm)",
        Coverage::Nothing => "No attempts yet",
    };
    format!(
        "{what}: {}, {}, {}, {}.",
        plural(report.systems.len(), ["model or condition", "models or conditions"]),
        plural(report.tasks.len(), ["task", "tasks"]),
        plural(attempts, ["attempt", "attempts"]),
        plural(report.runs.len(), ["run", "runs"]),
    )
}

/// The comparisons worth a sentence: the average of tasks in place of the tasks, where there is one.
fn comparisons(report: &Report) -> impl Iterator<Item = &Comparison> {
    let average = |row: &Comparison| {
        let same = |other: &&Comparison| other.baseline == row.baseline && other.other == row.other;
        report.comparisons.iter().filter(same).any(|other| other.task.is_none())
    };
    report.comparisons.iter().filter(move |row| row.task.is_none() || !average(row))
}

/// A system compared with the baseline.
fn compared(report: &Report, row: &Comparison) -> Option<String> {
    let (found, baseline, other) = (row.difference?, row.baseline_score?, row.other_score?);
    let task = row.task.clone().unwrap_or_else(|| format!("average of {} tasks", row.tasks));
    Some(format!(
        "{} compared with {}, {}, {}: {}% against {}%; {} percentage points over {} problems ({}), {} gained, {} lost.",
        label(report, row.other.system),
        label(report, row.baseline.system),
        task,
        modes(row),
        percent(other),
        percent(baseline),
        points(found.difference),
        count(found.problems as f64),
        uncertainty(&found, row.p_holm),
        count(row.gained.total as f64),
        count(row.lost.total as f64),
    ))
}

fn sentences(report: &Report, system: &System) -> Vec<String> {
    let average = &system.average;
    let overall = match (average.llm, average.sandbox, average.difference) {
        (Some(llm), Some(sandbox), Some(difference)) if system.tasks.len() > 1 => Some(format!(
            "{}mean over {} tasks: {}% without a sandbox, {}% with one; {} percentage points.",
            prefix(report, system),
            system.tasks.len(),
            percent(llm.mean),
            percent(sandbox.mean),
            points(difference.mean)
        )),
        _ => None,
    };
    // Several systems are compared with each other first; their tables have the tasks.
    let tasks = match overall.is_some() && report.systems.len() > 1 {
        true => &[][..],
        false => &system.tasks[..],
    };
    let compared = tasks.iter().filter_map(|task| sentence(&prefix(report, system), task));
    overall.into_iter().chain(compared).collect()
}

/// The system a sentence is about, where there are several.
fn prefix(report: &Report, system: &System) -> String {
    let label = super::group(report, &system.label);
    if label.is_empty() { label } else { format!("{label}, ") }
}

fn sentence(prefix: &str, task: &TaskReport) -> Option<String> {
    let label = format!("{prefix}{}", task.task);
    let mean = |mode: &Option<ModeReport>| Some(mode.as_ref()?.score?.mean);
    match (mean(&task.llm), mean(&task.sandbox), &task.difference) {
        (Some(llm), Some(sandbox), Some(found)) => Some(format!(
            "{label}: {}% without a sandbox, {}% with one; {} percentage points over {} problems ({}).",
            percent(llm),
            percent(sandbox),
            points(found.difference),
            count(found.problems as f64),
            uncertainty(found, task.p_holm)
        )),
        (Some(only), None, _) => Some(format!("{label}: {}% without a sandbox.", percent(only))),
        (None, Some(only), _) => Some(format!("{label}: {}% with a sandbox.", percent(only))),
        _ => None,
    }
}
