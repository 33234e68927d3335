//! The first thing a reader sees: what came out, in sentences.

use super::{Block, Section};
use crate::{
    Report,
    data::{ModeReport, System, TaskReport},
    numbers::{count, p_said, percent, points},
    stats::Paired,
};

/// Sentences told before the tables take over.
const SENTENCES: usize = 24;

/// What came out.
pub(super) fn overview(report: &Report) -> Section {
    let mut blocks = vec![Block::Text(about(report))];
    let told: Vec<String> =
        report.systems.iter().flat_map(|system| sentences(report, system)).collect();
    let more = told.len().saturating_sub(SENTENCES);
    let mut list: Vec<String> = told.into_iter().take(SENTENCES).collect();
    if more > 0 {
        list.push(format!("{more} more comparisons are in the tables."));
    }
    if !list.is_empty() {
        blocks.push(Block::List(list));
    }
    if !report.notes.is_empty() {
        blocks.push(Block::Text("Before believing a number:".to_owned()));
        blocks.push(Block::List(report.notes.clone()));
    }
    Section { id: "summary", title: "Summary", blocks }
}

fn about(report: &Report) -> String {
    let attempts: usize = report.runs.iter().map(|run| run.read).sum();
    let plural = |number: usize, one: &str, many: &str| {
        format!("{} {}", count(number as f64), if number == 1 { one } else { many })
    };
    format!(
        "The same problems with a computer (sandbox) and without one (llm): {}, {}, {}, {}.",
        plural(report.systems.len(), "model or condition", "models or conditions"),
        plural(report.tasks.len(), "task", "tasks"),
        plural(attempts, "attempt", "attempts"),
        plural(report.runs.len(), "run", "runs"),
    )
}

fn sentences(report: &Report, system: &System) -> Vec<String> {
    let average = &system.average;
    let overall = match (average.llm, average.sandbox, average.difference) {
        (Some(llm), Some(sandbox), Some(gain)) if system.tasks.len() > 1 => Some(format!(
            "{}mean over {} tasks: {}% without a computer, {}% with one, {} points.",
            prefix(report, system),
            system.tasks.len(),
            percent(llm.mean),
            percent(sandbox.mean),
            points(gain.mean)
        )),
        _ => None,
    };
    let compared = system.tasks.iter().filter_map(|task| sentence(&prefix(report, system), task));
    overall.into_iter().chain(compared).collect()
}

/// Whom a sentence is about, where that is not clear.
fn prefix(report: &Report, system: &System) -> String {
    let label = super::group(report, &system.label);
    if label.is_empty() { label } else { format!("{label}, ") }
}

fn sentence(prefix: &str, task: &TaskReport) -> Option<String> {
    let label = format!("{prefix}{}", task.task);
    let mean = |mode: &Option<ModeReport>| Some(mode.as_ref()?.score?.mean);
    match (mean(&task.llm), mean(&task.sandbox), &task.difference) {
        (Some(llm), Some(sandbox), Some(found)) => Some(format!(
            "{label}: {}% without a computer, {}% with one; {} points over {} problems ({}).",
            percent(llm),
            percent(sandbox),
            points(found.difference),
            count(found.problems as f64),
            verdict(found, task.p_holm)
        )),
        (Some(only), None, _) => Some(format!("{label}: {}% without a computer.", percent(only))),
        (None, Some(only), _) => Some(format!("{label}: {}% with a computer.", percent(only))),
        _ => None,
    }
}

/// How sure a difference is. Of many tasks one is told from chance by chance, so the corrected p-value decides.
fn verdict(found: &Paired, p_holm: Option<f64>) -> String {
    let decides = p_holm.unwrap_or(found.p);
    let corrected = if decides == found.p { "" } else { " corrected for the number of tasks" };
    let p = format!("{}{corrected}", p_said(decides));
    let interval =
        found.bootstrap.map(|[low, high]| format!("{} to {}, ", points(low), points(high)));
    let chance = if decides < 0.05 { "" } else { ", not told from chance" };
    format!("{}{p}{chance}", interval.unwrap_or_default())
}
