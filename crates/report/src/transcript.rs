//! One episode as an HTML page for reading: task, turns, tool calls and their results, files, outcome, usage and grade.
//!
//! Start at [`page`]; [`BesidePage`] shows episodes of two runs in columns. Everything in an episode is hostile: texts are escaped, invisible and reordering characters are
//! spelled out, and the page has a bounded size whatever the size of the trajectory. Images are part of it; it needs no
//! other file and no script, and its content security policy forbids loading anything. Reads and writes no files.
//!
//! ```
//! use lis_report::transcript::{Episode, page};
//! use trajectory::{Action, Step, Trajectory};
//!
//! let action =
//!     Action { function: "execute_bash".into(), parameters: serde_json::json!({"command": "wc -l x"}) };
//! let step = Step { action, observation: "<3> x".into(), ..Step::default() };
//! let trajectory =
//!     Trajectory { problem_statement: "Count the lines.".into(), steps: vec![step], ..Default::default() };
//! let html = page(&Episode { outcome: "submitted", ..Episode::of(&trajectory) });
//! assert!(html.contains("wc -l x") && html.contains("&lt;3&gt; x"));
//! ```

mod beside;
mod beside_markdown;
mod call;
mod cut;
mod facts;
mod html;
mod index;
mod notice;
mod picture;
mod text;
mod turns;

use results::{AttemptKey, AttemptRecord, Judgement};
use trajectory::Trajectory;

pub use self::{
    beside::BesidePage,
    beside_markdown::beside_markdown,
    html::page,
    index::{IndexRow, index},
    notice::{Notice, notices},
    picture::{MAX_PICTURE, Picture, media_type, pictures},
};

/// An episode and what is known about it.
#[derive(Clone, Copy, Debug)]
pub struct Episode<'a> {
    /// The steps.
    pub trajectory: &'a Trajectory,
    /// Whether the steps are recorded. An attempt may have failed before its first event.
    pub recorded: bool,
    /// Events that are not steps.
    pub notices: &'a [Notice],
    /// Images in the results of tools.
    pub pictures: &'a [Picture],
    /// How it ended, in words; empty where it has not ended.
    pub outcome: &'a str,
    /// The attempt of a benchmark, with its score.
    pub attempt: Option<&'a AttemptRecord>,
    /// The votes of a judge.
    pub judgement: Option<&'a Judgement>,
    /// The answer, where there is no attempt that has it.
    pub answer: Option<&'a str>,
    /// Files the model left, and how many there are if not all are listed.
    pub files: &'a [EpisodeFile],
    /// The number of all files.
    pub file_count: usize,
    /// More facts for the head of the page: names and values.
    pub facts: &'a [(&'a str, String)],
    /// Where the complete record is, as text for the reader.
    pub source: &'a str,
}

impl<'a> Episode<'a> {
    /// An episode of which only the steps are known.
    pub fn of(trajectory: &'a Trajectory) -> Self {
        Self {
            trajectory,
            recorded: true,
            notices: &[],
            pictures: &[],
            outcome: "",
            attempt: None,
            judgement: None,
            answer: None,
            files: &[],
            file_count: 0,
            facts: &[],
            source: "",
        }
    }
}

/// A file the model left.
#[derive(Clone, Debug)]
pub struct EpisodeFile {
    /// The path below the output directory.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// The start of a text file, up to a size the caller chooses.
    pub preview: Option<String>,
    /// The whole file, where it is an image that may be shown; see [`media_type`].
    pub image: Option<Vec<u8>>,
}

/// Name of the page of an attempt: no other attempt of the run has it, and it is one plain part of a path.
pub fn page_name(key: &AttemptKey) -> String {
    format!("{}.html", key.file_stem())
}
