//! Rows from documents with questions: contexts in files among files of other contexts (distractors), earlier questions
//! as few-shot examples, no document both in training and in validation.
//!
//! Every choice follows from the seed and from the texts themselves, not from their order.

mod build;
mod choices;
mod find;
mod pool;
mod read;
mod shape;

#[cfg(test)]
#[path = "prepare/prepare_tests.rs"]
mod tests;

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::{
    FolderError, Manifest, OnProgress,
    folder::{Folder, Partition, Task},
};
use build::Builder;
use pool::Pool;
pub use read::InputError;

/// The maximum number of distractors.
const MAX_DISTRACTORS: usize = 50;
/// The maximum number of examples in a statement.
const MAX_EXAMPLES: usize = 20;

/// Where contexts are placed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// In files.
    #[default]
    Files,
    /// In the problem statement.
    Prompt,
}

/// The settings of [`prepare()`].
#[derive(Clone, Debug)]
pub struct PrepareSettings {
    /// The random seed.
    pub seed: u64,
    /// The fraction of questions for validation, in whole documents.
    pub validation: f64,
    /// The number of documents of other contexts that are added to a single one.
    pub distractors: usize,
    /// The maximum number of earlier questions with their answers in a statement.
    pub examples: usize,
    /// Where contexts are placed.
    pub context: Placement,
    /// The maximum number of rows.
    pub limit: Option<usize>,
    /// The licences of the inputs, copied to the manifest.
    pub licences: Vec<String>,
}

impl Default for PrepareSettings {
    fn default() -> Self {
        Self {
            seed: 0,
            validation: 0.1,
            distractors: 3,
            examples: 2,
            context: Placement::Files,
            limit: None,
            licences: Vec::new(),
        }
    }
}

/// Rows cannot be prepared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrepareError {
    /// The fraction for validation is out of range.
    #[error("the fraction for validation must be at least 0 and below 1, not {0}")]
    Validation(f64),
    /// A number is too large.
    #[error("there can be at most {max} {what}, not {requested}")]
    TooMany {
        /// The setting.
        what: &'static str,
        /// The maximum.
        max: usize,
        /// The requested number.
        requested: usize,
    },
    /// The limit is 0.
    #[error("the limit of rows must be at least 1")]
    NoRows,
    /// An input file cannot be read.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The output folder cannot be written.
    #[error(transparent)]
    Folder(#[from] FolderError),
}

impl PrepareError {
    /// Whether the input is at fault, not the machine.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Folder(error) => error.is_usage(),
            _ => true,
        }
    }
}

/// Reads contexts with their questions from files, and writes rows to a new folder. Entries that cannot be used are
/// skipped, and counted in the manifest.
pub fn prepare(
    inputs: &[PathBuf],
    settings: &PrepareSettings,
    output: &Path,
    on_progress: OnProgress<'_>,
) -> Result<Manifest, PrepareError> {
    check(settings)?;
    Folder::check(output)?;
    let mut manifest = Manifest::new("prepare", settings.seed, settings_json(settings));
    manifest.licences.clone_from(&settings.licences);
    let contexts = read::files(inputs, &mut manifest, on_progress)?;
    let pool = Pool::of(contexts, &mut manifest);
    manifest.counts.documents = pool.documents.len() as u64;
    let selection = pool.select(settings, &mut manifest);
    let folder = Folder::create(output)?;
    for (partition, places) in
        [(Partition::Train, &selection.train), (Partition::Validation, &selection.validation)]
    {
        let mut builder = Builder::new(&pool, settings, places);
        let rows = places.iter().map(|place| builder.row(*place));
        folder.rows(partition, rows, &mut manifest, on_progress)?;
        manifest.counts.fewer_distractors += builder.fewer;
    }
    folder.finish(&Task { turns: 20, tokens: 32_768 }, &mut manifest)?;
    Ok(manifest)
}

fn check(settings: &PrepareSettings) -> Result<(), PrepareError> {
    if !(0.0..1.0).contains(&settings.validation) {
        return Err(PrepareError::Validation(settings.validation));
    }
    for (what, max, requested) in [
        ("distractors", MAX_DISTRACTORS, settings.distractors),
        ("examples", MAX_EXAMPLES, settings.examples),
    ] {
        if requested > max {
            return Err(PrepareError::TooMany { what, max, requested });
        }
    }
    match settings.limit {
        Some(0) => Err(PrepareError::NoRows),
        _ => Ok(()),
    }
}

fn settings_json(settings: &PrepareSettings) -> serde_json::Value {
    let PrepareSettings { validation, distractors, examples, context, limit, .. } = settings;
    let context = match context {
        Placement::Files => "files",
        Placement::Prompt => "prompt",
    };
    json!({
        "validation": validation, "distractors": distractors, "examples": examples, "context": context, "limit": limit,
    })
}
