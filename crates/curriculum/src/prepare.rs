//! Documents with questions become rows: contexts in files among files of other contexts, earlier questions as
//! examples, no document both in training and in validation.
//!
//! Knows no model. Every choice follows from the seed and from the texts themselves, not from their order or place.

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
    FolderError, Manifest, Watch,
    folder::{Folder, Side, Task},
};
use build::Builder;
use pool::Pool;
pub use read::InputError;

/// The most documents of others beside a single one.
const MOST_DISTRACTORS: usize = 50;
/// The most examples in a question.
const MOST_EXAMPLES: usize = 20;

/// Where contexts are put.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Into files.
    #[default]
    Files,
    /// Into the statement.
    Prompt,
}

/// How rows are made.
#[derive(Clone, Debug)]
pub struct PrepareSettings {
    /// Decides about everything that is chosen.
    pub seed: u64,
    /// The share of questions kept for validation, in whole documents.
    pub validation: f64,
    /// How many documents of other contexts join a single one.
    pub distractors: usize,
    /// How many earlier questions with their answers a statement begins with, at most.
    pub examples: usize,
    /// Where contexts are put.
    pub context: Placement,
    /// How many rows are made, at most.
    pub limit: Option<usize>,
    /// The licences of the inputs; they are only passed on.
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

/// Why no rows can be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrepareError {
    /// No share.
    #[error("the share for validation has to be at least 0 and below 1, not {0}")]
    Validation(f64),
    /// Too much of something.
    #[error("there can be {most} {what} at most, not {asked}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// The bound.
        most: usize,
        /// What was asked for.
        asked: usize,
    },
    /// Nothing is wanted.
    #[error("a limit of 0 rows leaves nothing to make")]
    NoRows,
    /// An input file.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The folder.
    #[error(transparent)]
    Folder(#[from] FolderError),
}

impl PrepareError {
    /// Whether the input is at fault, rather than the machine.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Folder(error) => error.is_usage(),
            _ => true,
        }
    }
}

/// Reads contexts with their questions from files and writes rows to a new folder. What cannot be used is counted and
/// named in the manifest.
pub fn prepare(
    inputs: &[PathBuf],
    settings: &PrepareSettings,
    output: &Path,
    watch: Watch<'_>,
) -> Result<Manifest, PrepareError> {
    check(settings)?;
    Folder::check(output)?;
    let mut manifest = Manifest::new("prepare", settings.seed, described(settings));
    manifest.licences.clone_from(&settings.licences);
    let contexts = read::files(inputs, &mut manifest, watch)?;
    let pool = Pool::of(contexts, &mut manifest);
    manifest.counts.documents = pool.documents.len() as u64;
    let chosen = pool.chosen(settings, &mut manifest);
    let folder = Folder::begin(output)?;
    for (side, places) in [(Side::Train, &chosen.train), (Side::Validation, &chosen.validation)] {
        let mut builder = Builder::new(&pool, settings, places);
        let rows = places.iter().map(|place| builder.row(*place));
        folder.rows(side, rows, &mut manifest, watch)?;
        manifest.counts.fewer_distractors += builder.fewer;
    }
    folder.finish(&Task { name: "context", turns: 20, tokens: 32_768 }, &mut manifest)?;
    Ok(manifest)
}

fn check(settings: &PrepareSettings) -> Result<(), PrepareError> {
    if !(0.0..1.0).contains(&settings.validation) {
        return Err(PrepareError::Validation(settings.validation));
    }
    for (what, most, asked) in [
        ("distractors", MOST_DISTRACTORS, settings.distractors),
        ("examples", MOST_EXAMPLES, settings.examples),
    ] {
        if asked > most {
            return Err(PrepareError::TooMany { what, most, asked });
        }
    }
    match settings.limit {
        Some(0) => Err(PrepareError::NoRows),
        _ => Ok(()),
    }
}

fn described(settings: &PrepareSettings) -> serde_json::Value {
    let PrepareSettings { validation, distractors, examples, context, limit, .. } = settings;
    let context = match context {
        Placement::Files => "files",
        Placement::Prompt => "prompt",
    };
    json!({
        "validation": validation, "distractors": distractors, "examples": examples, "context": context, "limit": limit,
    })
}
