//! Tasks to train on: rows made from documents with questions ([`prepare()`]), and made-up tasks over files with their
//! answers computed ([`synthesize()`]). Everything follows from the inputs and a seed, byte for byte.
//!
//! Plays nothing and trains nothing; a row is text, and how it is put to a model is the task's business.

mod dice;
mod folder;
mod prepare;
mod row;
mod synthesize;
mod text;

pub use folder::{
    Counts, FileInfo, FolderError, InputInfo, LeftOut, Manifest, Step, Watch, unwatched,
};
pub use prepare::{InputError, Placement, PrepareError, PrepareSettings, prepare};
pub use row::{INPUT_DIR, OUTPUT_DIR, Row, solve};
pub use synthesize::{Kind, Level, SynthesizeError, SynthesizeSettings, synthesize, synthetic};
