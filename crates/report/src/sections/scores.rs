//! Scores: the main table, the attempts behind it, and what several attempts reach.

use results::Mode;

use super::{Block, Cell, Column, Section, Table, figure, group};
use crate::{
    Report,
    data::{Mean, ModeReport, System, TaskReport},
    numbers::{percent, points},
    plot::{self, Bar, BarRow, Ink},
    stats::Estimate,
};

/// Figures of pass@k, one for each model.
const CURVES: usize = 12;

/// The main table: models below each other, tasks side by side.
pub(super) fn scores(report: &Report) -> Section {
    let mut table = Table::new(
        "Mean score in percent ± its standard error, clustered by problem; differences in percentage points, over problems \
         tried both ways. What failed on our side or has no score counts as 0, unless a task has no score at all. The average is over all tasks and absent \
         where a task is. An error of 0.0 only says that all problems scored alike; the figure shows what may be behind it.",
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
    let drawing = plot::bars(&bars, "Mean score of each task, without and with a computer");
    let caption = "Mean score by task. Whiskers are 95% intervals: 1.96 standard errors, clustered by problem, to each side; \
                   where all problems scored alike, Wilson's interval for as many problems.";
    let blocks = table.block().into_iter().chain(figure(drawing, caption)).collect();
    Section { id: "scores", title: "Scores", blocks }
}

/// What the scores rest on.
pub(super) fn attempts(report: &Report) -> Section {
    let mut table = Table::new(
        "Attempts by task and mode. “failed here”: our side failed or somebody stopped it; “no score”: not graded. \
         “score” counts both as 0, “score without” leaves them out; so does the difference at the end.",
        &[
            "model",
            "task",
            "mode",
            ">problems",
            ">attempts",
            ">missing",
            ">failed here",
            ">no score",
            ">begun again",
            ">passed",
            ">score",
            ">score without",
            ">difference without",
        ],
    );
    let mut ends = Table::new(
        "How attempts ended. Anything but “submitted” means that a limit or a failure ended it.",
        &["model", "task", "mode", "ends"],
    );
    for (system, task) in each(report) {
        for (mode, found) in modes(task) {
            let names = [&system.label, &task.task].map(|name| Cell::text(name.as_str()));
            let mut row = names.to_vec();
            row.push(Cell::text(mode.name()));
            let mut end = row.clone();
            let counts = [
                found.problems,
                found.attempts,
                found.missing,
                found.infrastructure,
                found.ungraded,
                found.retried,
                found.passed,
            ];
            row.extend(counts.map(Cell::count));
            row.push(estimate(found.score));
            row.push(estimate(found.graded));
            let without = task.difference_graded.filter(|_| mode == Mode::Sandbox);
            row.push(Cell::known(without.map(|found| found.difference), points));
            table.push(row);
            let outcomes = found.outcomes.iter().map(|(name, count)| format!("{name} {count}"));
            end.push(Cell::text(outcomes.collect::<Vec<_>>().join(", ")));
            ends.push(end);
        }
    }
    let blocks = table.block().into_iter().chain(ends.block()).collect();
    Section { id: "attempts", title: "Attempts and how they ended", blocks }
}

/// What several attempts reach.
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
        "pass@k in percent: the chance that at least one of k attempts passes, estimated without bias from all of a \
         problem's attempts and averaged over problems that have k.",
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
        let drawing = plot::lines(&curves, "pass@k against the number of attempts");
        let caption = format!("pass@k by task, {}: how much more attempts help.", system.label);
        if figures.len() < CURVES {
            figures.extend(figure(drawing, &caption));
        }
    }
    let blocks = table.block().into_iter().chain(figures).collect();
    Section { id: "pass", title: "pass@k", blocks }
}

fn curve(task: &TaskReport, mode: Mode, found: &ModeReport) -> plot::Lines {
    plot::Lines {
        label: task.task.clone(),
        ink: if mode == Mode::Llm { Ink::Llm } else { Ink::Sandbox },
        points: found.pass_at.iter().map(|found| (found.k, found.mean)).collect(),
    }
}

/// Every task of every system.
pub(super) fn each(report: &Report) -> impl Iterator<Item = (&System, &TaskReport)> {
    report.systems.iter().flat_map(|system| system.tasks.iter().map(move |task| (system, task)))
}

/// The modes a task was tried in.
pub(super) fn modes(task: &TaskReport) -> impl Iterator<Item = (Mode, &ModeReport)> {
    let llm = task.llm.iter().map(|found| (Mode::Llm, found));
    llm.chain(task.sandbox.iter().map(|found| (Mode::Sandbox, found)))
}

/// A task's name in a figure where systems are told apart by it.
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
    /// The cells of a row; none where the system has no such thing.
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
        let ink = if mode == Mode::Llm { Ink::Llm } else { Ink::Sandbox };
        Some(Bar { ink, name: mode.name(), value: mean, interval })
    });
    BarRow { group: group(report, &system.label), label: task.task.clone(), bars: bars.collect() }
}

/// Blocks that are there.
pub(super) fn blocks<const N: usize>(blocks: [Option<Block>; N]) -> Vec<Block> {
    blocks.into_iter().flatten().collect()
}
