//! Layout shared by charts with one labelled row below the other: bars, stacks and intervals.

use crate::canvas::{Anchor, Canvas, truncate};

/// Left end of the plot area, right of the row labels.
pub(crate) const LEFT: f64 = 148.0;
/// Right end of the plot area.
pub(crate) const RIGHT: f64 = 506.0;
/// Rows drawn at most; the rest is left to tables.
const MOST_ROWS: usize = 48;
/// Characters of a label that fit left of the plot area.
const LABEL_CHARS: usize = 24;

/// The heading and label of a row.
pub(crate) trait Row {
    /// Heading shared with neighboring rows; empty for none.
    fn group(&self) -> &str;
    /// Label of the row.
    fn label(&self) -> &str;
    /// Height of the row, in user units.
    fn height(&self) -> f64;
}

/// Draws rows from `top` with their headings and labels; `draw` gets the top of each row. Returns the shapes and
/// their lower end.
pub(crate) fn draw_rows<R: Row>(
    rows: &[R],
    top: f64,
    mut draw: impl FnMut(&mut Canvas, &R, f64),
) -> (Canvas, f64) {
    let mut canvas = Canvas::default();
    let mut y = top;
    let mut group = "";
    for row in shown(rows) {
        if row.group() != group {
            y += if group.is_empty() { 0.0 } else { 8.0 };
            group = row.group();
            canvas.text("heading", [0.0, y + 8.0], Anchor::Start, &truncate(group, 60));
            y += 16.0;
        }
        let label = truncate(row.label(), LABEL_CHARS);
        canvas.text("label", [LEFT - 8.0, y + row.height() / 2.0 + 4.0], Anchor::End, &label);
        draw(&mut canvas, row, y);
        y += row.height() + 7.0;
    }
    (canvas, y)
}

/// The rows that are drawn.
pub(crate) fn shown<R>(rows: &[R]) -> &[R] {
    &rows[..rows.len().min(MOST_ROWS)]
}
