//! Text and token ids: a model's tokenizer, its control tokens and its chat template, from the files of the model hub or
//! from a GGUF file.
//!
//! Start with [`Vocabulary`]. Byte-level BPE only, as Llama 3, Qwen and SmolLM use it. Knows no conversation and no
//! weights.
//!
//! ```
//! use lis_vocabulary::Vocabulary;
//!
//! let vocabulary = Vocabulary::bytes()?;
//! let ids = vocabulary.encode("hi<|im_end|>")?;
//! assert_eq!(ids, [u32::from(b'h'), u32::from(b'i'), 258]);
//! assert!(vocabulary.end_of_turn().contains(&258));
//! # Ok::<(), lis_vocabulary::VocabularyError>(())
//! ```

mod byte_alphabet;
mod byte_level;
mod decoder;
mod directory;
mod error;
mod from_gguf;
mod tokenizer_json;
mod vocabulary;

pub use decoder::Decoder;
pub use error::VocabularyError;
pub use vocabulary::Vocabulary;
