//! A language model in this process: a GGUF file, read and run by llama.cpp on the machine's own processors.
//!
//! Many conversations share one loaded model. Knows no catalogue, no network and no tool-call format.

mod engine;
mod grammar;
mod lead;
mod load;
mod local;
mod log;
mod memory;
mod reader;
mod sampler;
mod schema;
mod slots;
mod words;

pub use chat_template::TemplateError;
pub use load::{Cancel, LoadError, Options};
pub use local::LocalModel;
