//! The figures of training runs as curves: lines of JSON become charts, charts become SVG files and one page that
//! needs nothing else.
//!
//! Knows no trainer: a figure is a name and a number for each step. Names it has heard of get a title and a place.

mod chart;
mod draw;
mod known;
mod number;
mod page;
mod read;
mod scale;
mod smooth;

pub use chart::{Chart, Series, Summary, charts, summary};
pub use draw::svg;
pub use number::short;
pub use page::html;
pub use read::{ReadError, Run, read};
pub use smooth::Smoothing;
