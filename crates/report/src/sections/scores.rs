//! Scores: the main table, the attempts behind it, and pass@k.

use std::collections::BTreeMap;

use plot::{Bar, BarRow, Color, percent, points};
use results::Mode;

use super::{Block, Cell, Column, Coverage, MODES, Section, Table, color, figure, group};
use crate::{
    Report,
    data::{Mean, ModeReport, System, TaskReport},
    stats::Estimate,
};

/// Figures of pass@k at most, one per system.
const CURVES: usize = 12;

/// The main table: one row per system and mode, one column per task.
pub(super) fn scores(report: &Report) -> Section {
    let mut table = Table::new(
        "Mean over problems of the score of their valid attempts in percent ± standard error; paired difference of the modes in \
         percentage points. A dash: no valid attempt. The average is over all tasks, absent where one has no score. A standard error of 0.0 means that all \
         problems scored alike, not that the score is certain; see the intervals in the figure.",
        &["model", "mode"],
    );
    let names = report.tasks.iter().map(|task| format!(">{task}"));
    table.columns.extend(names.map(|name| Column::new(&name)));
    if report.tasks.len() > 1 {
        table.columns.push(Column::new(">average"));
    }
    for system in &report.systems {
        let modes = [Row::Llm, Row::Sandbox, Row::Difference];
        modes
            .into_iter()
            .filter_map(|row| row.cells(report, system))
            .for_each(|row| table.push(row));
    }
    let mut bars: Vec<BarRow> =
        each(report).map(|(system, task)| bar_row(report, system, task)).collect();
    bars.retain(|row| !row.bars.is_empty());
    let title = Coverage::of(report).naming_modes("Mean score by task");
    let drawing = plot::bars(&bars, &title);
    let caption = "Mean score by task with 95% confidence intervals: ±1.96 standard errors, or the \
                   Wilson interval where all problems scored alike.";
    let blocks = table.block().into_iter().chain(figure(drawing, caption)).collect();
    Section { id: "scores", title: "Scores", blocks }
}

/// Valid and invalid attempts, and outcomes.
pub(super) fn attempts(report: &Report) -> Section {
    let mut table = Table::new(
        "Attempts by task and mode. Scores are over valid attempts; those that failed because of the infrastructure \
         (including cancelled ones) or were not graded are excluded. “at fault” counts what made attempts invalid.",
        &[
            "model",
            "task",
            "mode",
            ">problems",
            ">attempts",
            ">missing",
            ">valid",
            ">failed (infrastructure)",
            ">not graded",
            "at fault",
            ">retried",
            ">passed",
            ">score",
        ],
    );
    let mut outcomes = Table::new(
        "Outcomes of attempts. All but “submitted” are limits or failures.",
        &["model", "task", "mode", "outcomes"],
    );
    for (system, task) in each(report) {
        for (mode, found) in modes(task) {
            let names = [&system.label, &task.task].map(|name| Cell::text(name.as_str()));
            let mut row = names.to_vec();
            row.push(Cell::text(mode.name()));
            let mut outcome = row.clone();
            outcome.push(tally(&found.outcomes));
            outcomes.push(outcome);
            let ModeReport { problems, attempts, missing, valid, .. } = *found;
            row.extend([problems, attempts, missing, valid].map(Cell::count));
            row.extend([found.infrastructure, found.ungraded].map(Cell::count));
            row.push(tally(&found.faults));
            row.push(Cell::count(found.retried));
            // Without a valid attempt nothing is known, which is not the same as nothing passed.
            row.push(if valid > 0 { Cell::count(found.passed) } else { Cell::none() });
            row.push(estimate(found.score));
            table.push(row);
        }
    }
    let blocks = table.block().into_iter().chain(outcomes.block()).collect();
    Section { id: "attempts", title: "Attempts", blocks }
}

/// pass@k by task and mode.
pub(super) fn pass(report: &Report) -> Section {
    let ks: Vec<usize> = {
        let all =
            each(report).flat_map(|(_, task)| modes(task)).flat_map(|(_, found)| &found.pass_at);
        let mut ks: Vec<usize> = all.map(|found| found.k).collect();
        ks.sort_unstable();
        ks.dedup();
        let most = ks.last().copied();
        ks.retain(|k| k.is_power_of_two() || Some(*k) == most);
        ks
    };
    if ks.len() < 2 {
        return Section { id: "pass", title: "pass@k", blocks: Vec::new() };
    }
    let mut table = Table::new(
        "pass@k in percent: the probability that at least one of k attempts passes. Unbiased estimate from all valid \
         attempts at a problem, averaged over problems with at least k.",
        &["model", "task", "mode"],
    );
    table.columns.extend(ks.iter().map(|k| Column::new(&format!(">k = {k}"))));
    let mut figures = Vec::new();
    for system in &report.systems {
        let mut curves = Vec::new();
        for task in &system.tasks {
            for (mode, found) in modes(task) {
                let names = [&*system.label, &*task.task, mode.name()];
                let mut row = names.map(Cell::text).to_vec();
                let at =
                    |k| found.pass_at.iter().find(|found| found.k == k).map(|found| found.mean);
                row.extend(ks.iter().map(|k| Cell::known(at(*k), percent)));
                table.push(row);
                curves.push(curve(task, mode, found));
            }
        }
        curves.retain(|curve| curve.points.len() > 1);
        let own = |(color, _): &(Color, &str)| curves.iter().any(|curve| curve.color == *color);
        let legend: Vec<(Color, &str)> = MODES.into_iter().filter(own).collect();
        let drawing = plot::lines(
            &curves,
            &legend,
            "attempts k (log scale)",
            "pass@k against the number of attempts",
        );
        let caption = format!("pass@k by task, {}.", system.label);
        if figures.len() < CURVES {
            figures.extend(figure(drawing, &caption));
        }
    }
    let blocks = table.block().into_iter().chain(figures).collect();
    Section { id: "pass", title: "pass@k", blocks }
}

