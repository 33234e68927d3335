//! An SVG element under construction. All charts are equally wide; the page scales them.

use std::fmt::Write;

use crate::{escape, page::CHART_STYLE};

/// Width of every chart, in user units.
pub const WIDTH: f64 = 520.0;

/// Colors of the style sheet. Each has a fill class and a stroke class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Color {
    /// Grey, for a baseline.
    Muted,
    /// Pale blue, for the least important of several parts.
    Pale,
    /// One of eight distinct colors; higher numbers wrap around.
    Series(usize),
}

impl Color {
    /// Number of distinct [`Color::Series`] colors.
    pub const SERIES: usize = 8;

    /// Class that fills a shape with this color.
    pub fn fill(self) -> &'static str {
        match self {
            Self::Muted => "s-muted",
            Self::Pale => "s-pale",
            Self::Series(at) => ["s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7"][at % Self::SERIES],
        }
    }

    /// Class that draws a line in this color.
    pub fn stroke(self) -> &'static str {
        match self {
            Self::Muted => "l-muted",
            Self::Pale => "l-pale",
            Self::Series(at) => ["l0", "l1", "l2", "l3", "l4", "l5", "l6", "l7"][at % Self::SERIES],
        }
    }
}

/// Which point of a text its position refers to.
#[derive(Clone, Copy, Debug)]
pub enum Anchor {
    /// Its left end.
    Start,
    /// Its center.
    Middle,
    /// Its right end.
    End,
}

/// Shapes drawn so far. Classes and positions are the caller's; texts and titles are escaped.
#[derive(Debug, Default)]
pub struct Canvas {
    body: String,
}

impl Canvas {
    /// Returns an `<svg>` element for a [`Page`](crate::Page), which has the style. `label` is its text alternative.
    pub fn finish(self, height: f64, label: &str) -> String {
        self.element(height, label, "", "")
    }

    /// Like [`finish`](Self::finish), with `data` for a script in the attribute `data-plot`.
    pub fn finish_with_data(self, height: f64, label: &str, data: &str) -> String {
        self.element(height, label, &format!(" data-plot=\"{}\"", escape(data)), "")
    }

    /// Returns an SVG file that brings its own style.
    pub fn finish_file(self, height: f64, label: &str) -> String {
        let style =
            format!("<style>{CHART_STYLE}svg{{background:#fff;background:var(--paper)}}</style>");
        let namespace = " xmlns=\"http://www.w3.org/2000/svg\"";
        self.element(height, label, namespace, &style) + "\n"
    }

    fn element(self, height: f64, label: &str, attributes: &str, style: &str) -> String {
        format!(
            "<svg{attributes} viewBox=\"0 0 {WIDTH:.0} {height:.0}\" role=\"img\" aria-label=\"{}\">{style}{}</svg>",
            escape(label),
            self.body
        )
    }

    /// Draws the shapes of `other` on top.
    pub fn append(&mut self, other: Self) {
        self.body.push_str(&other.body);
    }

    /// Draws a rectangle from its top left corner. A `title` is shown on hover; pass "" for none.
    pub fn rect(&mut self, class: &str, [x, y]: [f64; 2], size: [f64; 2], title: &str) {
        let [w, h] = size.map(|length| length.max(0.0));
        let _ = write!(
            self.body,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" height=\"{h:.1}\">{}</rect>",
            title_element(title)
        );
    }

    /// Draws a straight line.
    pub fn line(&mut self, class: &str, [x1, y1]: [f64; 2], [x2, y2]: [f64; 2]) {
        let _ = write!(
            self.body,
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        );
    }

    /// Draws a line through points.
    pub fn polyline(&mut self, color: Color, points: impl IntoIterator<Item = [f64; 2]>) {
        let points = points.into_iter().map(|[x, y]| format!("{x:.1},{y:.1}"));
        let points = points.collect::<Vec<_>>().join(" ");
        let class = color.stroke();
        let _ = write!(self.body, "<polyline class=\"line {class}\" points=\"{points}\"/>");
    }

