//! A sheet to draw on, in units that a wide page shows a little larger and a telephone a little smaller.

use std::fmt::Write;

use super::Ink;
use crate::html::escape;

/// Units from left to right.
pub(super) const WIDTH: f64 = 520.0;
/// Where plots begin, right of their labels.
pub(super) const LEFT: f64 = 148.0;
/// Where they end.
pub(super) const RIGHT: f64 = 506.0;
/// Characters of a label that fit left of a plot.
const LABEL: usize = 24;

/// Where a text hangs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A sheet.
#[derive(Debug, Default)]
pub(super) struct Canvas {
    body: String,
}

impl Canvas {
    /// The drawing, this high. `label` tells those who cannot see it what it shows.
    pub(super) fn finish(self, height: f64, label: &str) -> String {
        format!(
            "<svg viewBox=\"0 0 {WIDTH:.0} {height:.0}\" role=\"img\" aria-label=\"{}\">{}</svg>",
            escape(label),
            self.body
        )
    }

    /// Draws another sheet on top.
    pub(super) fn append(&mut self, other: Self) {
        self.body.push_str(&other.body);
    }

    /// A rectangle, with what it stands for as its title.
    pub(super) fn rect(&mut self, class: &str, at: [f64; 2], size: [f64; 2], title: &str) {
        let [x, y] = at;
        let [w, h] = [size[0].max(0.0), size[1].max(0.0)];
        let _ = write!(
            self.body,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" height=\"{h:.1}\">{}</rect>",
            titled(title)
        );
    }

    /// A line.
    pub(super) fn line(&mut self, class: &str, from: [f64; 2], to: [f64; 2]) {
        let ([x1, y1], [x2, y2]) = (from, to);
        let _ = write!(
            self.body,
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        );
    }

    /// A whisker: a line with its two ends marked.
    pub(super) fn whisker(&mut self, from: f64, to: f64, y: f64, half: f64) {
        self.line("whisker", [from, y], [to, y]);
        for x in [from, to] {
            self.line("whisker", [x, y - half], [x, y + half]);
        }
    }

    /// A dot.
    pub(super) fn dot(&mut self, class: &str, [x, y]: [f64; 2], r: f64, title: &str) {
        let _ = write!(
            self.body,
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{r:.1}\">{}</circle>",
            titled(title)
        );
    }

    /// A text.
    pub(super) fn text(&mut self, class: &str, [x, y]: [f64; 2], anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let _ = write!(
            self.body,
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
            escape(text)
        );
    }

    /// The label of a row, cut where it would not fit.
    pub(super) fn label(&mut self, y: f64, text: &str) {
        self.text("label", [LEFT - 8.0, y], Anchor::End, &short(text, LABEL));
    }

    /// The heading of the rows below.
    pub(super) fn heading(&mut self, y: f64, text: &str) {
        self.text("heading", [0.0, y], Anchor::Start, &short(text, 60));
    }

    /// What the colours stand for, on a line of its own.
    pub(super) fn legend(&mut self, y: f64, inks: &[(Ink, &str)]) {
        let mut x = LEFT;
        for (ink, name) in inks {
            self.rect(ink.class(), [x, y - 8.0], [10.0, 10.0], "");
            self.text("tick", [x + 14.0, y + 1.0], Anchor::Start, name);
            x += 26.0 + 6.2 * name.chars().count() as f64;
        }
    }
}

/// A text of at most this many characters.
pub(super) fn short(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some(_) => text.chars().take(most - 1).chain(['…']).collect(),
    }
}

fn titled(title: &str) -> String {
    if title.is_empty() { String::new() } else { format!("<title>{}</title>", escape(title)) }
}
