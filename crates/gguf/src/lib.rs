//! GGUF files, llama.cpp's format of weights: metadata, the table of tensors, their numbers as `f32`, and a writer for
//! adapters. Files are read piece by piece with bounds; a hostile one is refused with a reason, never with a panic.
//!
//! Knows bytes and numbers. It knows no network, no text and no tokens.

mod blocks;
mod file;
mod kind;
mod read;
mod value;
mod write;

pub use file::{File, OpenError, ReadError, TensorInfo};
pub use kind::Kind;
pub use value::{Array, Value};
pub use write::{Numbers, Pending, WriteError, write};
