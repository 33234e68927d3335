//! GGUF files, llama.cpp's format for weights: metadata, the table of tensors, their values as `f32`, and a writer for
//! adapters. Files are read within bounds; a malformed one is an error, never a panic.
//!
//! Start with [`File`] to read and [`write()`] to write. Knows no model architecture and no vocabulary.
//!
//! ```
//! use lis_gguf::{File, NewTensor, TensorData, Value, write};
//!
//! let path = std::env::temp_dir().join(format!("lis-gguf-{}.gguf", std::process::id()));
//! let metadata = [("general.architecture".to_owned(), Value::from("llama"))];
//! let tensor = NewTensor {
//!     name: "scale".into(),
//!     dimensions: vec![2],
//!     data: TensorData::F32(vec![1.0, 2.0]),
//! };
//! write(&mut std::fs::File::create(&path)?, &metadata, &[tensor])?;
//!
//! let file = File::open(&path)?;
//! assert_eq!(file.get("general.architecture").and_then(Value::as_str), Some("llama"));
//! assert_eq!(file.read_f32("scale")?, [1.0, 2.0]);
//! # std::fs::remove_file(&path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod chunks;
mod dequantize;
mod file;
mod header;
mod tensor_type;
mod value;
mod write;

pub use chunks::tokenizer_chunks;
pub use file::{File, OpenError, ReadError, TensorInfo};
pub use tensor_type::TensorType;
pub use value::{Array, Value};
pub use write::{NewTensor, TensorData, WriteError, write};
