//! Amounts made of parts, one bar each.

use super::{
    Ink, ROWS,
    canvas::{Anchor, Canvas, LEFT, RIGHT},
    scale::Scale,
};
use crate::numbers::{count, short_count};

/// An amount.
#[derive(Clone, Debug)]
pub(crate) struct StackRow {
    /// The heading it stands under; empty for none.
    pub(crate) group: String,
    /// Its label.
    pub(crate) label: String,
    /// Its parts, in the order of the legend.
    pub(crate) parts: [f64; 3],
}

const INKS: [Ink; 3] = [Ink::First, Ink::Second, Ink::Third];
const ROW: f64 = 18.0;

/// Draws them with the names of the parts; none where there are none.
pub(crate) fn stacks(rows: &[StackRow], names: [&str; 3], title: &str) -> Option<String> {
    let rows = &rows[..rows.len().min(ROWS)];
    let total = |row: &StackRow| row.parts.iter().sum::<f64>();
    let most = rows.iter().map(total).reduce(f64::max)?;
    let scale = Scale::new([0.0, most], [LEFT, RIGHT - 48.0]);
    let (mut grid, mut canvas) = (Canvas::default(), Canvas::default());
    let mut y = 30.0;
    let mut group = "";
    for row in rows {
        if row.group != group {
            y += if group.is_empty() { 0.0 } else { 8.0 };
            group = &row.group;
            canvas.heading(y + 8.0, group);
            y += 16.0;
        }
        canvas.label(y + ROW / 2.0 + 2.0, &row.label);
        let mut sum = 0.0;
        for ((part, ink), name) in row.parts.iter().zip(INKS).zip(names) {
            let (from, to) = (scale.at(sum), scale.at(sum + part));
            let shown = format!("{}, {name}: {}", row.label, count(*part));
            canvas.rect(ink.class(), [from, y], [to - from, ROW - 6.0], &shown);
            sum += part;
        }
        let end = [scale.at(sum) + 5.0, y + ROW / 2.0 + 1.0];
        canvas.text("value", end, Anchor::Start, &short_count(sum));
        y += ROW;
    }
    y += 4.0;
    scale.axis(&mut grid, [22.0, y], short_count);
    grid.legend(12.0, &[(INKS[0], names[0]), (INKS[1], names[1]), (INKS[2], names[2])]);
    grid.append(canvas);
    Some(grid.finish(y + 20.0, title))
}
