//! Text and token ids: the vocabulary of a model, its control tokens and its chat template, from the files of the
//! model hub or from a GGUF file.
//!
//! Byte-level vocabularies only, as Llama 3, Qwen and SmolLM have them. Knows no conversation and no weights.

mod alphabet;
mod decoder;
mod directory;
mod error;
mod from_gguf;
mod toy;
mod vocabulary;
mod written;

pub use decoder::Decoder;
pub use error::VocabularyError;
pub use vocabulary::Vocabulary;
