//! Training tasks: rows from documents with questions ([`prepare()`]), and synthetic tasks over files with computed
//! answers ([`synthesize()`]). The output is a function of the inputs and a seed, byte for byte.
//!
//! Plays and trains nothing: a row is text, and the task decides how it is rendered for a model. Where to start reading:
//! `synthesize.rs` and one of its kinds, such as `synthesize/lists.rs`; `prepare.rs` for documents; `folder.rs` for
//! the output.
//!
//! ```
//! use lis_curriculum::{Kind, Level, synthetic};
//!
//! let level = Level::ALL[0];
//! let row = synthetic(Kind::Count, level, 7, 0);
//! assert_eq!(row, synthetic(Kind::Count, level, 7, 0));
//! assert!(!row.input_files.is_empty() && !row.ground_truth.is_empty());
//! println!("{}", row.problem_statement);
//! ```

mod folder;
mod prepare;
mod rng;
mod row;
mod synthesize;
mod text;

pub use folder::{
    Counts, FileInfo, FolderError, InputInfo, LeftOut, Manifest, OnProgress, Progress,
    ignore_progress,
};
pub use prepare::{InputError, Placement, PrepareError, PrepareSettings, prepare};
pub use row::{INPUT_DIR, OUTPUT_DIR, Row, solve};
pub use synthesize::{Kind, Level, SynthesizeError, SynthesizeSettings, synthesize, synthetic};
