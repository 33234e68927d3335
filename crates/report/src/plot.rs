//! Figures as SVG, drawn by hand: shapes carry classes, and the page's style gives them their colours.
//!
//! Each figure is drawn from plain numbers and labels. Nothing here knows a report.

mod bars;
mod canvas;
mod forest;
mod histogram;
mod scale;
mod scatter;
mod stacks;

pub(crate) use bars::{Bar, BarRow, bars};
pub(crate) use forest::{ForestRow, forest};
pub(crate) use histogram::{Panel, histograms};
pub(crate) use scatter::{Journey, Lines, lines, scatter};
pub(crate) use stacks::{StackRow, stacks};

/// Rows of a figure; tables hold the rest.
pub(crate) const ROWS: usize = 48;

/// What a shape stands for; the page's style has a colour for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ink {
    /// Without a computer.
    Llm,
    /// With one.
    Sandbox,
    /// The first of three kinds.
    First,
    /// The second.
    Second,
    /// The third.
    Third,
}

impl Ink {
    fn class(self) -> &'static str {
        match self {
            Self::Llm => "c-llm",
            Self::Sandbox => "c-box",
            Self::First => "c-1",
            Self::Second => "c-2",
            Self::Third => "c-3",
        }
    }
}
