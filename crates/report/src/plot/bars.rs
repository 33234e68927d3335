//! Bars of shares, from 0 to 100%, with whiskers where the uncertainty is known.

use super::{
    Ink, ROWS,
    canvas::{Anchor, Canvas, LEFT, RIGHT},
    scale::Scale,
};
use crate::numbers::percent;

/// A bar.
#[derive(Clone, Debug)]
pub(crate) struct Bar {
    /// Its colour.
    pub(crate) ink: Ink,
    /// What it stands for.
    pub(crate) name: &'static str,
    /// Its length, from 0 to 1.
    pub(crate) value: f64,
    /// Its whisker.
    pub(crate) interval: Option<[f64; 2]>,
}

/// Bars that belong together.
#[derive(Clone, Debug)]
pub(crate) struct BarRow {
    /// The heading this row and those after it with the same one stand under; empty for none.
    pub(crate) group: String,
    /// Its label.
    pub(crate) label: String,
    /// Its bars.
    pub(crate) bars: Vec<Bar>,
}

const BAR: f64 = 11.0;

/// Draws them; none where there is nothing to draw.
pub(crate) fn bars(rows: &[BarRow], title: &str) -> Option<String> {
    let rows = &rows[..rows.len().min(ROWS)];
    let first = rows.iter().find(|row| !row.bars.is_empty())?;
    let legend: Vec<(Ink, &str)> = first.bars.iter().map(|bar| (bar.ink, bar.name)).collect();
    let legend = rows.iter().flat_map(|row| &row.bars).fold(legend, |mut legend, bar| {
        if legend.iter().all(|(ink, _)| *ink != bar.ink) {
            legend.push((bar.ink, bar.name));
        }
        legend
    });
    // Room for the number behind a full bar.
    let scale = Scale::new([0.0, 1.0], [LEFT, RIGHT - 44.0]);
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
        let height = BAR * row.bars.len() as f64;
        canvas.label(y + height / 2.0 + 4.0, &row.label);
        for bar in &row.bars {
            draw(&mut canvas, bar, scale, y, &row.label);
            y += BAR;
        }
        y += 7.0;
    }
    scale.axis(&mut grid, [22.0, y], |tick| format!("{:.0}%", tick * 100.0));
    grid.legend(12.0, &legend);
    grid.append(canvas);
    Some(grid.finish(y + 20.0, title))
}

fn draw(canvas: &mut Canvas, bar: &Bar, scale: Scale, y: f64, label: &str) {
    let (from, to) = (scale.at(0.0), scale.at(bar.value));
    let shown = percent(bar.value);
    let title = format!("{label}, {}: {shown}%", bar.name);
    // A bar of length 0 is still a measurement: a hair of it stays visible.
    canvas.rect(bar.ink.class(), [from, y + 0.5], [(to - from).max(1.0), BAR - 1.5], &title);
    let mut end = to;
    if let Some([low, high]) = bar.interval {
        canvas.whisker(scale.at(low), scale.at(high), y + BAR / 2.0 - 0.25, 2.5);
        end = end.max(scale.at(high));
    }
    canvas.text("value", [end + 5.0, y + BAR - 2.0], Anchor::Start, &shown);
}
