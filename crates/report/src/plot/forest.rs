//! Differences with their intervals, one below the other around a line at zero.

use super::{
    ROWS,
    canvas::{Anchor, Canvas, LEFT, RIGHT},
    scale::Scale,
};
use crate::numbers::points;

/// A difference.
#[derive(Clone, Debug)]
pub(crate) struct ForestRow {
    /// The heading it stands under; empty for none.
    pub(crate) group: String,
    /// Its label.
    pub(crate) label: String,
    /// The difference.
    pub(crate) value: f64,
    /// Its interval.
    pub(crate) interval: Option<[f64; 2]>,
    /// What is written at its right.
    pub(crate) note: String,
}

const ROW: f64 = 22.0;

/// Draws them; none where there are none.
pub(crate) fn forest(rows: &[ForestRow], title: &str) -> Option<String> {
    let rows = &rows[..rows.len().min(ROWS)];
    let ends = || rows.iter().flat_map(|row| row.interval.unwrap_or([row.value; 2]));
    let [low, high] = [ends().fold(0.0, f64::min), ends().fold(0.0, f64::max)];
    let air = (0.06 * (high - low)).max(0.02);
    if rows.is_empty() {
        return None;
    }
    let scale = Scale::new([(low - air).max(-1.0), (high + air).min(1.0)], [LEFT, RIGHT - 96.0]);
    let (mut grid, mut canvas) = (Canvas::default(), Canvas::default());
    let mut y = 12.0;
    let mut group = "";
    for row in rows {
        if row.group != group {
            y += if group.is_empty() { 0.0 } else { 10.0 };
            group = &row.group;
            canvas.heading(y + 8.0, group);
            y += 12.0;
        }
        let middle = y + ROW / 2.0;
        canvas.label(middle + 4.0, &row.label);
        if let Some([low, high]) = row.interval {
            canvas.whisker(scale.at(low), scale.at(high), middle, 4.0);
        }
        let shown = format!("{}: {} points", row.label, points(row.value));
        canvas.dot("c-box", [scale.at(row.value), middle], 4.0, &shown);
        canvas.text("value", [RIGHT, middle + 4.0], Anchor::End, &row.note);
        y += ROW;
    }
    scale.axis(&mut grid, [6.0, y], |tick| {
        format!("{:+.0}", tick * 100.0).replace('-', "−").replace("+0", "0")
    });
    grid.line("zero", [scale.at(0.0), 6.0], [scale.at(0.0), y]);
    grid.append(canvas);
    Some(grid.finish(y + 20.0, title))
}
