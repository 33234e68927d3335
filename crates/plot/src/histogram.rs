//! Histograms of whole numbers: small panels side by side with a common horizontal scale.

use crate::{
    canvas::{Anchor, Canvas, Color, WIDTH, truncate},
    scale::Scale,
};

/// One histogram.
#[derive(Clone, Debug)]
pub struct Panel {
    /// Heading.
    pub title: String,
    /// Bins: first and last number, and count.
    pub bins: Vec<(u32, u32, usize)>,
    /// Mean, marked by a line.
    pub mean: f64,
}

const PANELS: usize = 24;
const HEIGHT: f64 = 74.0;
const GAP: f64 = 24.0;

/// Draws histograms, two in a row. `unit` is what the numbers count and `counted` what has them, for the titles shown
/// on hover ("3 turns: 12 attempts"). Returns `None` without bins.
pub fn histograms(panels: &[Panel], [unit, counted]: [&str; 2], title: &str) -> Option<String> {
    let panels = &panels[..panels.len().min(PANELS)];
    let widest = panels.iter().flat_map(|panel| &panel.bins).map(|(_, to, _)| *to).max()?;
    let columns = if panels.len() == 1 { 1 } else { 2 };
    let width = (WIDTH - GAP * (columns as f64 - 1.0)) / columns as f64;
    let mut canvas = Canvas::default();
    for (at, panel) in panels.iter().enumerate() {
        let left = (at % columns) as f64 * (width + GAP);
        let top = (at / columns) as f64 * (HEIGHT + 42.0) + 16.0;
        let across = [left + 26.0, left + width - 6.0];
        canvas.text("heading", [left, top - 4.0], Anchor::Start, &truncate(&panel.title, 33));
        draw(&mut canvas, panel, across, top, widest, [unit, counted]);
    }
    let rows = panels.len().div_ceil(columns) as f64;
    Some(canvas.finish(rows * (HEIGHT + 42.0) + 4.0, title))
}

fn draw(
    canvas: &mut Canvas,
    panel: &Panel,
    [left, right]: [f64; 2],
    top: f64,
    widest: u32,
    [unit, counted]: [&str; 2],
) {
    let bottom = top + HEIGHT;
    let x = Scale::new([0.5, f64::from(widest) + 0.5], [left, right]);
    let highest = panel.bins.iter().map(|(_, _, count)| *count).max().unwrap_or(0).max(1);
    let y = Scale::new([0.0, highest as f64], [bottom, top + 6.0]);
    canvas.y_grid(y.whole_labels(3.0, |tick| format!("{tick:.0}")), [left, right]);
    for (from, to, count) in &panel.bins {
        let (start, end) = (x.at(f64::from(*from) - 0.5), x.at(f64::from(*to) + 0.5));
        let range = if from == to { from.to_string() } else { format!("{from} to {to}") };
        let title = format!("{range} {unit}: {count} {counted}");
        let width = (end - start - 0.8).min(46.0);
        let at = [(start + end - width) / 2.0, y.at(*count as f64)];
        canvas.rect(Color::Series(0).fill(), at, [width, bottom - at[1]], &title);
    }
    canvas.line("mean", [x.at(panel.mean), top + 2.0], [x.at(panel.mean), bottom]);
    canvas.x_labels(x.whole_labels(5.0, |tick| format!("{tick:.0}")), bottom);
}