fn curve(task: &TaskReport, mode: Mode, found: &ModeReport) -> plot::Line {
    plot::Line {
        label: task.task.clone(),
        color: color(mode),
        points: found.pass_at.iter().map(|found| (found.k, found.mean)).collect(),
    }
}

/// Every task of every system.
pub(super) fn each(report: &Report) -> impl Iterator<Item = (&System, &TaskReport)> {
    report.systems.iter().flat_map(|system| system.tasks.iter().map(move |task| (system, task)))
}

/// The modes a task was attempted in.
pub(super) fn modes(task: &TaskReport) -> impl Iterator<Item = (Mode, &ModeReport)> {
    let llm = task.llm.iter().map(|found| (Mode::Llm, found));
    llm.chain(task.sandbox.iter().map(|found| (Mode::Sandbox, found)))
}

/// Label of a task in a figure that may show several systems.
pub(super) fn curve_label(report: &Report, system: &System, task: &TaskReport) -> String {
    match report.systems.len() {
        0 | 1 => task.task.clone(),
        _ => format!("{}, {}", task.task, system.label),
    }
}

#[derive(Clone, Copy)]
enum Row {
    Llm,
    Sandbox,
    Difference,
}

impl Row {
    /// The cells of a row; `None` where the system has no value for it.
    fn cells(self, report: &Report, system: &System) -> Option<Vec<Cell>> {
        let name = match self {
            Self::Llm => "llm",
            Self::Sandbox => "sandbox",
            Self::Difference => "difference",
        };
        let cells: Vec<Cell> = report
            .tasks
            .iter()
            .map(|name| system.tasks.iter().find(|task| task.task == *name))
            .map(|task| task.map_or_else(Cell::none, |task| self.cell(task)))
            .collect();
        cells.iter().any(|cell| cell.value.is_some()).then_some(())?;
        let average = match self {
            Self::Llm => mean(system.average.llm, percent),
            Self::Sandbox => mean(system.average.sandbox, percent),
            Self::Difference => mean(system.average.difference, points),
        };
        let average = (report.tasks.len() > 1).then_some(average);
        let names = [Cell::text(&*system.label), Cell::text(name)];
        Some(names.into_iter().chain(cells).chain(average).collect())
    }

    fn cell(self, task: &TaskReport) -> Cell {
        match self {
            Self::Llm => estimate(task.llm.as_ref().and_then(|found| found.score)),
            Self::Sandbox => estimate(task.sandbox.as_ref().and_then(|found| found.score)),
            Self::Difference => {
                let found =
                    task.difference.map(|found| Mean { mean: found.difference, se: found.se });
                mean(found, points)
            }
        }
    }
}

/// Names with their counts.
fn tally(counts: &BTreeMap<String, usize>) -> Cell {
    let items: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
    if items.is_empty() { Cell::none() } else { Cell::text(items.join(", ")) }
}

fn estimate(found: Option<Estimate>) -> Cell {
    mean(found.map(|found| Mean { mean: found.mean, se: found.se }), percent)
}

fn mean(found: Option<Mean>, show: fn(f64) -> String) -> Cell {
    let error = |se: Option<f64>| se.map(|se| format!(" ± {}", percent(se))).unwrap_or_default();
    let shown = |found: Mean| Cell::number(found.mean, show(found.mean) + &error(found.se));
    found.map_or_else(Cell::none, shown)
}

fn bar_row(report: &Report, system: &System, task: &TaskReport) -> BarRow {
    let bars = modes(task).filter_map(|(mode, found)| {
        let Estimate { mean, interval, .. } = found.score?;
        Some(Bar { color: color(mode), name: mode.name(), value: mean, interval })
    });
    BarRow { group: group(report, &system.label), label: task.task.clone(), bars: bars.collect() }
}

/// The blocks that exist.
pub(super) fn blocks<const N: usize>(blocks: [Option<Block>; N]) -> Vec<Block> {
    blocks.into_iter().flatten().collect()
}
