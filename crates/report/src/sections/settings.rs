//! Settings of the systems: what differs as a table, what is the same in one line.

use super::{Block, Cell, Column, Section, Table};
use crate::Report;

/// Settings that differ between systems; nothing for a single system.
pub(super) fn settings(report: &Report) -> Section {
    let mut blocks = Vec::new();
    if report.systems.len() > 1 {
        blocks.extend(differing(report));
        blocks.extend(same(report, "The same in all"));
    }
    Section { id: "settings", title: "Settings that differ", blocks }
}

/// The settings of a single system.
pub(super) fn of_single(report: &Report) -> Option<Block> {
    (report.systems.len() == 1).then(|| same(report, "Settings"))?
}

fn differing(report: &Report) -> Option<Block> {
    let rows = &report.settings.differing;
    if rows.is_empty() {
        return Some(Block::Text("The runs record the same settings.".to_owned()));
    }
    let mut table = Table::new(
        "Settings that differ, by the names of the options of a benchmark. A dash: not set, or not recorded. Several \
         values: the runs of a row differ.",
        &["setting"],
    );
    table.columns.extend(report.systems.iter().map(|system| Column::new(&system.label)));
    for row in rows {
        let values = row.values.iter();
        let values = values.map(|value| value.as_deref().map_or_else(Cell::none, Cell::text));
        table.push([Cell::text(&*row.name)].into_iter().chain(values).collect());
    }
    table.block()
}

fn same(report: &Report, heading: &str) -> Option<Block> {
    let same = report.settings.same.iter().map(|(name, value)| format!("{name} {value}"));
    let text = same.collect::<Vec<_>>().join("; ");
    (!text.is_empty()).then(|| Block::Folded(heading.to_owned(), text))
}
