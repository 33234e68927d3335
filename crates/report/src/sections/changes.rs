//! Problems gained and lost: by a system against the baseline, and by the sandbox within a system.

use plot::count;

use super::{
    Block, Cell, MODEL, Section, Table,
    comparison::{label, modes},
    scores::each,
};
use crate::{
    Report,
    data::{AttemptRef, Change, Comparison, Listed, Passes, System},
};

/// The columns behind those that name the change.
const PROBLEM: [&str; 2] = ["wrong answer", "expected"];

/// Problems gained and lost.
pub(super) fn changes(report: &Report) -> Section {
    let mut blocks = Vec::new();
    for (gained, what) in [(true, "gained"), (false, "lost")] {
        blocks.extend(by_system(report, gained, what));
    }
    for (gained, what) in [(true, "Gained"), (false, "Lost")] {
        blocks.extend(by_sandbox(report, gained, what));
    }
    if !blocks.is_empty() {
        let rule = "A problem counts as solved where more than half of its valid attempts pass. The numbers are attempts \
                    passed of valid ones; they link to an episode of that side.";
        blocks.insert(0, Block::Text(rule.to_owned()));
    }
    Section { id: "changes", title: "Problems gained and lost", blocks }
}

/// What other systems gained over the baseline, or lost.
fn by_system(report: &Report, gained: bool, what: &str) -> Option<Block> {
    let baseline = label(report, report.baseline?);
    let rows: Vec<(&Comparison, &Listed<Change>)> = report
        .comparisons
        .iter()
        .filter(|row| row.task.is_some())
        .map(|row| (row, if gained { &row.gained } else { &row.lost }))
        .collect();
    let caption = match gained {
        true => format!("Problems {what}: not solved by {baseline}, solved by the model."),
        false => format!("Problems {what}: solved by {baseline}, not by the model."),
    };
    let caption = listed(caption, rows.iter().map(|(_, list)| *list));
    let columns = [MODEL, "task", "mode", "problem", "baseline passed", "model passed"];
    let mut table = Table::new(caption, &[&columns[..], &PROBLEM].concat());
    for (row, list) in rows {
        for change in &list.items {
            let AttemptRef { task, id, .. } = &change.other;
            let names = [label(report, row.other.system), task, &modes(row), id];
            table.push(cells(&names, change));
        }
    }
    table.block()
}

/// What the sandbox gained, or lost.
fn by_sandbox(report: &Report, gained: bool, what: &str) -> Option<Block> {
    let lists: Vec<(&System, &Listed<Change>)> = each(report)
        .map(|(system, task)| (system, if gained { &task.gained } else { &task.lost }))
        .collect();
    let caption = match gained {
        true => format!("{what} with the sandbox: solved only with it."),
        false => format!("{what} with the sandbox: solved only without it."),
    };
    let caption = listed(caption, lists.iter().map(|(_, list)| *list));
    let columns = [MODEL, "task", "problem", "llm passed", "sandbox passed"];
    let mut table = Table::new(caption, &[&columns[..], &PROBLEM].concat());
    for (system, list) in &lists {
        for change in &list.items {
            let AttemptRef { task, id, .. } = &change.other;
            table.push(cells(&[&system.label, task, id], change));
        }
    }
    table.block()
}

fn cells(names: &[&str], change: &Change) -> Vec<Cell> {
    let mut row: Vec<Cell> = names.iter().map(|name| Cell::text(*name)).collect();
    row.push(passes(change.baseline_passes, &change.baseline));
    row.push(passes(change.other_passes, &change.other));
    let answer = if change.wrong_answer.is_empty() { "(empty)" } else { &change.wrong_answer };
    row.extend([answer, &change.expected].map(Cell::text));
    row
}

/// Attempts passed of valid ones, linked to an episode.
fn passes(passes: Passes, attempt: &AttemptRef) -> Cell {
    let text = format!("{} of {}", passes.passed, passes.valid);
    let share = passes.passed as f64 / passes.valid.max(1) as f64;
    Cell { text, value: Some(share), link: attempt.link().map(str::to_owned) }
}

/// A caption that says how many problems are listed, where not all are.
fn listed<'a>(caption: String, lists: impl Iterator<Item = &'a Listed<Change>>) -> String {
    let (total, shown) =
        lists.fold((0, 0), |(total, shown), list| (total + list.total, shown + list.items.len()));
    match total > shown {
        true => {
            format!("{caption} {} of {} are listed.", count(shown as f64), count(total as f64))
        }
        false => caption,
    }
}
