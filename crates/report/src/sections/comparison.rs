//! Systems compared with the baseline: paired differences by task and on average, and what they leave out.

use plot::{IntervalRow, count, percent, points};

use super::{Block, Cell, MODEL, Section, Table, figure, interval, note, test};
use crate::{
    Report,
    data::{Comparison, LeftOut},
    numbers::p_value,
};

/// Label of the row that averages over tasks.
const AVERAGE: &str = "average";

/// All comparisons.
pub(super) fn comparison(report: &Report) -> Section {
    let blocks = match report.baseline {
        Some(baseline) if !report.comparisons.is_empty() => {
            let label = label(report, baseline);
            let mut blocks = vec![Block::Text(format!("Baseline: {label}."))];
            blocks.extend(table(report, label).block());
            blocks.extend(drawing(report, label));
            blocks.extend(exclusions(report, label).block());
            blocks
        }
        _ => Vec::new(),
    };
    Section { id: "comparison", title: "Comparison with the baseline", blocks }
}

/// Label of a system.
pub(super) fn label(report: &Report, system: usize) -> &str {
    report.systems.get(system).map_or("", |system| system.label.as_str())
}

/// The mode of a comparison; both where they differ.
pub(super) fn modes(row: &Comparison) -> String {
    let (baseline, other) = (row.baseline.mode.name(), row.other.mode.name());
    if baseline == other { other.to_owned() } else { format!("{other}, baseline {baseline}") }
}

/// The task of a comparison.
fn task(row: &Comparison) -> &str {
    row.task.as_deref().unwrap_or(AVERAGE)
}

fn table(report: &Report, baseline: &str) -> Table {
    let mut table = Table::new(
        format!(
            "Paired difference in percentage points from {baseline}, over problems with valid attempts on both sides; \
             repeats of a problem are averaged first. 95% confidence interval: percentile bootstrap over problems. p is \
             two-sided, from an exact test unless marked, and Holm-corrected for the number of rows. MDE: minimum \
             detectable effect at 5% significance and 80% power. Gained: problems the baseline does not solve and the \
             model does; lost: the reverse. The average is over tasks."
        ),
        &[
            MODEL,
            "mode",
            "task",
            ">problems",
            ">left out",
            ">baseline",
            ">score",
            ">difference",
            ">95% CI",
            ">p (Holm)",
            ">MDE",
            ">gained",
            ">lost",
            "test",
        ],
    );
    for row in &report.comparisons {
        let found = row.difference.as_ref();
        table.push(vec![
            Cell::text(label(report, row.other.system)),
            Cell::text(modes(row)),
            Cell::text(task(row)),
            Cell::count(found.map_or(0, |found| found.problems)),
            Cell::count(row.left_out.problems()),
            Cell::known(row.baseline_score, percent),
            Cell::known(row.other_score, percent),
            Cell::known(found.map(|found| found.difference), points),
            interval(found.and_then(|found| found.bootstrap)),
            Cell::known(row.p_holm, p_value),
            Cell::known(found.and_then(|found| found.minimum_detectable_effect), percent),
            Cell::known(found.map(|_| row.gained.total as f64), count),
            Cell::known(found.map(|_| row.lost.total as f64), count),
            found.map_or_else(Cell::none, |found| Cell::text(test(found))),
        ]);
    }
    table
}

/// What each comparison leaves out, and why.
fn exclusions(report: &Report, baseline: &str) -> Table {
    let mut table = Table::new(
        format!(
            "Problems left out of the comparison with {baseline}: attempted by one side only, with another text or expected \
             answer under the same id, or without a valid attempt on one of the sides. Invalid attempts failed because of \
             the infrastructure, were cancelled or are not graded; they are excluded and count as nothing."
        ),
        &[
            MODEL,
            "mode",
            "task",
            ">paired",
            ">only baseline",
            ">only model",
            ">other text",
            ">no valid attempt",
            ">invalid attempts",
        ],
    );
    let excludes = |row: &&Comparison| row.task.is_some() && row.left_out != LeftOut::default();
    for row in report.comparisons.iter().filter(excludes) {
        let LeftOut { only_baseline, only_other, different, invalid, invalid_attempts } =
            row.left_out;
        let mut cells: Vec<Cell> =
            [label(report, row.other.system), &modes(row), task(row)].map(Cell::text).to_vec();
        let paired = row.difference.map_or(0, |found| found.problems);
        let counts = [paired, only_baseline, only_other, different, invalid, invalid_attempts];
        cells.extend(counts.map(Cell::count));
        table.push(cells);
    }
    table
}

fn drawing(report: &Report, baseline: &str) -> Option<Block> {
    let row = |row: &Comparison| {
        let found = row.difference.as_ref()?;
        Some(IntervalRow {
            group: format!("{}, {}", label(report, row.other.system), modes(row)),
            label: task(row).to_owned(),
            value: found.difference,
            interval: found.bootstrap.or(found.normal),
            note: note(found, row.p_holm),
        })
    };
    let rows: Vec<IntervalRow> = report.comparisons.iter().filter_map(row).collect();
    let drawing = plot::intervals(&rows, "Paired difference of scores from the baseline, by task");
    let caption = format!(
        "Difference from {baseline} in percentage points, with 95% bootstrap confidence intervals and Holm-corrected \
             p-values. Right of 0 the model scores higher than the baseline."
    );
    figure(drawing, &caption)
}
