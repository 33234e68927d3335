//! Differences with their confidence intervals around a line at zero (a forest plot).

use crate::{
    canvas::{Anchor, Canvas, Color},
    number::points,
    rows::{LEFT, RIGHT, Row, draw_rows, shown},
    scale::Scale,
};

/// A difference of two shares.
#[derive(Clone, Debug)]
pub struct IntervalRow {
    /// Heading shared with neighboring rows; empty for none.
    pub group: String,
    /// Label.
    pub label: String,
    /// Difference, from -1 to 1.
    pub value: f64,
    /// Ends of its confidence interval.
    pub interval: Option<[f64; 2]>,
    /// Text at the right.
    pub note: String,
}

const ROW: f64 = 15.0;

impl Row for IntervalRow {
    fn group(&self) -> &str {
        &self.group
    }

    fn label(&self) -> &str {
        &self.label
    }

    fn height(&self) -> f64 {
        ROW
    }
}

/// Draws differences in percentage points. Returns `None` without rows.
pub fn intervals(rows: &[IntervalRow], title: &str) -> Option<String> {
    let ends = || shown(rows).iter().flat_map(|row| row.interval.unwrap_or([row.value; 2]));
    rows.first()?;
    let [low, high] = [ends().fold(0.0, f64::min), ends().fold(0.0, f64::max)];
    let margin = (0.06 * (high - low)).max(0.02);
    let range = [(low - margin).max(-1.0), (high + margin).min(1.0)];
    let scale = Scale::new(range, [LEFT, RIGHT - 96.0]);
    let (body, bottom) = draw_rows(rows, 12.0, |canvas, row, top| {
        let y = top + ROW / 2.0;
        if let Some([low, high]) = row.interval {
            canvas.error_bar([scale.at(low), scale.at(high)], y, 4.0);
        }
        let title = format!("{}: {} percentage points", row.label, points(row.value));
        canvas.circle(Color::Series(0).fill(), [scale.at(row.value), y], 4.0, &title);
        canvas.text("value", [RIGHT, y + 4.0], Anchor::End, &row.note);
    });
    let mut canvas = Canvas::default();
    let label = |tick: f64| format!("{:+.0}", tick * 100.0).replace('-', "−").replace("+0", "0");
    canvas.x_grid(scale.labels(5.0, label), [6.0, bottom]);
    canvas.line("axis", [scale.at(0.0), 6.0], [scale.at(0.0), bottom]);
    canvas.append(body);
    Some(canvas.finish(bottom + 20.0, title))
}
