//! Points in a plane: what a score cost in tokens, and how it grows with the number of attempts.

use super::{
    Ink,
    canvas::{Anchor, Canvas, short},
    scale::Scale,
};
use crate::numbers::{count, percent, short_count};

/// A task without and with the computer: amount and share each.
#[derive(Clone, Debug)]
pub(crate) struct Journey {
    /// Its label.
    pub(crate) label: String,
    /// Without.
    pub(crate) from: Option<(f64, f64)>,
    /// With.
    pub(crate) to: Option<(f64, f64)>,
}

/// A line through points: number of attempts and share.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    /// Its label.
    pub(crate) label: String,
    /// Its colour.
    pub(crate) ink: Ink,
    /// Its points.
    pub(crate) points: Vec<(usize, f64)>,
}

const BOX: [f64; 4] = [52.0, 492.0, 28.0, 250.0];
const MOST: usize = 40;

/// Draws points on a logarithmic scale of amounts, the two of a task joined; none where there are none.
pub(crate) fn scatter(journeys: &[Journey], title: &str) -> Option<String> {
    let journeys = &journeys[..journeys.len().min(MOST)];
    let [left, right, top, bottom] = BOX;
    let amounts = || journeys.iter().flat_map(|journey| [journey.from, journey.to]).flatten();
    let logs = || amounts().map(|(amount, _)| amount.max(1.0).log10());
    let low = logs().reduce(f64::min)?.floor();
    let high = logs().reduce(f64::max)?.ceil().max(low + 1.0);
    let across = Scale::new([low, high], [left + 8.0, right - 104.0]);
    let up = Scale::new([0.0, 1.0], [bottom, top]);
    let mut canvas = Canvas::default();
    frame(&mut canvas, up);
    for power in low as i32..=high as i32 {
        let x = across.at(f64::from(power));
        canvas.line("grid", [x, top], [x, bottom]);
        canvas.text("tick", [x, bottom + 13.0], Anchor::Middle, &short_count(10_f64.powi(power)));
    }
    canvas.text(
        "tick",
        [right, bottom + 28.0],
        Anchor::End,
        "tokens of a mean attempt (logarithmic)",
    );
    let place = |(amount, share): (f64, f64)| [across.at(amount.max(1.0).log10()), up.at(share)];
    for journey in journeys {
        if let (Some(from), Some(to)) = (journey.from, journey.to) {
            canvas.line("join", place(from), place(to));
        }
    }
    let mut labels = Vec::new();
    for journey in journeys {
        let ends = [(Ink::Llm, "llm", journey.from), (Ink::Sandbox, "sandbox", journey.to)];
        for (ink, mode, end) in ends {
            let Some(end) = end else { continue };
            let (tokens, score) = (count(end.0), percent(end.1));
            let shown = format!("{}, {mode}: {tokens} tokens, score {score}%", journey.label);
            canvas.dot(ink.class(), place(end), 4.5, &shown);
        }
        if let Some([x, y]) = journey.to.or(journey.from).map(place) {
            labels.push(([x + 8.0, y], short(&journey.label, 20)));
        }
    }
    write_apart(&mut canvas, labels);
    canvas.legend(12.0, &[(Ink::Llm, "llm"), (Ink::Sandbox, "sandbox")]);
    Some(canvas.finish(bottom + 34.0, title))
}

/// Draws shares against numbers of attempts, on a logarithmic scale; none where there are none.
pub(crate) fn lines(lines: &[Lines], title: &str) -> Option<String> {
    let lines = &lines[..lines.len().min(MOST)];
    let [left, right, top, bottom] = BOX;
    let most = lines.iter().flat_map(|line| &line.points).map(|(k, _)| *k).max()?;
    let across = Scale::new([0.0, (most as f64).log2().max(1.0)], [left + 8.0, right - 90.0]);
    let up = Scale::new([0.0, 1.0], [bottom, top]);
    let mut canvas = Canvas::default();
    frame(&mut canvas, up);
    let marks = (0..usize::BITS).map(|bit| 1_usize << bit).take_while(|k| *k <= most);
    for k in marks {
        let x = across.at((k as f64).log2());
        canvas.text("tick", [x, bottom + 13.0], Anchor::Middle, &k.to_string());
    }
    canvas.text("tick", [right - 90.0, bottom + 28.0], Anchor::End, "attempts k (logarithmic)");
    let mut labels = Vec::new();
    for line in lines {
        let place = |(k, share): &(usize, f64)| [across.at((*k as f64).log2()), up.at(*share)];
        let class = format!("curve {}", line.ink.class());
        for ends in line.points.windows(2) {
            canvas.line(&class, place(&ends[0]), place(&ends[1]));
        }
        for point in &line.points {
            let shown = format!("{}: pass@{} {}%", line.label, point.0, percent(point.1));
            canvas.dot(line.ink.class(), place(point), 2.5, &shown);
        }
        if let Some([_, y]) = line.points.last().map(place) {
            labels.push(([right - 82.0, y], short(&line.label, 17)));
        }
    }
    let lowest = write_apart(&mut canvas, labels);
    canvas.legend(12.0, &[(Ink::Llm, "llm"), (Ink::Sandbox, "sandbox")]);
    Some(canvas.finish((bottom + 34.0).max(lowest + 8.0), title))
}

/// Writes labels beside their places; those that would lie on each other move down. Says where they end.
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

fn frame(canvas: &mut Canvas, up: Scale) {
    let [left, right, ..] = BOX;
    for tick in up.ticks(5.0) {
        let y = up.at(tick);
        canvas.line("grid", [left, y], [right, y]);
        canvas.text("tick", [left - 6.0, y + 4.0], Anchor::End, &format!("{:.0}%", tick * 100.0));
    }
}
