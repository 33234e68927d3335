//! SVG charts and self-contained HTML pages, drawn without a plotting library.
//!
//! Charts are functions from plain numbers and labels to an `<svg>` element: [`bars()`], [`stacks()`], [`intervals()`],
//! [`histograms`], [`scatter`] and [`lines`]; other charts are drawn with [`Canvas`] and [`Scale`]. [`Page`] is the
//! document around them. Shapes carry classes, and the style sheet of the page colors them. Labels are escaped here.
//!
//! Start reading at [`Canvas`], then `bars.rs` for the simplest chart.
//!
//! ```
//! use lis_plot::{Bar, BarRow, Color, Page, bars};
//!
//! let bar = Bar { color: Color::Series(0), name: "accuracy", value: 0.62, interval: Some([0.55, 0.69]) };
//! let rows = [BarRow { group: String::new(), label: "math".into(), bars: vec![bar] }];
//! let chart = bars(&rows, "Accuracy by task").unwrap_or_default();
//! let page = Page { title: "Results", header: "<h1>Results</h1>", main: &chart, ..Page::default() }.render();
//! assert!(page.contains("<svg") && page.contains("Content-Security-Policy"));
//! ```

mod bars;
mod canvas;
mod histogram;
mod intervals;
mod number;
mod page;
mod plane;
mod rows;
mod scale;
mod stacks;

pub use bars::{Bar, BarRow, bars};
pub use canvas::{Anchor, Canvas, Color, WIDTH, truncate};
pub use histogram::{Panel, histograms};
pub use intervals::{IntervalRow, intervals};
pub use number::{compact, count, percent, points, short};
pub use page::{Images, Page, escape};
pub use plane::{Line, PointPair, lines, scatter};
pub use scale::Scale;
pub use stacks::{StackRow, stacks};
