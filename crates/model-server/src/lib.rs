//! An OpenAI-compatible HTTP endpoint in front of any [`model::Model`].
//!
//! Knows HTTP and OpenAI's chat completions. Loads no model, reads no settings and runs no tool.

mod admission;
mod answer;
mod app;
mod body;
mod chat;
mod failure;
mod fields;
mod gate;
mod generation;
mod hold;
mod messages;
mod options;
mod patient;
mod question;
mod serve;
mod stream;
mod values;

pub use options::{ServeOptions, Served, Sight};
pub use serve::serve;
