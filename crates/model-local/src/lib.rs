//! A language model in this process: a GGUF file, read and run by llama.cpp on the machine's own processors.
//!
//! Many conversations share one loaded model. Knows no catalogue, no network and no tool-call format.

mod date;
mod engine;
mod grammar;
mod guard;
mod load;
mod local;
mod log;
mod sampler;
mod schema;
mod slots;
mod template;
mod words;

pub use load::{LoadError, Options};
pub use local::LocalModel;
pub use template::TemplateError;
