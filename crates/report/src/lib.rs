//! Summarizes benchmark runs: scores with and without a sandbox, paired differences between runs and between modes with
//! confidence intervals and exact tests, problems gained and lost, use of the sandbox, cost and failures; as Markdown,
//! JSON and one HTML page.
//!
//! [`read()`] reduces run directories to [`Fact`]s, [`Report::of`] computes the [`Report`], [`markdown()`] and [`html()`] render
//! it. Attempts without a valid score (infrastructure failures, ungraded) enter no mean and are counted separately.
//! Runs no episodes, grades nothing, calls no model. Start reading at `build.rs`; the statistics are in [`stats`].
//!
//! ```
//! use lis_report::{Report, html, markdown_summary, read};
//! # use results::{ResultsDir, Run, VERSION};
//! # let dir = tempfile::tempdir()?;
//! # let run = Run { v: VERSION, program: "0.1.0".into(), started: 0, model: "small".into(), tasks: Vec::new(),
//! #     modes: Vec::new(), without: Vec::new(), documents: String::new(), settings: Default::default() };
//! # ResultsDir::new(dir.path()).save_run(&run)?;
//! # let run_dir = dir.path().to_owned();
//!
//! let sources = read(&[run_dir.clone()], &run_dir.join("report"))?;
//! let report = Report::of(&sources);
//! assert_eq!(report.systems[0].label, "small");
//! assert!(markdown_summary(&report).starts_with("# Benchmark results"));
//! assert!(html(&report).starts_with("<!doctype html>"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod analysis;
mod build;
mod data;
mod fact;
mod html;
mod links;
mod markdown;
mod numbers;
mod read;
mod sections;
mod settings;
pub mod stats;
mod text;
pub mod transcript;
pub mod validation;

pub use data::{
    AttemptRef, Average, Bin, Change, Comparison, Cost, Domain, Failure, FailureKind, Leak,
    LeftOut, Listed, Mean, Method, ModeReport, Passes, Report, RunInfo, SettingRow, SettingsReport,
    Side, System, TaskReport, Times, TokenMeans, Turns, VERSION,
};
pub use fact::Fact;
pub use html::html;
pub use markdown::{markdown, markdown_summary};
pub use read::{ReadError, Source, read};
pub use settings::option_name;
pub use text::excerpt;
