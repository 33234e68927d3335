//! Horizontal bars from 0 to 100%, with optional confidence intervals.

use crate::{
    canvas::{Anchor, Canvas, Color},
    number::percent,
    rows::{LEFT, RIGHT, Row, draw_rows, shown},
    scale::Scale,
};

/// A bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Color; bars of the same color share a legend entry.
    pub color: Color,
    /// Name in the legend.
    pub name: &'static str,
    /// Length, from 0 to 1.
    pub value: f64,
    /// Ends of the confidence interval.
    pub interval: Option<[f64; 2]>,
}

/// Bars below one another that share a label.
#[derive(Clone, Debug)]
pub struct BarRow {
    /// Heading shared with neighboring rows; empty for none.
    pub group: String,
    /// Label.
    pub label: String,
    /// Bars, from the top.
    pub bars: Vec<Bar>,
}

const BAR: f64 = 11.0;

impl Row for BarRow {
    fn group(&self) -> &str {
        &self.group
    }

    fn label(&self) -> &str {
        &self.label
    }

    fn height(&self) -> f64 {
        BAR * self.bars.len() as f64
    }
}

/// Draws grouped horizontal bars. Returns `None` where there are none.
pub fn bars(rows: &[BarRow], title: &str) -> Option<String> {
    let mut legend: Vec<(Color, &str)> = Vec::new();
    for bar in shown(rows).iter().flat_map(|row| &row.bars) {
        if legend.iter().all(|(color, _)| *color != bar.color) {
            legend.push((bar.color, bar.name));
        }
    }
    legend.first()?;
    // Leaves room for the number behind a full bar.
    let scale = Scale::new([0.0, 1.0], [LEFT, RIGHT - 44.0]);
    let (body, bottom) = draw_rows(rows, 30.0, |canvas, row, top| {
        for (at, bar) in row.bars.iter().enumerate() {
            draw(canvas, bar, scale, top + BAR * at as f64, &row.label);
        }
    });
    let mut canvas = Canvas::default();
    canvas.x_grid(scale.labels(5.0, |tick| format!("{:.0}%", tick * 100.0)), [22.0, bottom]);
    canvas.legend([LEFT, 13.0], legend);
    canvas.append(body);
    Some(canvas.finish(bottom + 20.0, title))
}

fn draw(canvas: &mut Canvas, bar: &Bar, scale: Scale, y: f64, label: &str) {
    let (from, to) = (scale.at(0.0), scale.at(bar.value));
    let value = percent(bar.value);
    let title = format!("{label}, {}: {value}%", bar.name);
    // A bar of length 0 stays visible: it is a measurement.
    let size = [(to - from).max(1.0), BAR - 1.5];
    canvas.rect(bar.color.fill(), [from, y + 0.5], size, &title);
    let mut end = to;
    if let Some([low, high]) = bar.interval {
        canvas.error_bar([scale.at(low), scale.at(high)], y + BAR / 2.0 - 0.25, 2.5);
        end = end.max(scale.at(high));
    }
    canvas.text("value", [end + 5.0, y + BAR - 2.0], Anchor::Start, &value);
}
