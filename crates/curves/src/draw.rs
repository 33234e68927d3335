//! A chart as SVG: faint points for the raw numbers, a line through the smoothed ones, axes with round ticks.

use plot::{Anchor, Canvas, Color, Scale, short};

use crate::{Chart, Series};

const HEIGHT: f64 = 260.0;
/// Left, right, top and bottom of the plot area.
const AREA: [f64; 4] = [56.0, 500.0, 36.0, 214.0];

/// Draws a chart as an SVG file.
pub fn svg(chart: &Chart) -> String {
    draw(chart).finish_file(HEIGHT, &alternative(chart))
}

/// Draws a chart for the page, with the numbers its script shows.
pub(crate) fn inline(chart: &Chart) -> String {
    draw(chart).finish_with_data(HEIGHT, &alternative(chart), &data(chart))
}

/// The chart in words, for readers who cannot see it.
fn alternative(chart: &Chart) -> String {
    let ends = chart.series.iter().filter_map(|series| {
        let (from, to) = (series.smooth.first()?, series.smooth.last()?);
        Some(format!("{}: from {} to {}", series.run, short(from.1), short(to.1)))
    });
    format!("{} over steps. {}", chart.title, ends.collect::<Vec<_>>().join("; "))
}

fn draw(chart: &Chart) -> Canvas {
    let [left, right, top, bottom] = AREA;
    let (x, y) = scales(chart);
    let mut canvas = Canvas::default();
    canvas.text("title", [left, 15.0], Anchor::Start, &chart.title);
    canvas.text("tick", [left, top - 8.0], Anchor::Start, &chart.axis);
    canvas.y_grid(y.labels(6.0, short), [left, right]);
    canvas.x_labels(x.whole_labels(6.0, short), bottom);
    canvas.line("axis", [left, bottom], [right, bottom]);
    canvas.text("tick", [right, bottom + 30.0], Anchor::End, "step");
    for series in &chart.series {
        draw_series(&mut canvas, series, x, y);
    }
    if chart.series.len() > 1 {
        let runs = chart.series.iter().map(|series| (series.color(), series.run.as_str()));
        canvas.legend([left - 4.0, HEIGHT - 6.0], runs);
    }
    canvas
}

fn draw_series(canvas: &mut Canvas, series: &Series, x: Scale, y: Scale) {
    let position = |(step, number): &(f64, f64)| [x.at(*step), y.at(*number)];
    if !series.band.is_empty() {
        let ends = series.band.iter().map(|(step, ends)| (x.at(*step), ends.map(|end| y.at(end))));
        canvas.band(series.color(), &ends.collect::<Vec<_>>());
    }
    let raw = format!("raw {}", series.color().fill());
    for point in &series.raw {
        let title = format!("step {}: {}", short(point.0), short(point.1));
        canvas.circle(&raw, position(point), 1.8, &title);
    }
    canvas.polyline(series.color(), series.smooth.iter().map(position));
    if let Some(last) = series.smooth.last() {
        canvas.circle(series.color().fill(), position(last), 3.0, "");
    }
}

impl Series {
    fn color(&self) -> Color {
        Color::Series(self.at)
    }
}

fn scales(chart: &Chart) -> (Scale, Scale) {
    let [left, right, top, bottom] = AREA;
    (Scale::new(steps(chart), [left, right]), Scale::new(range(chart), [bottom, top]))
}

fn steps(chart: &Chart) -> [f64; 2] {
    let steps = || chart.series.iter().flat_map(|series| &series.raw).map(|(step, _)| *step);
    [steps().fold(f64::INFINITY, f64::min), steps().fold(f64::NEG_INFINITY, f64::max)]
}

/// The range of the vertical axis: all smoothed values and 96% of the raw ones, so that outliers do not flatten the rest;
/// from zero where zero is near.
fn range(chart: &Chart) -> [f64; 2] {
    let mut raw: Vec<f64> =
        chart.series.iter().flat_map(|series| &series.raw).map(|(_, number)| *number).collect();
    raw.sort_by(f64::total_cmp);
    let outliers = raw.len() / 50;
    let usual = [raw.get(outliers), raw.get(raw.len().saturating_sub(outliers + 1))];
    let smooth = chart.series.iter().flat_map(|series| &series.smooth).map(|(_, number)| number);
    let bands = chart.series.iter().flat_map(|series| &series.band).flat_map(|(_, ends)| ends);
    let (low, high) = usual
        .into_iter()
        .flatten()
        .chain(smooth)
        .chain(bands)
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), number| {
            (low.min(*number), high.max(*number))
        });
    let margin = 0.05 * (high - low);
    let low = if low >= 0.0 && low < 0.4 * high { 0.0 } else { low - margin };
    [low, if high <= 1.0 && high > 0.97 { 1.0 } else { high + margin }]
}

/// The numbers that the page's script shows beside the pointer.
fn data(chart: &Chart) -> String {
    let (_, y) = scales(chart);
    let runs = chart.series.iter().map(|series| {
        let numbers = |points: &[(f64, f64)]| {
            points.iter().map(|(_, number)| short(*number)).collect::<Vec<_>>()
        };
        let heights = series.smooth.iter().map(|(_, number)| (y.at(*number) * 10.0).round() / 10.0);
        serde_json::json!({
            "name": series.run,
            "at": series.at,
            "steps": series.smooth.iter().map(|(step, _)| *step).collect::<Vec<_>>(),
            "smooth": numbers(&series.smooth),
            "raw": numbers(&series.raw),
            "y": heights.collect::<Vec<_>>(),
        })
    });
    let runs = runs.collect::<Vec<_>>();
    serde_json::json!({ "box": AREA, "steps": steps(chart), "runs": runs }).to_string()
}
