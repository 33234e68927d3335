//! A chart as SVG: faint points as they were, a line through their smoothed values, axes with round numbers.
//!
//! Shapes carry classes; a style gives them their colours, for light and for dark surroundings.

use std::fmt::Write;

use crate::{Chart, Series, number::short, page::escape, scale::Scale};

const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 260.0;
/// Left, right, top and bottom of the plot.
const BOX: [f64; 4] = [56.0, 500.0, 36.0, 214.0];
/// Characters of a run's name in the legend.
const NAME: usize = 28;

/// Colours and sizes, for a file of its own and for the page. Before each colour that depends on the surroundings stands a
/// plain one, for programs that know no variables.
pub(crate) const STYLE: &str = include_str!("plot.css");

/// The chart as a file of its own.
pub fn svg(chart: &Chart) -> String {
    let body = body(chart);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH:.0} {HEIGHT:.0}\" role=\"img\" \
         aria-label=\"{}\"><style>{STYLE}svg{{background:#fff;background:var(--paper)}}</style>{body}</svg>\n",
        escape(&spoken(chart))
    )
}

/// The chart within a page that has the style. The numbers come along for whoever points at the plot.
pub(crate) fn inline(chart: &Chart) -> String {
    format!(
        "<svg viewBox=\"0 0 {WIDTH:.0} {HEIGHT:.0}\" role=\"img\" aria-label=\"{}\" data-plot=\"{}\">{}</svg>",
        escape(&spoken(chart)),
        escape(&data(chart)),
        body(chart)
    )
}

fn spoken(chart: &Chart) -> String {
    let ends = chart.series.iter().filter_map(|series| {
        let (from, to) = (series.smooth.first()?, series.smooth.last()?);
        Some(format!("{}: from {} to {}", series.run, short(from.1), short(to.1)))
    });
    format!("{} over steps. {}", chart.title, ends.collect::<Vec<_>>().join("; "))
}

fn body(chart: &Chart) -> String {
    let [left, right, top, bottom] = BOX;
    let across = Scale::new(steps(chart), [left, right]);
    let up = Scale::new(range(chart), [bottom, top]);
    let mut out = String::new();
    let _ =
        write!(out, "<text class=\"title\" x=\"{left}\" y=\"15\">{}</text>", escape(&chart.title));
    for tick in up.ticks(6.0) {
        let y = up.at(tick);
        let _ = write!(
            out,
            "<line class=\"grid\" x1=\"{left}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\"/>\
             <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            left - 6.0,
            y + 3.5,
            short(tick)
        );
    }
    for tick in across.ticks(6.0).into_iter().filter(|tick| tick.fract() == 0.0) {
        let x = across.at(tick);
        let _ = write!(
            out,
            "<text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            bottom + 15.0,
            short(tick)
        );
    }
    let _ = write!(
        out,
        "<line class=\"axis\" x1=\"{left}\" y1=\"{bottom}\" x2=\"{right}\" y2=\"{bottom}\"/>\
         <text class=\"tick\" x=\"{right}\" y=\"{:.1}\" text-anchor=\"end\">step</text>\
         <text class=\"tick\" x=\"{left}\" y=\"{:.1}\">{}</text>",
        bottom + 30.0,
        top - 8.0,
        escape(&chart.axis)
    );
    for series in &chart.series {
        draw(&mut out, series, across, up);
    }
    if chart.series.len() > 1 {
        legend(&mut out, &chart.series);
    }
    out
}

fn draw(out: &mut String, series: &Series, across: Scale, up: Scale) {
    let class = series.at;
    for (step, number) in &series.raw {
        let _ = write!(
            out,
            "<circle class=\"raw s{class}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"1.8\"><title>step {}: {}</title></circle>",
            across.at(*step),
            up.at(*number),
            short(*step),
            short(*number)
        );
    }
    let points = series
        .smooth
        .iter()
        .map(|(step, number)| format!("{:.1},{:.1}", across.at(*step), up.at(*number)));
    let points = points.collect::<Vec<_>>().join(" ");
    let _ = write!(out, "<polyline class=\"line l{class}\" points=\"{points}\"/>");
    if let Some((step, number)) = series.smooth.last() {
        let _ = write!(
            out,
            "<circle class=\"end s{class}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\"/>",
            across.at(*step),
            up.at(*number)
        );
    }
}

/// The runs below the plot, as many in a row as fit.
fn legend(out: &mut String, series: &[Series]) {
    let (mut x, y) = (BOX[0], HEIGHT - 6.0);
    for series in series {
        let name: String = match series.run.char_indices().nth(NAME) {
            None => series.run.clone(),
            Some((end, _)) => format!("{}…", &series.run[..end]),
        };
        let _ = write!(
            out,
            "<circle class=\"end s{}\" cx=\"{x:.1}\" cy=\"{:.1}\" r=\"4\"/><text class=\"tick\" x=\"{:.1}\" y=\"{y:.1}\">{}</text>",
            series.at,
            y - 3.5,
            x + 8.0,
            escape(&name)
        );
        x += 24.0 + 6.0 * name.chars().count() as f64;
        if x > WIDTH - 40.0 {
            break;
        }
    }
}

fn steps(chart: &Chart) -> [f64; 2] {
    let steps = || chart.series.iter().flat_map(|series| &series.raw).map(|(step, _)| *step);
    [steps().fold(f64::INFINITY, f64::min), steps().fold(f64::NEG_INFINITY, f64::max)]
}

/// All smoothed values and nearly all others, so that a few wild ones do not flatten the rest; zero where it is near.
fn range(chart: &Chart) -> [f64; 2] {
    let mut raw: Vec<f64> =
        chart.series.iter().flat_map(|series| &series.raw).map(|(_, number)| *number).collect();
    raw.sort_by(f64::total_cmp);
    let wild = raw.len() / 50;
    let usual =
        raw.get(wild).into_iter().chain(raw.get(raw.len().saturating_sub(wild + 1))).copied();
    let smooth = chart.series.iter().flat_map(|series| &series.smooth).map(|(_, number)| *number);
    let (low, high) =
        usual.chain(smooth).fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), number| {
            (low.min(number), high.max(number))
        });
    let air = 0.05 * (high - low);
    let low = if low >= 0.0 && low < 0.4 * high { 0.0 } else { low - air };
    [low, if high <= 1.0 && high > 0.97 { 1.0 } else { high + air }]
}

/// What the script of the page wants to know.
fn data(chart: &Chart) -> String {
    let [left, right, top, bottom] = BOX;
    let [first, last] = steps(chart);
    let [low, high] = range(chart);
    let runs: Vec<serde_json::Value> = chart
        .series
        .iter()
        .map(|series| {
            let shown = |points: &[(f64, f64)]| {
                points.iter().map(|(_, number)| short(*number)).collect::<Vec<_>>()
            };
            serde_json::json!({
                "name": series.run,
                "at": series.at,
                "steps": series.smooth.iter().map(|(step, _)| *step).collect::<Vec<_>>(),
                "smooth": shown(&series.smooth),
                "raw": shown(&series.raw),
                "y": series.smooth.iter().map(|(_, number)| {
                    (Scale::new([low, high], [bottom, top]).at(*number) * 10.0).round() / 10.0
                }).collect::<Vec<_>>(),
            })
        })
        .collect();
    serde_json::json!({ "box": [left, right, top, bottom], "steps": [first, last], "runs": runs })
        .to_string()
}
