//! What can be wrong with a vocabulary.

use std::{io, path::PathBuf};

/// A vocabulary cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VocabularyError {
    /// A file cannot be read.
    #[error("cannot use {path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// There is none.
    #[error(
        "{path} has no tokenizer.json and is no GGUF file; give the directory of a model, or its .gguf"
    )]
    Missing {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// A file that no vocabulary needs.
    #[error("{path} has {size} bytes, more than the {most} that are read")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        size: u64,
        /// The bound.
        most: u64,
    },
    /// The GGUF file is damaged.
    #[error("cannot read {path}")]
    Gguf {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A file lacks something, or has something that cannot be.
    #[error("the vocabulary is malformed: {0}")]
    Malformed(String),
    /// A kind that is not known here.
    #[error("{what} is not supported; supported are {supported}")]
    Unsupported {
        /// What the file asks for.
        what: String,
        /// What there is.
        supported: &'static str,
    },
    /// The library behind it refuses the files or the text.
    #[error("the tokenizer refuses it")]
    Refused(#[source] Box<dyn std::error::Error + Send + Sync>),
}
