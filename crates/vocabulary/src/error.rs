//! Why a vocabulary cannot be loaded, saved or used.

use std::{io, path::PathBuf};

/// A vocabulary cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VocabularyError {
    /// A file cannot be read.
    #[error("cannot read {path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// There is no vocabulary.
    #[error(
        "{path} has no tokenizer.json and is not a GGUF file; give the directory of a model, or its .gguf"
    )]
    Missing {
        /// The directory or file.
        path: PathBuf,
    },
    /// A file is too large.
    #[error("{path} has {size} bytes, more than the limit of {most}")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
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
    /// A file lacks something, or contains something invalid.
    #[error("the vocabulary is malformed: {0}")]
    Malformed(String),
    /// An unsupported kind of vocabulary.
    #[error("{what} is not supported; supported are {supported}")]
    Unsupported {
        /// What the file requires.
        what: String,
        /// What is supported.
        supported: &'static str,
    },
    /// The tokenizer library refused the files or the text.
    #[error("the tokenizer library failed")]
    Refused(#[source] Box<dyn std::error::Error + Send + Sync>),
}
