//! Training curves: the metrics of training runs as SVG charts and one HTML page.
//!
//! [`read()`] parses the `metrics.jsonl` of a run, [`charts`] overlays the runs metric by metric, [`svg`] and [`html`] draw
//! them, and [`summary`] gives the same as numbers. A metric is a name with a number per step; names in `label.rs` get a
//! title and a section, others are shown under their own name. Knows no trainer.
//!
//! ```
//! use lis_curves::{Smoothing, charts, html, read, svg};
//!
//! let dir = tempfile::tempdir()?;
//! let lines = "{\"step\":1,\"reward_mean\":0.1}\n{\"step\":2,\"reward_mean\":0.4}\n";
//! std::fs::write(dir.path().join("metrics.jsonl"), lines)?;
//!
//! let runs = [read(dir.path())?];
//! let charts = charts(&runs, Smoothing::default());
//! assert_eq!(charts[0].file, "reward_mean.svg");
//! assert!(svg(&charts[0]).contains("<polyline"));
//! assert!(html(&runs, Smoothing::default()).starts_with("<!doctype html>"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod chart;
mod draw;
mod label;
mod page;
mod read;
mod sets;
mod smooth;

pub use chart::{Chart, Series, Summary, charts, summary};
pub use draw::svg;
pub use label::{Description, describe};
pub use page::html;
pub use plot::short;
pub use read::{ReadError, Run, read};
pub use sets::set_of;
pub use smooth::Smoothing;
