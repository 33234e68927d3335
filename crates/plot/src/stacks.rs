//! Horizontal stacked bars: amounts made of parts.

use crate::{
    canvas::{Anchor, Canvas, Color},
    number::{compact, count},
    rows::{LEFT, RIGHT, Row, draw_rows, shown},
    scale::Scale,
};

/// An amount.
#[derive(Clone, Debug)]
pub struct StackRow {
    /// Heading shared with neighboring rows; empty for none.
    pub group: String,
    /// Label.
    pub label: String,
    /// Parts, in the order of the legend.
    pub parts: Vec<f64>,
}

const BAR: f64 = 12.0;

impl Row for StackRow {
    fn group(&self) -> &str {
        &self.group
    }

    fn label(&self) -> &str {
        &self.label
    }

    fn height(&self) -> f64 {
        BAR
    }
}

/// Draws stacked bars; `parts` are the colors and names of the parts. Returns `None` without rows.
pub fn stacks(rows: &[StackRow], parts: &[(Color, &str)], title: &str) -> Option<String> {
    let total = |row: &StackRow| row.parts.iter().sum::<f64>();
    let most = shown(rows).iter().map(total).reduce(f64::max)?;
    let most = if most > 0.0 { most } else { 1.0 };
    let scale = Scale::new([0.0, most], [LEFT, RIGHT - 48.0]);
    let (body, bottom) = draw_rows(rows, 30.0, |canvas, row, y| {
        let mut sum = 0.0;
        for (part, (color, name)) in row.parts.iter().zip(parts) {
            let (from, to) = (scale.at(sum), scale.at(sum + part));
            let title = format!("{}, {name}: {}", row.label, count(*part));
            canvas.rect(color.fill(), [from, y], [to - from, BAR], &title);
            sum += part;
        }
        let end = [scale.at(sum) + 5.0, y + BAR - 2.0];
        canvas.text("value", end, Anchor::Start, &compact(sum));
    });
    let mut canvas = Canvas::default();
    canvas.x_grid(scale.labels(5.0, compact), [22.0, bottom]);
    canvas.legend([LEFT, 13.0], parts.iter().copied());
    canvas.append(body);
    Some(canvas.finish(bottom + 20.0, title))
}