    /// Fills the area between two lines over the same positions, each point with its lower and upper end.
    pub fn band(&mut self, color: Color, points: &[(f64, [f64; 2])]) {
        let low = points.iter().map(|(x, [low, _])| format!("{x:.1},{low:.1}"));
        let high = points.iter().rev().map(|(x, [_, high])| format!("{x:.1},{high:.1}"));
        let outline = low.chain(high).collect::<Vec<_>>().join(" ");
        let class = color.fill();
        let _ = write!(self.body, "<polygon class=\"band {class}\" points=\"{outline}\"/>");
    }

    /// Draws a horizontal error bar with caps of height `2 * half`.
    pub fn error_bar(&mut self, [from, to]: [f64; 2], y: f64, half: f64) {
        self.line("error", [from, y], [to, y]);
        for x in [from, to] {
            self.line("error", [x, y - half], [x, y + half]);
        }
    }

    /// Draws a disc. A `title` is shown on hover; pass "" for none.
    pub fn circle(&mut self, class: &str, [x, y]: [f64; 2], radius: f64, title: &str) {
        let _ = write!(
            self.body,
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\">{}</circle>",
            title_element(title)
        );
    }

    /// Draws a text; `y` is its baseline.
    pub fn text(&mut self, class: &str, [x, y]: [f64; 2], anchor: Anchor, text: &str) {
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

    /// Draws labels below `bottom`, at horizontal positions.
    pub fn x_labels(&mut self, ticks: impl IntoIterator<Item = (f64, String)>, bottom: f64) {
        for (x, label) in ticks {
            self.text("tick", [x, bottom + 14.0], Anchor::Middle, &label);
        }
    }

    /// Draws vertical grid lines with labels below them.
    pub fn x_grid(
        &mut self,
        ticks: impl IntoIterator<Item = (f64, String)>,
        [top, bottom]: [f64; 2],
    ) {
        for (x, label) in ticks {
            self.line("grid", [x, top], [x, bottom]);
            self.x_labels([(x, label)], bottom);
        }
    }

    /// Draws horizontal grid lines with labels at their left.
    pub fn y_grid(
        &mut self,
        ticks: impl IntoIterator<Item = (f64, String)>,
        [left, right]: [f64; 2],
    ) {
        for (y, label) in ticks {
            self.line("grid", [left, y], [right, y]);
            self.text("tick", [left - 6.0, y + 3.5], Anchor::End, &label);
        }
    }

    /// Draws a legend on one line from the left: as many entries as fit.
    pub fn legend<'a>(
        &mut self,
        [left, y]: [f64; 2],
        entries: impl IntoIterator<Item = (Color, &'a str)>,
    ) {
        let mut x = left;
        for (color, name) in entries {
            let name = truncate(name, 28);
            self.circle(color.fill(), [x + 4.0, y - 3.5], 4.0, "");
            self.text("tick", [x + 12.0, y], Anchor::Start, &name);
            x += 28.0 + 6.0 * name.chars().count() as f64;
            if x > WIDTH - 40.0 {
                break;
            }
        }
    }
}

/// Shortens a text to at most `most` characters, the last of which is then an ellipsis.
pub fn truncate(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some(_) => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
    }
}

fn title_element(title: &str) -> String {
    if title.is_empty() { String::new() } else { format!("<title>{}</title>", escape(title)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_shortened() {
        let mut canvas = Canvas::default();
        canvas.legend([0.0, 10.0], [(Color::Series(9), "<b>")]);
        canvas.circle(Color::Muted.fill(), [1.0, 2.0], 3.0, "a & b");
        let svg = canvas.finish(20.0, "\"x\"");
        assert!(svg.contains("class=\"s1\"") && svg.contains("&lt;b&gt;"), "{svg}");
        assert!(svg.contains("<title>a &amp; b</title>") && svg.contains("&quot;x&quot;"), "{svg}");
        assert_eq!([truncate("größer", 6), truncate("größer", 4)], ["größer", "grö…"]);
    }
}
