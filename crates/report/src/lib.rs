//! What a benchmark's results mean: run directories become facts, facts a [`Report`], and the report Markdown,
//! JSON and one page.
//!
//! Plays nothing, grades nothing, and asks no model.

pub mod analysis;
mod build;
mod data;
mod fact;
mod html;
mod markdown;
mod numbers;
mod plot;
mod read;
mod sections;
pub mod stats;
mod text;

pub use data::{
    Average, Bin, Cost, Domain, Failure, Kind, Leak, Listed, Mean, Method, ModeReport, Place,
    Report, RunInfo, System, TaskReport, Times, TokenMeans, Turns, VERSION,
};
pub use fact::Fact;
pub use html::html;
pub use markdown::{markdown, markdown_summary};
pub use read::{ReadError, Source, read};
