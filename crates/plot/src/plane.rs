//! Shares against positive numbers on a logarithmic axis: pairs of points, and lines.

use crate::{
    canvas::{Anchor, Canvas, Color, truncate},
    number::{compact, count, percent},
    scale::Scale,
};

/// Two measurements of the same thing, each a positive number and a share.
#[derive(Clone, Debug)]
pub struct PointPair {
    /// Label.
    pub label: String,
    /// First measurement.
    pub from: Option<(f64, f64)>,
    /// Second measurement.
    pub to: Option<(f64, f64)>,
}

/// A line through points, each a positive whole number and a share.
#[derive(Clone, Debug)]
pub struct Line {
    /// Label at its right end.
    pub label: String,
    /// Color.
    pub color: Color,
    /// Points, from the left.
    pub points: Vec<(usize, f64)>,
}

/// Left, right, top and bottom of the plot area.
const AREA: [f64; 4] = [52.0, 492.0, 28.0, 250.0];
/// Pairs or lines drawn at most.
const MOST: usize = 40;

/// Draws pairs of points, joined, with a legend entry for the first points and one for the second, as far as there are
/// any. `x_label` says
/// what the numbers count. Returns `None` without points.
pub fn scatter(
    pairs: &[PointPair],
    legend: [(Color, &str); 2],
    x_label: &str,
    title: &str,
) -> Option<String> {
    let pairs = &pairs[..pairs.len().min(MOST)];
    let [left, right, top, bottom] = AREA;
    let logs = || {
        let points = pairs.iter().flat_map(|pair| [pair.from, pair.to]).flatten();
        points.map(|(number, _)| number.max(1.0).log10())
    };
    let low = logs().reduce(f64::min)?.floor();
    let high = logs().reduce(f64::max)?.ceil().max(low + 1.0);
    let x = Scale::new([low, high], [left + 8.0, right - 104.0]);
    let mut canvas = Canvas::default();
    let y = share_axis(&mut canvas);
    let powers = low as i32..=high as i32;
    let ticks = powers.map(|power| (x.at(f64::from(power)), compact(10_f64.powi(power))));
    canvas.x_grid(ticks, [top, bottom]);
    canvas.text("tick", [right, bottom + 30.0], Anchor::End, x_label);
    let position = |(number, share): (f64, f64)| [x.at(number.max(1.0).log10()), y.at(share)];
    for pair in pairs {
        if let (Some(from), Some(to)) = (pair.from, pair.to) {
            canvas.line("join", position(from), position(to));
        }
    }
    let mut labels = Vec::new();
    for pair in pairs {
        for ((color, name), point) in legend.into_iter().zip([pair.from, pair.to]) {
            let Some(point) = point else { continue };
            let (number, share) = (count(point.0), percent(point.1));
            let title = format!("{}, {name}: {number}, {share}%", pair.label);
            canvas.circle(color.fill(), position(point), 4.5, &title);
        }
        if let Some([x, y]) = pair.to.or(pair.from).map(position) {
            labels.push(([x + 8.0, y], truncate(&pair.label, 20)));
        }
    }
    let lowest = write_apart(&mut canvas, labels);
    let has =
        [pairs.iter().any(|pair| pair.from.is_some()), pairs.iter().any(|pair| pair.to.is_some())];
    canvas.legend(
        [left, 13.0],
        legend.into_iter().zip(has).filter(|(_, has)| *has).map(|(entry, _)| entry),
    );
    Some(canvas.finish((bottom + 36.0).max(lowest + 8.0), title))
}

/// Draws lines. `x_label` says what the numbers count. Returns `None` without points.
pub fn lines(
    lines: &[Line],
    legend: &[(Color, &str)],
    x_label: &str,
    title: &str,
) -> Option<String> {
    let lines = &lines[..lines.len().min(MOST)];
    let [left, right, _, bottom] = AREA;
    let most = lines.iter().flat_map(|line| &line.points).map(|(number, _)| *number).max()?;
    let end = right - 90.0;
    let x = Scale::new([0.0, (most as f64).log2().max(1.0)], [left + 8.0, end]);
    let at = |number: usize| x.at((number as f64).log2());
    let mut canvas = Canvas::default();
    let y = share_axis(&mut canvas);
    let powers = (0..usize::BITS).map(|bit| 1_usize << bit).take_while(|number| *number <= most);
    canvas.x_labels(powers.map(|number| (at(number), number.to_string())), bottom);
    canvas.text("tick", [end, bottom + 30.0], Anchor::End, x_label);
    let mut labels = Vec::new();
    for line in lines {
        let position = |(number, share): &(usize, f64)| [at(*number), y.at(*share)];
        canvas.polyline(line.color, line.points.iter().map(position));
        for point in &line.points {
            let title = format!("{}, {}: {}%", line.label, point.0, percent(point.1));
            canvas.circle(line.color.fill(), position(point), 2.5, &title);
        }
        if let Some([_, y]) = line.points.last().map(position) {
            labels.push(([end + 8.0, y], truncate(&line.label, 17)));
        }
    }
    let lowest = write_apart(&mut canvas, labels);
    canvas.legend([left, 13.0], legend.iter().copied());
    Some(canvas.finish((bottom + 36.0).max(lowest + 8.0), title))
}

/// Draws the axis of shares, from 0 to 100%.
fn share_axis(canvas: &mut Canvas) -> Scale {
    let [left, right, top, bottom] = AREA;
    let y = Scale::new([0.0, 1.0], [bottom, top]);
    canvas.y_grid(y.labels(5.0, |tick| format!("{:.0}%", tick * 100.0)), [left, right]);
    y
}

/// Draws labels at their positions, moving those down that would overlap. Returns the lower end.
fn write_apart(canvas: &mut Canvas, mut labels: Vec<([f64; 2], String)>) -> f64 {
    labels.sort_by(|a, b| a.0[1].total_cmp(&b.0[1]));
    let mut free = 0.0_f64;
    for ([x, y], label) in labels {
        let y = y.max(free);
        canvas.text("tick", [x, y + 4.0], Anchor::Start, &label);
        free = y + 12.0;
    }
    free
}
