//! A language model in this process: a GGUF file, run by llama.cpp on the CPU.
//!
//! [`LocalModel`] implements [`model::Model`]; many conversations share one loaded file and are evaluated in common
//! batches. It is a [`sampling::Sampler`] too (`tokens.rs`). Start reading at `local.rs`; `engine.rs` owns llama.cpp's
//! context. Knows no catalogue, no network and no tool-call format.
//!
//! ```no_run
//! use std::path::Path;
//!
//! use lis_model_local::{LocalModel, Options};
//! use model::{Model, Request, Sampling, Silent};
//! use trajectory::Message;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let model = LocalModel::load("qwen", Path::new("qwen.gguf"), &Options::default())?;
//! let messages = [Message::user("What is the sum of the first ten primes?")];
//! let request =
//!     Request { messages: &messages, tools: &[], sampling: &Sampling::default(), max_tokens: 256 };
//! let response = model.complete(&request, &Silent).await?;
//! println!("{}", response.message.text);
//! # Ok(())
//! # }
//! ```

mod decode;
mod engine;
mod grammar;
mod load;
mod local;
mod log;
mod memory;
mod prompt;
mod sampler;
mod schema;
mod slots;
mod thinking;
mod tokens;

pub use chat_template::TemplateError;
pub use load::{Cancel, LoadError, Options};
pub use local::LocalModel;
