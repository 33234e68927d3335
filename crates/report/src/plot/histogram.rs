//! How often which number occurs: small plots side by side, all with the same horizontal scale.

use super::{
    Ink,
    canvas::{Anchor, Canvas, WIDTH, short},
    scale::Scale,
};

/// One small plot.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    /// Its heading.
    pub(crate) title: String,
    /// From, to and how often.
    pub(crate) bins: Vec<(u32, u32, usize)>,
    /// The mean, marked by a line.
    pub(crate) mean: f64,
}

const PANELS: usize = 24;
const HEIGHT: f64 = 74.0;
const GAP: f64 = 24.0;

/// Draws them, two in a row; none where there are none.
pub(crate) fn histograms(panels: &[Panel], title: &str) -> Option<String> {
    let panels = &panels[..panels.len().min(PANELS)];
    let widest = panels.iter().flat_map(|panel| &panel.bins).map(|(_, to, _)| *to).max()?;
    let columns = if panels.len() == 1 { 1 } else { 2 };
    let width = (WIDTH - GAP * (columns as f64 - 1.0)) / columns as f64;
    let mut canvas = Canvas::default();
    for (at, panel) in panels.iter().enumerate() {
        let left = (at % columns) as f64 * (width + GAP);
        let top = (at / columns) as f64 * (HEIGHT + 42.0) + 16.0;
        draw(&mut canvas, panel, [left, top], width, widest);
    }
    let rows = panels.len().div_ceil(columns) as f64;
    Some(canvas.finish(rows * (HEIGHT + 42.0) + 4.0, title))
}

fn draw(canvas: &mut Canvas, panel: &Panel, [left, top]: [f64; 2], width: f64, widest: u32) {
    let bottom = top + HEIGHT;
    let across = Scale::new([0.5, f64::from(widest) + 0.5], [left + 26.0, left + width - 6.0]);
    let highest = panel.bins.iter().map(|(_, _, count)| *count).max().unwrap_or(0).max(1);
    let up = Scale::new([0.0, highest as f64], [bottom, top + 6.0]);
    canvas.text("heading", [left, top - 4.0], Anchor::Start, &short(&panel.title, 33));
    for tick in up.ticks(2.0).into_iter().filter(|tick| tick.fract() == 0.0) {
        let y = up.at(tick);
        canvas.line("grid", [left + 26.0, y], [left + width - 6.0, y]);
        canvas.text("tick", [left + 22.0, y + 4.0], Anchor::End, &format!("{tick:.0}"));
    }
    for (from, to, count) in &panel.bins {
        let (start, end) = (f64::from(*from) - 0.5, f64::from(*to) + 0.5);
        let (x, y) = (across.at(start), up.at(*count as f64));
        let turns = if from == to { from.to_string() } else { format!("{from} to {to}") };
        let title = format!("{turns} turns: {count} attempts");
        let size = [(across.at(end) - x - 0.8).min(46.0), bottom - y];
        canvas.rect(Ink::Sandbox.class(), [x + 0.4, y], size, &title);
    }
    let x = across.at(panel.mean);
    canvas.line("mean", [x, top + 2.0], [x, bottom]);
    for tick in across.ticks(5.0).into_iter().filter(|tick| tick.fract() == 0.0) {
        canvas.text(
            "tick",
            [across.at(tick), bottom + 13.0],
            Anchor::Middle,
            &format!("{tick:.0}"),
        );
    }
}
