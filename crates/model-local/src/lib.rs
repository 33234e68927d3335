//! A language model in this process: a GGUF file, read and run by llama.cpp on the machine's own processors.
//!
//! Many conversations share one loaded model. Knows no catalogue, no network and no tool-call format.

mod date;
mod engine;
mod grammar;
mod guard;
mod lead;
mod load;
mod local;
mod log;
mod memory;
mod reader;
mod sampler;
mod schema;
mod slots;
mod template;
mod words;

pub use load::{Cancel, LoadError, Options};
pub use local::LocalModel;
pub use template::TemplateError;
