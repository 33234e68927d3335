//! The summary: main results as sentences, and caveats.

use plot::{count, percent, points};

use super::{Block, Section};
use crate::{
    Report,
    data::{ModeReport, System, TaskReport},
    numbers::p_text,
    stats::Paired,
};

/// Sentences at most; the tables hold the rest.
const SENTENCES: usize = 24;

/// The summary.
pub(super) fn overview(report: &Report) -> Section {
    let mut blocks = vec![Block::Text(scope(report))];
    let all: Vec<String> =
        report.systems.iter().flat_map(|system| sentences(report, system)).collect();
    let more = all.len().saturating_sub(SENTENCES);
    let mut list: Vec<String> = all.into_iter().take(SENTENCES).collect();
    if more > 0 {
        list.push(format!("{more} more comparisons are in the tables."));
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
    let plural = |number: usize, one: &str, many: &str| {
        format!("{} {}", count(number as f64), if number == 1 { one } else { many })
    };
    format!(
        "The same problems with a sandbox and without one (llm): {}, {}, {}, {}.",
        plural(report.systems.len(), "model or condition", "models or conditions"),
        plural(report.tasks.len(), "task", "tasks"),
        plural(attempts, "attempt", "attempts"),
        plural(report.runs.len(), "run", "runs"),
    )
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
    let compared = system.tasks.iter().filter_map(|task| sentence(&prefix(report, system), task));
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

/// Confidence interval and p-value of a difference. With many tasks one is significant by chance, so the Holm-corrected
/// p-value decides.
fn uncertainty(found: &Paired, p_holm: Option<f64>) -> String {
    let p = p_holm.unwrap_or(found.p);
    let corrected = if p == found.p { "" } else { "Holm-corrected " };
    let interval =
        found.bootstrap.map(|[low, high]| format!("95% CI {} to {}, ", points(low), points(high)));
    let significance = if p < 0.05 { "" } else { ", not significant" };
    format!("{}{corrected}{}{significance}", interval.unwrap_or_default(), p_text(p))
}
